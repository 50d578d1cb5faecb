"""The sections of a task file, one model each, and the task that they make.

A model is the single declaration of its fields (see section.py). Values are frozen; short forms are written out.
The field names and the texts about the SkyPilot dialect are those of its task YAML reference, release 0.14.1
(read November 2026).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

from pydantic import AfterValidator, BeforeValidator, Field, create_model

from orchestrator.options import Refused
from orchestrator.task.automatic import Automatic
from orchestrator.task.driver_sections import list_driver_options, load_settings_section
from orchestrator.task.errors import InvalidValueError
from orchestrator.task.git_state import GitState
from orchestrator.task.output_pattern import check_pattern
from orchestrator.task.resources import AutoStop, Resources, ResourcesSection, Strategy
from orchestrator.task.section import (
    LAZY,
    AnyCase,
    Count,
    ExitCode,
    Flag,
    Hours,
    Lazy,
    Minutes,
    NotNegative,
    OrText,
    Pairs,
    Port,
    Positive,
    Resolved,
    Scalar,
    Script,
    Section,
    Text,
    UserName,
    Whole,
    must_be,
    own,
    skypilot,
    text_schema,
)
from orchestrator.task.short_forms import (
    check_bucket,
    check_git_address,
    flatten_settings,
    parse_address,
    parse_seconds,
    without_repeats,
)
from orchestrator.task.stacks import Backend, StackRequest
from orchestrator.values import Secret

NUM_NODES = "ORCH_NUM_NODES"  # in the environment where candidates have their own number of nodes
_NO_KUBERNETES = "orch talks to machines over SSH and serves no Kubernetes"
NO_ESTIMATE = "orch makes no estimate of transfer cost from it"
_INTERNAL = "internal to SkyPilot"

Name = Annotated[
    str,
    Field(
        pattern=r"^(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)$",
        json_schema_extra={"x-form": "letters, digits, `.`, `_` and `-`, starting and ending with a letter or digit"},
    ),
]
VariableName = Annotated[
    str,
    Field(
        pattern=r"^(?:[A-Za-z_][A-Za-z0-9_]*)$",
        description="the name of a variable: letters, digits and `_`, not starting with a digit",
    ),
]
SettingName = Annotated[str, Field(pattern=r"^(?:[A-Za-z_][A-Za-z0-9_.]*)$", description="a setting such as model.dim")]
NodeRange = Annotated[
    str,
    Field(pattern=r"^[1-9][0-9]{0,3}-[1-9][0-9]{0,3}$"),
    must_be("a range such as 2-8, from 1 and the smaller first"),
]
BucketAddress = Annotated[Text, AfterValidator(check_bucket), must_be("a bucket address: s3://, gs:// or file:///")]


def _check_hops(jump: str) -> str:
    for hop in jump.split(",") if jump else ():
        parse_address(hop.strip())
    return jump


def _refuse_list(value: object, reason: str, next_step: str) -> object:
    if isinstance(value, list):
        raise InvalidValueError("`{path}` as a list is not served", reason, next_step)
    return value


class MountMode(StrEnum):
    """How hosts get a bucket path: downloaded once, streamed, or streamed with a cache."""

    COPY = "COPY"
    MOUNT = "MOUNT"
    MOUNT_CACHED = "MOUNT_CACHED"


class Order(StrEnum):
    """How several candidates are tried."""

    GIVEN = "ordered"
    CHEAPEST = "any_of"


class GitSource(Section):
    """A workdir that is a git repository; without `ref` its default branch."""

    url: Annotated[Text, AfterValidator(check_git_address)] = skypilot("", "git repository", "a git address")
    ref: Text = skypilot("", "branch, tag or commit")


class MountSection(Section):
    """An entry of `file_mounts` that is a map."""

    refused: ClassVar[Mapping[str, Refused]] = {
        "type": Refused("presets belong to MOUNT_CACHED of another tool"),
        "config": Refused("mounts have no settings"),
    }

    source: Annotated[
        Text, BeforeValidator(lambda value: _refuse_list(value, "a mount has one source", "write one mount for each"))
    ] = skypilot("", "local path, s3:// or gs:// address", "a path or a bucket address")
    name: Text = skypilot("", "bucket, which exists already; see store", "the name of a bucket")
    store: Annotated[Text, must_be("s3 or gcs, or a variable such as $STORE")] = skypilot(
        "", "kind of the bucket `name`; that of the machines' cloud if absent"
    )
    mode: Annotated[MountMode, AnyCase(tuple(MountMode))] = skypilot(
        MountMode.MOUNT, "COPY downloads once; MOUNT streams"
    )
    read_only: Flag = own(False, "for s3:// with mode MOUNT: the program only reads there")
    persistent: Flag = skypilot(True, "no effect: orch never deletes a bucket")


class Checkpoint(Section):
    """Where and how often the program is saved."""

    bucket: BucketAddress = own("", "where runs keep checkpoints, metrics and logs", config=True)
    every: Whole | None = own(None, "steps between checkpoints of the bundled trainer")
    keep: Whole = own(3, "newest checkpoints to keep")


class Recovery(Section):
    """How often a program is started again, after losses of hosts and after failures: two separate budgets."""

    max_preemptions: Count = own(100, "how often a lost slice is replaced", config=True)
    max_failures: Count = own(
        0, "how often a failed program is started again", config=True, alias="max_restarts_on_errors"
    )
    restart_on_exit_codes: Annotated[tuple[ExitCode, ...], AfterValidator(without_repeats)] = own(
        (), "exit statuses that count as a preemption", alias="recover_on_exit_codes"
    )
    fail_on_exit_codes: Annotated[tuple[ExitCode, ...], AfterValidator(without_repeats)] = own(
        (), "exit statuses after which the program is never started again"
    )
    strategy: Strategy = own(
        "EAGER_NEXT_REGION",
        "which place is tried first after a preemption: the same, or the farthest",
        alias="strategy",
    )
    hang_minutes: NotNegative = own(20.0, "no progress of the steps for so long is treated as a hang; 0 for never")
    capacity_wait_hours: NotNegative = own(24.0, "how long new machines are sought after a loss")
    on_demand_fallback: Flag = own(False, "when no spot capacity is left: pay for on demand")

    @classmethod
    def aliases(cls) -> dict[str, str]:
        """Return for each field the name of the field of `resources.job_recovery` that means the same."""
        extras = {
            name: cast("dict[str, Any] | None", info.json_schema_extra) or {} for name, info in cls.model_fields.items()
        }
        return {name: str(extra["x-alias"]) for name, extra in extras.items() if "x-alias" in extra}


class Limits(Section):
    """When spending ends; None for no limit."""

    max_hours: Hours | None = own(None, "the machines are deleted after so many hours", config=True)
    idle_minutes: Minutes | None = own(
        None, "the machines are deleted after so many minutes without a job", config=True
    )
    max_cost: Positive | None = own(None, "US dollars for the whole run, at most", config=True)


class Metrics(Section):
    """What is read from the output of a program that reports no steps. It is shown, and decides nothing."""

    pattern: Annotated[Text, AfterValidator(check_pattern)] = own(
        "", "a line of the output with {step} and {loss} in the places of the numbers; {} is any text", "a text"
    )


class Train(Section):
    """The bundled trainer instead of `run`. `args` holds its settings, keys dotted."""

    backend: Backend = own("auto", "what drives the chips; tpu: TorchTPU, xla: torch_xla")
    args: Annotated[
        tuple[tuple[str, str], ...], Pairs(dict[SettingName, Scalar | dict[str, Scalar]], flatten_settings)
    ] = own(
        (), "settings of the trainer, `model.dim: 256` or nested", "a map of settings of the trainer, such as model: 1b"
    )
    smoke: Flag = own(False, "test devices, data, loop and checkpoint on the hosts before each attempt")
    allow_misfit: Flag = own(False, "start although the estimate of memory says that it cannot fit")

    def stack_request(self, framework: str = "") -> StackRequest:
        """Return what is requested of engine and device; `framework` is that of the image, "" for any."""
        return StackRequest.from_settings(self.backend, self.args, framework)

    def format_args(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        """Return the trainer's arguments as `key=value`; what the user wrote in `args` comes last and wins."""
        given = {key for key, _ in self.args}
        ours = {"checkpoint.keep": str(checkpoint.keep)}
        if checkpoint.every is not None:
            ours["checkpoint.every"] = str(checkpoint.every)
        return tuple(
            f"{key}={value}" for key, value in (*((k, v) for k, v in ours.items() if k not in given), *self.args)
        )


class UserHost(Section):
    """A machine of the user's own. What is "" or None comes from their own SSH configuration (~/.ssh/config)."""

    short_forms = (text_schema("user@host:port"),)

    host: Text = own("", "name or address, or a `Host` of ~/.ssh/config", "a name or an address")
    user: UserName = own("", "user to log in as; as in ~/.ssh/config if absent", "a user name")
    port: Port | None = own(None, "port of sshd; as in ~/.ssh/config if absent")
    key: Text = own("", "private key file; the SSH agent's and those of ~/.ssh/config if absent", "a path")
    jump: Annotated[Text, AfterValidator(_check_hops)] = own(
        "", "jump host; several hops with commas; as in ~/.ssh/config if absent", "user@host:port"
    )
    internal_ip: Text = own("", "how the other hosts reach it", "an address")

    @classmethod
    def expand(cls, value: Any) -> Any:
        """Split `user@host:port`, also inside `host`."""
        given = {"host": value} if isinstance(value, str) else value
        if isinstance(given, dict):
            data = cast("dict[str, Any]", given)
            if not data.get("host"):
                raise InvalidValueError("a host needs an address", "", "write host: NAME")
            if isinstance(data["host"], str) and not (isinstance(value, UserHost)):
                return {**parse_address(data["host"]), **{k: v for k, v in data.items() if k != "host"}}
        return cast("object", given)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@{host}".removeprefix("@") + (f":{self.port}" if self.port else "")


class HostsSection(Section):
    """The section `hosts`: addresses in rank order, and what holds for those that do not set it themselves."""

    addresses: Annotated[tuple[Lazy[UserHost], ...], Field(min_length=1)] = own((), "hosts in rank order")
    user: UserName = own("", "for hosts without a user", "a user name")
    port: Port | None = own(None, "for hosts without a port")
    key: Text = own("", "for hosts without a key", "a path")
    jump: Annotated[Text, AfterValidator(_check_hops)] = own("", "for hosts without a jump host", "user@host:port")

    def resolve(self) -> tuple[UserHost, ...]:
        """Return the hosts with the section's values filled in."""
        shared = {name: getattr(self, name) for name in self.model_fields_set - {"addresses"}}
        return tuple(
            host.model_copy(update={name: value for name, value in shared.items() if name not in host.model_fields_set})
            for host in self.addresses
        )


class _Config(Section):
    """The section `config`: settings of a provider for this task, a section for each driver that has options."""

    refused: ClassVar[Mapping[str, Refused]] = {
        "docker": Refused("orch sets the options of containers itself", "name the image alone: image_id: docker:IMAGE"),
        "nvidia_gpus": Refused("orch does not change the ECC mode of GPUs", "do it in `setup`"),
        "kubernetes": Refused(_NO_KUBERNETES),
        "slurm": Refused("orch does not submit to Slurm"),
        "hooks": Refused("no commands run on cluster events", "save in your program: it gets SIGTERM first"),
    }


def _make_config_section() -> type[_Config]:
    fields: dict[str, Any] = {}
    for name, options in list_driver_options().items():
        section, declare = load_settings_section(name), skypilot if options.dialect else own
        fields[name] = (Annotated[section, LAZY], declare(section.model_construct(), options.title))
    made = create_model("ConfigSection", __base__=_Config, __module__=__name__, **fields)
    made.refused = _Config.refused
    return made


if TYPE_CHECKING:
    ConfigSection = _Config
else:
    ConfigSection = _make_config_section()


class TaskFields(Section):
    """The fields that mean the same in the file and in the resolved task."""

    name: Name = skypilot("", "name of the task")
    workdir: Annotated[Text, must_be("a folder")] | Lazy[GitSource] | None = skypilot(
        None,
        "folder, sent without what git ignores, or {url, ref} of a git repository; setup and run start in it",
    )
    setup: Script = skypilot("", "bash, on every host, before run; skipped when unchanged")
    run: Script = skypilot("", "bash, on every host")
    checkpoint: Lazy[Checkpoint] = own(Checkpoint.model_construct(), "where and how often to save")
    recovery: Lazy[Recovery] = own(Recovery.model_construct(), "how often to start again")
    limits: Lazy[Limits] = own(Limits.model_construct(), "when to stop spending")
    metrics: Lazy[Metrics] = own(Metrics.model_construct(), "how step and loss are read from the output")
    train: Lazy[Train] | None = own(None, "use the bundled trainer instead of run")
    git: Lazy[GitState] | None = own(None, "from which commit the workdir is; orch fills it in")


class TaskSection(TaskFields):
    """A whole task, as written."""

    refused: ClassVar[Mapping[str, Refused]] = {
        "managed_secrets": Refused(
            "orch keeps no secrets on a server", "write `NAME: null` under secrets and give it with --secret"
        ),
        "volumes": Refused(_NO_KUBERNETES, "keep data in a bucket: file_mounts, checkpoint.bucket"),
        "service": Refused("orch trains; it does not serve replicas"),
        "pool": Refused("orch keeps no pool of workers", "launch a cluster and use `orch exec`"),
        "api_server_access": Refused("there is no API server"),
        "event_callback": Refused("no command runs on state changes", "follow `orch events`"),
        "file_mounts_mapping": Refused(_INTERNAL),
        "storage_mounts": Refused("buckets are mounted by `file_mounts`", "move its entries to `file_mounts`"),
        "volume_mounts": Refused(_INTERNAL),
        "_metadata": Refused(_INTERNAL),
    }

    num_nodes: Annotated[int, Field(strict=True, ge=1, le=4096)] | NodeRange | None = skypilot(
        None, "how many; a TPU slice counts as one, however many hosts it has; 2-8 takes what is there, the most first"
    )
    resources: Lazy[ResourcesSection] = skypilot(ResourcesSection.model_construct(), "which machines")
    envs: dict[VariableName, Scalar] = skypilot({}, "environment; null must be given by the shell or --env", repr=False)
    secrets: Annotated[
        dict[VariableName, Scalar],
        BeforeValidator(
            lambda value: _refuse_list(
                value, "orch keeps no secrets on a server", "write `NAME: null`, and: export NAME=VALUE"
            )
        ),
    ] = skypilot({}, "as envs, but never shown and never stored", repr=False)
    file_mounts: dict[str, Annotated[Text, must_be("a path or a bucket address")] | Lazy[MountSection]] = skypilot(
        {}, "path on the host: local path (a folder is sent whole), bucket address, or {source, mode}"
    )
    inputs: dict[str, Scalar] = skypilot({}, f"no effect: {NO_ESTIMATE}")
    outputs: dict[str, Scalar] = skypilot({}, f"no effect: {NO_ESTIMATE}")
    config: Lazy[ConfigSection] = skypilot(ConfigSection.model_construct(), "settings of a provider for this task")
    hosts: Lazy[HostsSection] = own(HostsSection.model_construct(), "your own machines, for infra: hosts")


class PipelineSection(Section):
    """The first document of a file with several tasks."""

    name: Name = skypilot("", "name of the pipeline")
    execution: Literal["serial", "parallel"] = skypilot("serial", "one after the other, or in parallel")
    primary_tasks: tuple[Name, ...] = skypilot((), "with parallel: the tasks whose end ends the group")
    termination_delay: Annotated[
        int, Field(strict=True, ge=0, le=604_800), OrText(r"[0-9]{1,6}[smh]", "text such as 30s", parse_seconds)
    ] = skypilot(0, "with parallel: time the others get")


@dataclass(frozen=True, slots=True)
class FileMount:
    """A local path or bucket address that is copied to or mounted at `target` on the hosts, variables filled in.

    Attributes:
        read_only: The program only reads in the mounted bucket; for S3.
    """

    target: str
    source: str
    mode: MountMode = MountMode.COPY
    read_only: bool = False

    @property
    def in_s3(self) -> bool:
        """Whether hosts mount a bucket of S3."""
        return self.mode is MountMode.MOUNT and self.source.startswith("s3://")

    @property
    def from_bucket(self) -> bool:
        """Whether the source is a bucket."""
        return self.source.startswith(("s3://", "gs://", "file://"))


class Task(TaskFields):
    """A task as the user meant it: validated, short forms written out, names resolved.

    Values of secrets are left out of comparison, printing and JSON.

    Attributes:
        choices: Candidates, at least one, each complete; `order` is how they are tried.
        num_nodes: Slices or instances.
        envs: All of them with values.
        secret_names: All of them; `secrets` has the values that were given.
        autostop: None for never.
        auto: What limits the choice, where orch chose the machines; else None.
        grow: Whether a run moves to better machines while it has some.
    """

    choices: Resolved[tuple[Resources, ...]]
    order: Resolved[Order] = Order.GIVEN
    num_nodes: Resolved[int] = 1
    file_mounts: Resolved[tuple[FileMount, ...]] = ()
    envs: Resolved[tuple[tuple[str, str], ...]] = ()
    secret_names: Resolved[tuple[str, ...]] = ()
    autostop: Resolved[AutoStop | None] = None
    auto: Resolved[Automatic | None] = None
    grow: Resolved[bool] = False
    hosts: Resolved[tuple[UserHost, ...]] = ()
    config: Resolved[ConfigSection] = ConfigSection.model_construct()
    secrets: Resolved[tuple[Secret, ...]] = Field(default=(), repr=False, exclude=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Task) and self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash(self._compared())

    def _compared(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in type(self).model_fields if name != "secrets")

    def settings(self, provider: str) -> Section:
        """Return the section `config.PROVIDER`."""
        return cast(Section, getattr(self.config, provider))

    @property
    def missing_secrets(self) -> tuple[str, ...]:
        """Names of the secrets that have no value, as in a task that is read back from JSON."""
        given = {secret.name for secret in self.secrets}
        return tuple(name for name in self.secret_names if name not in given)

    def with_secrets(self, secrets: tuple[Secret, ...]) -> "Task":
        """Return the same task with these values; names that the task does not have are left out."""
        known = tuple(secret for secret in secrets if secret.name in self.secret_names)
        return self.model_copy(update={"secrets": known})

    @property
    def stops_when_idle(self) -> bool:
        """Whether idle machines are to be stopped and kept, not deleted."""
        return self.autostop is not None and not self.autostop.down and self.limits.idle_minutes is None

    @property
    def differs_by_choice(self) -> bool:
        """Whether its candidates have their own number of nodes or settings."""
        return any(choice.num_nodes is not None or choice.settings for choice in self.choices)

    def split(self) -> tuple["Task", ...]:
        """Return the task for each group of candidates on which it is the same; itself where that is all of them."""
        if not self.differs_by_choice:
            return (self,)
        return tuple(self._on(choice) for choice in self.choices)

    def _on(self, choice: Resources) -> "Task":
        train = self.train
        if train is not None and choice.settings:
            train = train.model_copy(update={"args": tuple((dict(train.args) | dict(choice.settings)).items())})
        plain = choice.model_copy(update={"num_nodes": None, "settings": ()})
        nodes = choice.num_nodes or self.num_nodes
        envs = self.envs if choice.num_nodes is None else (*self.envs, (NUM_NODES, str(nodes)))
        return self.model_copy(update={"choices": (plain,), "num_nodes": nodes, "train": train, "envs": envs})

    def count_hosts(self, choice: Resources) -> int:
        """Return the hosts to log in to: nodes times hosts per slice, or the user's own machines."""
        nodes = choice.num_nodes or self.num_nodes
        return len(self.hosts) if self.hosts else nodes * choice.machine.hosts

    def to_json(self) -> str:
        """Return the task as a task file in JSON, secrets by name only."""
        from orchestrator.task.json_form import format_json

        return format_json(self)

    def to_compared(self) -> str:
        """Return the text that finds the same command again: `to_json` without newer fields at their defaults."""
        from orchestrator.task.json_form import format_compared

        return format_compared(self)

    @classmethod
    def from_json(cls, text: str) -> "Task":
        """Return the task that `to_json` wrote, equal to the original except for the values of secrets.

        Raises:
            TaskError: The text is something else.
        """
        from orchestrator.task.json_form import parse_json

        return parse_json(text)
