"""The fields of `resources` and of a candidate inside `any_of` or `ordered`. See dialect.py."""

from __future__ import annotations

from orchestrator.spec.schema import (
    Field,
    Flag,
    ListOf,
    MapOf,
    Number,
    OneOf,
    Refused,
    Section,
    Text,
    Whole,
)

_NO_KUBERNETES = "orch talks to machines over SSH and serves no Kubernetes"
_ONE_CLUSTER = "it holds for the cluster, not for one candidate"

ACCELERATOR_ARGS = Section(
    (
        Field(
            "runtime_version", Text("text such as v2-alpha-tpuv5-lite"), "TPU software version; by generation if absent"
        ),
        Field("tpu_vm", Flag(), "must be true: only TPU VMs exist"),
        Field("gcp_queued_resource", Flag(), "ask through a queued resource, which waits for capacity"),
        Field("topology", Text("text such as 4x4 or 2x2x2"), "chips along each side", ours=True),
        Field(
            "provisioning",
            Text("text", ("guaranteed", "best-effort", "flex-start", "reservation-bound", "capacity-block")),
            "another way to get capacity than on demand or spot",
            ours=True,
        ),
        Field("reservation", Text("a reservation's name or id, or - for any"), "take it from there", ours=True),
        Field("max_run_hours", Number(), "Google ends the slice then; flex-start needs it", ours=True),
        Field("valid_hours", Number(), "how long a queued request may wait for capacity", ours=True),
        Field("data_disks", ListOf(Text("a disk, :ro to read only")), "disks attached to every host", ours=True),
        Field("secure_boot", Flag(), "verify the boot of the hosts", ours=True),
        Field("api", Text("text", ("tpu", "compute")), "force the Cloud TPU API or Compute Engine", ours=True),
        Field("placement_group", Text("a name"), "EC2: one of yours; else one is made for several hosts", ours=True),
        Field("framework", Text("text", ("torch", "jax")), "EC2: what `run` trains with; decides image", ours=True),
        Refused(
            "tpu_name",
            "orch names what it creates after the cluster, so that it can find it again",
            "remove it; `name` names the task",
        ),
    )
)

JOB_RECOVERY = Section(
    (
        Field(
            "strategy",
            Text("text", ("FAILOVER", "EAGER_NEXT_REGION"), any_case=True),
            "where to look after a preemption",
        ),
        Field("max_restarts_on_errors", Whole(0), "as recovery.max_failures"),
        Field(
            "recover_on_exit_codes",
            OneOf((Whole(1, 255), ListOf(Whole(1, 255)))),
            "as recovery.restart_on_exit_codes",
        ),
    )
)

AUTOSTOP = Section(
    (
        Field("idle_minutes", Whole(), "minutes without a job"),
        Field("down", Flag(), "end the machines instead of stopping them"),
        Field("wait_for", Text("text", ("jobs_and_ssh", "jobs", "none")), "what counts as being busy"),
        Refused("hook", "no command runs before a stop", "save in your program: it gets SIGTERM first"),
        Refused("hook_timeout", "no command runs before a stop", "save in your program: it gets SIGTERM first"),
    )
)

_ACCELERATORS = OneOf(
    (
        Text("a name such as v5litepod-16 or H100:8"),
        ListOf(Text("a name such as v5litepod-16"), least=1),
        MapOf(Whole(), nulls=True, least=1),
    )
)

_PER_CANDIDATE: tuple[Field | Refused, ...] = (
    Field(
        "infra",
        Text("text such as gcp/us-west4/us-west4-a, aws, local:4 or hosts"),
        "where: provider[/region[/zone]], `*` for any",
    ),
    Field("cloud", Text("text"), "older form of infra"),
    Field("region", Text("text"), "older form of infra"),
    Field("zone", Text("text"), "older form of infra"),
    Field("accelerators", _ACCELERATORS, "NAME or NAME:COUNT; a list is tried in order, a map by price"),
    Field("accelerator_args", ACCELERATOR_ARGS, "settings of a TPU slice or EC2 instances"),
    Field("instance_type", Text("text such as p5.48xlarge"), "exact EC2 instance type"),
    Field("use_spot", Flag(), "ask for spot capacity, which may be taken back"),
    Field("disk_size", OneOf((Whole(), Text("text such as 500GB", pattern=r"[0-9]{1,6} ?(?:GB|TB)"))), "boot disk, GB"),
    Field("network_tier", Text("text", ("standard", "best")), "best: all EFA interfaces on AWS"),
    Field(
        "image_id", OneOf((Text("an image"), MapOf(Text("an image"), least=1))), "image, or a map from region to image"
    ),
    Field("labels", MapOf(Text("text", may_be_empty=True)), "labels or tags on what is created"),
    Field("max_hourly_cost", Number(), "US dollars an hour for one slice or instance, at most"),
    Refused("cpus", "machines are chosen by accelerator or instance_type", "set accelerators or instance_type"),
    Refused("memory", "machines are chosen by accelerator or instance_type", "set accelerators or instance_type"),
    Refused("disk_tier", "boot disks are the provider's standard SSD", "remove it"),
    Refused("local_disk", "local disks are used where the machine has them", "remove it"),
    Refused("ephemeral_storage", _NO_KUBERNETES, "remove it"),
    Refused("ports", "orch opens no port to the internet", "use `orch ssh` with a forwarded port"),
    Refused(
        "volumes", "no disks are attached beside the boot disk", "keep data in a bucket: file_mounts, checkpoint.bucket"
    ),
    Refused("priority", "orch has no queue", "remove it"),
    Refused("priority_class", _NO_KUBERNETES, "remove it"),
)

CANDIDATE = Section(
    (
        *_PER_CANDIDATE,
        Refused("any_of", "lists of candidates do not nest", "write one flat list"),
        Refused("ordered", "lists of candidates do not nest", "write one flat list"),
        Refused("autostop", _ONE_CLUSTER, "write it in the outer resources"),
        Refused("job_recovery", _ONE_CLUSTER, "write it in the outer resources"),
    )
)

RESOURCES = Section(
    (
        *_PER_CANDIDATE,
        Field(
            "any_of", ListOf(CANDIDATE, least=1), "candidates, cheapest first; the keys beside it are their defaults"
        ),
        Field(
            "ordered",
            ListOf(CANDIDATE, least=1),
            "candidates, tried in this order; the keys beside it are their defaults",
        ),
        Field(
            "autostop",
            OneOf((Flag(), Whole(), Text("text such as 30m or 10h", pattern=r"[0-9]{1,6}[mhdw]?"), AUTOSTOP)),
            "stop when idle: minutes, `10h`, true for 5 minutes, false for never",
        ),
        Field(
            "job_recovery",
            OneOf((Text("text", ("FAILOVER", "EAGER_NEXT_REGION"), any_case=True), JOB_RECOVERY)),
            "see recovery",
        ),
    )
)
