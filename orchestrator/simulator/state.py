"""All that the cloud knows, as plain values that become JSON and come back equal.

Times are seconds since the epoch. Nothing here acts; `cloud.py` and its neighbours do.
"""

from __future__ import annotations

from copy import copy
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple


class Phase(StrEnum):
    """Life of a resource. ABSENT ones are kept for the record and shown to nobody."""

    CREATING = "creating"
    READY = "ready"
    MAINTENANCE = "maintenance"
    PREEMPTED = "preempted"
    FAILED = "failed"
    STOPPING = "stopping"
    STOPPED = "stopped"
    STARTING = "starting"
    ENDING = "ending"
    ABSENT = "absent"


class QueuePhase(StrEnum):
    """State of a queued request: the ten of the queued-resources API (TPU API v2, November 2026)."""

    UNSPECIFIED = "unspecified"
    CREATING = "creating"
    ACCEPTED = "accepted"
    WAITING = "waiting-for-resources"
    PROVISIONING = "provisioning"
    ACTIVE = "active"
    FAILED = "failed"
    SUSPENDING = "suspending"
    SUSPENDED = "suspended"
    DELETING = "deleting"


@dataclass(slots=True)
class Job:
    """A detached program on one host. ends: None = never by itself. froze: since when it makes no more steps.

    log_every: its log has a line for each so many steps.
    """

    began: float
    ends: float | None
    exit_code: int
    step_seconds: float
    last_words: str = ""
    lost: bool = False
    froze: float | None = None
    log_every: int = 1


@dataclass(slots=True)
class Host:
    """One machine of a resource. dies: the time its termination notice names. silent_until: no answers before."""

    rank: int
    address: str
    up: bool = False
    stuck: bool = False  # it will never come up
    impostor: bool = False  # it shows another key than ours
    silent_until: float = 0.0
    dies: float | None = None
    boots: int = 0
    marks: dict[str, str] = field(default_factory=dict[str, str])
    trees: dict[str, str] = field(default_factory=dict[str, str])
    jobs: dict[str, Job] = field(default_factory=dict[str, Job])


@dataclass(slots=True)
class Resource:
    """N hosts that are created and ended as a whole.

    market: "on-demand", "spot" or "reservation:NAME". epoch: raised by every change of phase; what was due for an
    older one is void. past: (time, phase) of each change, for reads that are behind. stuck_end: its end was accepted
    and nothing is done about it. foreign: somebody else's. queued: uid of the queued request it belongs to.
    """

    uid: str
    name: str
    zone: str
    accelerator: str
    market: str
    chips_per_host: int
    token: str
    request: str
    labels: dict[str, str]
    extra: dict[str, Any]
    created: float
    hosts: list[Host]
    phase: Phase = Phase.CREATING
    reason: str = ""
    epoch: int = 0
    changed: float = 0.0
    past: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    stuck_end: bool = False
    foreign: bool = False
    queued: str = ""


@dataclass(slots=True)
class Queued:
    """A request that waits for machines. node: the fields of a CreateCall, name included; more: of its further nodes.

    not_before: it is not filled before this time.
    """

    uid: str
    name: str
    zone: str
    token: str
    request: str
    node: dict[str, Any]
    created: float
    valid_until: float | None
    phase: QueuePhase = QueuePhase.CREATING
    reason: str = ""
    force: bool = False
    epoch: int = 0
    gone: bool = False
    past: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    more: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    not_before: float = 0.0

    @property
    def nodes(self) -> list[dict[str, Any]]:
        return [self.node, *self.more]


class Call(NamedTuple):
    """One line of the audit log. result: "ok" or the code of the error that the caller got. acted: it had an effect.

    uid: the resource it was about. foreign: that was somebody else's.
    """

    at: float
    op: str
    name: str
    token: str
    result: str
    acted: bool = False
    uid: str = ""
    foreign: bool = False


class Due(NamedTuple):
    """Something that happens at a time. number breaks ties in the order of making."""

    at: float
    number: int
    kind: str
    subject: str
    detail: tuple[Any, ...] = ()


@dataclass(slots=True)
class CloudState:
    """See the module's words. names: "zone/name" -> uid of what lives. tokens: token -> [uid, remembered until].

    random: state of the random sequence. counts: calls so far, by operation. fired: times so far, by number of the
    scenario's event or fault. front: what a front keeps of its own, as plain JSON values by kind and name.
    """

    began: float
    now: float
    random: int
    numbers: int = 0
    resources: dict[str, Resource] = field(default_factory=dict[str, Resource])
    queued: dict[str, Queued] = field(default_factory=dict[str, Queued])
    names: dict[str, str] = field(default_factory=dict[str, str])
    tokens: dict[str, tuple[str, float | None]] = field(default_factory=dict[str, tuple[str, float | None]])
    agenda: list[Due] = field(default_factory=list[Due])
    calls: list[Call] = field(default_factory=list[Call])
    counts: dict[str, int] = field(default_factory=dict[str, int])
    fired: dict[str, int] = field(default_factory=dict[str, int])
    capacity: dict[str, int] = field(default_factory=dict[str, int])
    programs: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    front: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    def to_json(self) -> dict[str, Any]:
        """Plain values for json.dumps. The long lists hold tuples, which need no copy of their own: asdict is slow."""
        plain: dict[str, Any] = {name: copy(getattr(self, name)) for name in self.__slots__}
        return {
            **plain,
            "resources": {uid: asdict(resource) for uid, resource in self.resources.items()},
            "queued": {uid: asdict(queued) for uid, queued in self.queued.items()},
            "programs": [(pattern, dict(program)) for pattern, program in self.programs],
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> CloudState:
        """Raises KeyError, TypeError or ValueError when it is not a state."""
        typed: dict[str, Any] = {
            **value,
            "resources": {uid: _resource(fields) for uid, fields in value["resources"].items()},
            "queued": {uid: _queued(fields) for uid, fields in value["queued"].items()},
            "tokens": {token: tuple(known) for token, known in value["tokens"].items()},
            "agenda": [Due(due[0], due[1], due[2], due[3], tuple(due[4])) for due in value["agenda"]],
            "calls": [Call(*call) for call in value["calls"]],
            "programs": [(pattern, dict(program)) for pattern, program in value["programs"]],
        }
        return cls(**typed)


def _resource(fields: dict[str, Any]) -> Resource:
    typed: dict[str, Any] = {
        **fields,
        "phase": Phase(fields["phase"]),
        "hosts": [_host(host) for host in fields["hosts"]],
        "past": [(at, phase) for at, phase in fields["past"]],
    }
    return Resource(**typed)


def _host(fields: dict[str, Any]) -> Host:
    typed: dict[str, Any] = {**fields, "jobs": {name: Job(**job) for name, job in fields["jobs"].items()}}
    return Host(**typed)


def _queued(fields: dict[str, Any]) -> Queued:
    typed: dict[str, Any] = {
        **fields,
        "phase": QueuePhase(fields["phase"]),
        "past": [(at, phase) for at, phase in fields["past"]],
    }
    return Queued(**typed)
