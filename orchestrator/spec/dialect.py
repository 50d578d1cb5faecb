"""Every field of a task file: the public SkyPilot dialect, served or refused with the reason, and our own sections.

Field list: SkyPilot task YAML reference, release 0.14.1 (read November 2026). The same table checks a file, names what
is allowed, makes the JSON Schema for editors, and is printed in docs/task-files.md.
"""

from __future__ import annotations

from orchestrator.spec.dialect_own import CHECKPOINT, HOSTS, LIMITS, RECOVERY, TRAIN
from orchestrator.spec.dialect_resources import RESOURCES
from orchestrator.spec.schema import (
    Field,
    Flag,
    ListOf,
    MapOf,
    NotServed,
    OneOf,
    Refused,
    Scalar,
    Section,
    Text,
    Whole,
)

_NAME = Text(
    "letters, digits, `.`, `_` and `-`, starting and ending with a letter or digit",
    pattern=r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?",
)
_ENV_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_ENV_WORDS = "the name of a variable: letters, digits and `_`, not starting with a digit"
_NO_KUBERNETES = "orch talks to machines over SSH and serves no Kubernetes"
_NO_SERVING = "orch trains; it does not serve replicas"

STORAGE = Section(
    (
        Field(
            "source",
            OneOf((Text("a path or a bucket address"), NotServed(list, "a list", "write one mount for each"))),
            "local path, s3:// or gs:// address",
        ),
        Field("name", Text("the name of a bucket"), "bucket, together with store"),
        Field("store", Text("text", ("s3", "gcs")), "kind of the bucket `name`"),
        Field(
            "mode",
            Text("text", ("MOUNT", "COPY", "MOUNT_CACHED"), any_case=True),
            "COPY downloads once; MOUNT (default) streams",
        ),
        Field("persistent", OneOf((Flag(),)), "must be true: orch never deletes a bucket"),
        Refused("type", "presets belong to MOUNT_CACHED of another tool", "remove it"),
        Refused("config", "mounts have no settings", "remove it"),
    )
)

CONFIG = Section(
    (
        Field(
            "gcp",
            Section(
                (
                    Field("vpc_name", Text(), "network of the machines"),
                    Field("subnet_names", OneOf((Text(), ListOf(Text()))), "subnetworks, first is used"),
                    Field("project", Text("a project id"), "project that pays", ours=True),
                    Field("service_account", Text("an e-mail address"), "of the hosts", ours=True),
                    Field("internal_ips", Flag(), "give hosts no external address", ours=True),
                    Field("tags", ListOf(Text("a network tag")), "network tags of the hosts", ours=True),
                    Field("access", Text("text", ("external", "internal", "iap", "jump")), "way to hosts", ours=True),
                    Field("jump", Text("user@host:port"), "jump host, for access: jump", ours=True),
                    Field("firewall", Flag(), "make a rule that lets SSH in (true if absent)", ours=True),
                    Field("ssh_cidr", Text("a range such as 203.0.113.7/32"), "who may reach port 22", ours=True),
                    Field("oslogin", Flag(), "log in by OS Login instead of a key in metadata", ours=True),
                    Refused("managed_instance_group", "slices are created one by one", "remove it"),
                    Refused("enable_gvnic", "orch rents no GPU machines from Google", "remove it"),
                    Refused("enable_gpu_direct", "orch rents no GPU machines from Google", "remove it"),
                    Refused("placement_policy", "a TPU slice is placed as a whole by Google", "remove it"),
                )
            ),
            "Google Cloud",
        ),
        Field(
            "aws",
            Section(
                (
                    Field("profile", Text("a name"), "profile of the AWS configuration", ours=True),
                    Field("subnets", ListOf(Text("an id, subnet-…")), "subnets to try, in order", ours=True),
                    Field("security_group", Text("an id, sg-…"), "of the hosts; made when absent", ours=True),
                    Field("instance_profile", Text("a name"), "IAM instance profile of the hosts", ours=True),
                    Field(
                        "access",
                        Text("text", ("eips", "eip", "public", "ssm", "private", "jump")),
                        "way to hosts",
                        ours=True,
                    ),
                    Field("jump", Text("user@host:port"), "jump host, for access: jump", ours=True),
                    Field("ssh_cidr", Text("a range such as 203.0.113.7/32"), "who may reach port 22", ours=True),
                    Field("user", Text("a user name"), "login name of the image, ubuntu if absent", ours=True),
                )
            ),
            "Amazon EC2",
            ours=True,
        ),
        Refused("docker", "programs run on the host, not in a container", "install what you need in `setup`"),
        Refused("nvidia_gpus", "orch does not change the ECC mode of GPUs", "do it in `setup`"),
        Refused("kubernetes", _NO_KUBERNETES, "remove it"),
        Refused("slurm", "orch does not submit to Slurm", "remove it"),
        Refused("hooks", "no commands run on cluster events", "save in your program: it gets SIGTERM first"),
    )
)

_ENVS = MapOf(Scalar(), _ENV_NAME, _ENV_WORDS, nulls=True)

TASK = Section(
    (
        Field("name", _NAME, "name of the task"),
        Field(
            "workdir",
            OneOf(
                (
                    Text("a folder"),
                    Section(
                        (
                            Field("url", Text("a git address"), "git repository"),
                            Field("ref", Text("text"), "branch, tag or commit"),
                        )
                    ),
                )
            ),
            "folder, or {url, ref} of a git repository; copied to every host; setup and run start in it",
        ),
        Field("num_nodes", Whole(1, 4096), "how many; a TPU slice counts as one, however many hosts it has"),
        Field("resources", RESOURCES, "which machines"),
        Field("setup", Text("a script", may_be_empty=True), "bash, on every host, before run; skipped when unchanged"),
        Field("run", Text("a script", may_be_empty=True), "bash, on every host"),
        Field("envs", _ENVS, "environment; null must be given by the shell or --env"),
        Field(
            "secrets",
            OneOf(
                (
                    _ENVS,
                    NotServed(
                        list,
                        "a list",
                        "orch keeps no secrets on a server; write `NAME: null` and give it with --secret",
                    ),
                )
            ),
            "as envs, but never shown and never stored",
        ),
        Field(
            "file_mounts",
            MapOf(OneOf((Text("a path or a bucket address"), STORAGE))),
            "path on the host: local path, bucket address, or {source, mode}",
        ),
        Field("config", CONFIG, "settings of a provider for this task"),
        Field("checkpoint", CHECKPOINT, "where and how often to save", ours=True),
        Field("recovery", RECOVERY, "how often to start again", ours=True),
        Field("limits", LIMITS, "when to stop spending", ours=True),
        Field("train", TRAIN, "use the bundled trainer instead of run", ours=True),
        Field("hosts", HOSTS, "machines of your own, for infra: hosts", ours=True),
        Refused(
            "managed_secrets",
            "orch keeps no secrets on a server",
            "write `NAME: null` under secrets and give it with --secret",
        ),
        Refused("volumes", _NO_KUBERNETES, "keep data in a bucket: file_mounts, checkpoint.bucket"),
        Refused("service", _NO_SERVING, "remove it"),
        Refused("pool", "orch keeps no pool of workers", "launch a cluster and use `orch exec`"),
        Refused("inputs", "orch makes no estimate of transfer cost", "remove it"),
        Refused("outputs", "orch makes no estimate of transfer cost", "remove it"),
        Refused("api_server_access", "there is no API server", "remove it"),
        Refused("event_callback", "no command runs on state changes", "follow `orch events`"),
        Refused("file_mounts_mapping", "internal to SkyPilot", "remove it"),
        Refused("volume_mounts", "internal to SkyPilot", "remove it"),
        Refused("_metadata", "internal to SkyPilot", "remove it"),
    )
)

PIPELINE = Section(
    (
        Field("name", _NAME, "name of the pipeline"),
        Field("execution", Text("text", ("serial", "parallel")), "one after the other, or all at once"),
        Field("primary_tasks", ListOf(_NAME), "with parallel: the tasks whose end ends the group"),
        Field(
            "termination_delay",
            OneOf((Whole(0), Text("text such as 30s", pattern=r"[0-9]{1,6}[smh]"))),
            "with parallel: time the others get",
        ),
    )
)
