"""A task as the user meant it: validated, every short form written out, values frozen.

Secrets' values are held beside the task and take no part in comparison, printing or JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from orchestrator.catalog.machines import Accelerator
from orchestrator.spec.infra import Infra
from orchestrator.spec.stacks import Asked
from orchestrator.values import Secret

DEFAULT_MAX_PREEMPTIONS = 100
DEFAULT_MAX_FAILURES = 0
DEFAULT_KEEP = 3
DEFAULT_HANG_MINUTES = 20.0
DEFAULT_CAPACITY_WAIT_HOURS = 24.0
DEFAULT_STRATEGY = "EAGER_NEXT_REGION"  # SkyPilot documentation, release 0.14.1
DEFAULT_WAIT_FOR = "jobs_and_ssh"


class Order(StrEnum):
    """How several candidates are tried."""

    GIVEN = "ordered"
    CHEAPEST = "any_of"


class Mode(StrEnum):
    COPY = "COPY"
    MOUNT = "MOUNT"
    MOUNT_CACHED = "MOUNT_CACHED"


@dataclass(frozen=True, slots=True)
class AutoStop:
    """Stop when idle. down: end the machines instead of stopping them."""

    idle_minutes: int
    down: bool = False
    wait_for: str = DEFAULT_WAIT_FOR


@dataclass(frozen=True, slots=True)
class AcceleratorArgs:
    """How machines are asked for. runtime_version, topology "": the generation's own, that of the size.

    provisioning "": on demand or spot; else guaranteed, best-effort, flex-start, reservation-bound: the machines end
    with the reservation; or capacity-block. reservation: its name or id, "-" for any. max_run_hours: the provider ends
    the slice then. valid_hours: how long a queued request may wait, None for the default. data_disks: names or paths of
    disks, `:ro` behind those to be read only. api "": the one that fits. placement_group: of EC2, one that exists.
    framework: what `run` trains with, "" for the usual: it decides the image on Trainium.
    """

    runtime_version: str = ""
    gcp_queued_resource: bool = False
    topology: str = ""
    provisioning: str = ""
    reservation: str = ""
    max_run_hours: float | None = None
    valid_hours: float | None = None
    data_disks: tuple[str, ...] = ()
    secure_boot: bool = False
    api: str = ""
    placement_group: str = ""
    framework: str = ""


@dataclass(frozen=True, slots=True)
class Resources:
    """One candidate. machine: what `accelerators` and `instance_type` mean at `infra`.

    disk_gib: None for the provider's default. network_tier: "" for the default. images: one image for every region
    (key "") or one for each. max_hourly_cost: US dollars for one slice or instance.
    """

    infra: Infra
    machine: Accelerator
    use_spot: bool = False
    args: AcceleratorArgs = AcceleratorArgs()
    disk_gib: int | None = None
    network_tier: str = ""
    images: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    max_hourly_cost: float | None = None


@dataclass(frozen=True, slots=True)
class GitSource:
    """A workdir that is a git repository. ref "": the default branch."""

    url: str
    ref: str = ""


@dataclass(frozen=True, slots=True)
class FileMount:
    """target: path on the hosts. source: local path or bucket address, variables filled in."""

    target: str
    source: str
    mode: Mode = Mode.COPY

    @property
    def from_bucket(self) -> bool:
        return self.source.startswith(("s3://", "gs://", "file://"))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """bucket "": none. every: steps, None for the trainer's default."""

    bucket: str = ""
    every: int | None = None
    keep: int = DEFAULT_KEEP


@dataclass(frozen=True, slots=True)
class Recovery:
    """Two budgets, never mixed. strategy: where to look after a preemption, in the dialect's words.

    hang_minutes: how long the steps may stand still, 0 = not watched. capacity_wait_hours: how long a lost slice's
    replacement is looked for. on_demand_fallback: spot candidates are tried on demand at last.
    """

    max_preemptions: int = DEFAULT_MAX_PREEMPTIONS
    max_failures: int = DEFAULT_MAX_FAILURES
    restart_on_exit_codes: tuple[int, ...] = ()
    strategy: str = DEFAULT_STRATEGY
    fail_on_exit_codes: tuple[int, ...] = ()
    hang_minutes: float = DEFAULT_HANG_MINUTES
    capacity_wait_hours: float = DEFAULT_CAPACITY_WAIT_HOURS
    on_demand_fallback: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """None: no limit. max_cost: US dollars for the whole run."""

    max_hours: float | None = None
    idle_minutes: int | None = None
    max_cost: float | None = None


@dataclass(frozen=True, slots=True)
class Train:
    """The bundled trainer instead of `run`. backend: a word of stacks.BACKENDS. args: settings, keys dotted.

    smoke: a short test of everything on the hosts before each attempt.
    """

    backend: str = "auto"
    args: tuple[tuple[str, str], ...] = ()
    smoke: bool = False

    def asked(self, framework: str = "") -> Asked:
        """What it says of engine and device. framework: of the image, "" for nothing."""
        return Asked.of(self.backend, self.args, framework)

    def words(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        """The trainer's arguments as `key=value`, what the user wrote in `args` comes last and wins."""
        given = {key for key, _ in self.args}
        ours = {"checkpoint.keep": str(checkpoint.keep)}
        if checkpoint.every is not None:
            ours["checkpoint.every"] = str(checkpoint.every)
        return tuple(
            f"{key}={value}" for key, value in (*((k, v) for k, v in ours.items() if k not in given), *self.args)
        )


@dataclass(frozen=True, slots=True)
class UserHost:
    """A machine of the user's own. user, key, jump, internal_ip: "" where ssh's own default holds."""

    host: str
    user: str = ""
    port: int = 22
    key: str = ""
    jump: str = ""
    internal_ip: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@{host}:{self.port}" if self.user else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class GcpSettings:
    """Of the project. access: external, internal, iap or jump; "" for the one that fits. jump: user@host[:port].

    ssh_cidr: who may reach port 22, "" for the caller's own address. firewall: whether a rule for that is made.
    """

    vpc_name: str = ""
    subnet_names: tuple[str, ...] = ()
    project: str = ""
    service_account: str = ""
    internal_ips: bool = False
    tags: tuple[str, ...] = ()
    access: str = ""
    jump: str = ""
    firewall: bool = True
    ssh_cidr: str = ""
    oslogin: bool = False


@dataclass(frozen=True, slots=True)
class AwsSettings:
    """Of the account. profile: of the AWS configuration. subnets: to try in order, of one region; () for default ones.

    security_group "": one is made for each slice. access: eips, eip, public, ssm, private or jump; "" for the one that
    fits. jump: user@host[:port]. ssh_cidr: who may reach port 22, "" for the caller's own address. user: the login name
    of the image, "" for the usual one.
    """

    profile: str = ""
    subnets: tuple[str, ...] = ()
    security_group: str = ""
    instance_profile: str = ""
    access: str = ""
    jump: str = ""
    ssh_cidr: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """name "": not named. choices: candidates, at least one, each complete; order says how they are tried.

    num_nodes: slices or instances. envs: all with values. secret_names: all of them; `secrets` holds the values that
    were given, and `missing_secrets` names the rest (a task read back from JSON has none).
    """

    choices: tuple[Resources, ...]
    name: str = ""
    order: Order = Order.GIVEN
    num_nodes: int = 1
    workdir: str | GitSource | None = None
    file_mounts: tuple[FileMount, ...] = ()
    envs: tuple[tuple[str, str], ...] = ()
    secret_names: tuple[str, ...] = ()
    setup: str = ""
    run: str = ""
    train: Train | None = None
    autostop: AutoStop | None = None
    checkpoint: Checkpoint = Checkpoint()
    recovery: Recovery = Recovery()
    limits: Limits = Limits()
    hosts: tuple[UserHost, ...] = ()
    gcp: GcpSettings = GcpSettings()
    aws: AwsSettings = AwsSettings()
    secrets: tuple[Secret, ...] = field(default=(), compare=False, repr=False)

    @property
    def missing_secrets(self) -> tuple[str, ...]:
        given = {secret.name for secret in self.secrets}
        return tuple(name for name in self.secret_names if name not in given)

    def with_secrets(self, secrets: tuple[Secret, ...]) -> Task:
        """The same task with these values; names that the task does not have are left out."""
        return replace(self, secrets=tuple(secret for secret in secrets if secret.name in self.secret_names))

    def hosts_of(self, choice: Resources) -> int:
        """Hosts to log in to: nodes x hosts per slice; for the user's own machines, as many as are listed."""
        return len(self.hosts) if self.hosts else self.num_nodes * choice.machine.hosts

    def to_json(self) -> str:
        """As a task file in JSON; secrets by name only."""
        from orchestrator.spec.json_form import to_json

        return to_json(self)

    @classmethod
    def from_json(cls, text: str) -> Task:
        """What `to_json` wrote, equal to the original but for the values of secrets. Raises TaskError."""
        from orchestrator.spec.json_form import from_json

        return from_json(text)
