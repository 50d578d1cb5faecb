"""State of the cloud as plain values that survive a round trip through JSON.

Times are seconds since the epoch. Nothing here acts; `cloud.py` and its neighbours do.
"""

from __future__ import annotations

from copy import copy
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple


class Phase(StrEnum):
    """Phase of a resource; ABSENT ones are kept for the record and never shown."""

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


@dataclass(slots=True, kw_only=True)
class Job:
    """Detached program on one host.

    Attributes:
        ends: Time of its end; None means that it never ends by itself.
        froze: Time since which it makes no more steps.
        log_every: Number of steps for each line of its log.
        ended_by: Why orch ended it, as hosts.EndedBy; "" where it did not.
    """

    began: float
    ends: float | None
    exit_code: int
    step_seconds: float
    last_words: str = ""
    lost: bool = False
    froze: float | None = None
    log_every: int = 1
    ended_by: str = ""


@dataclass(slots=True, kw_only=True)
class Host:
    """One machine of a resource.

    Attributes:
        dies: Time that its termination notice names.
        silent_until: Time before which it does not answer.
    """

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


@dataclass(slots=True, kw_only=True)
class Resource:
    """Hosts that are created and ended together.

    Attributes:
        market: "on-demand", "spot" or "reservation:NAME".
        epoch: Number of changes of phase; agenda entries of an older epoch are void.
        past: Time and phase of each change, for reads that lag.
        stuck_end: Whether its end was accepted but nothing happens.
        foreign: Whether it belongs to another owner.
        queued: Uid of its queued request.
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


@dataclass(slots=True, kw_only=True)
class Queued:
    """Request that waits for machines.

    Attributes:
        node: Fields of a CreateCall, name included.
        gone: Whether it is deleted.
        more: Fields of its further nodes.
        not_before: Time before which it is not filled.
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
    """One line of the audit log.

    Attributes:
        result: "ok" or the code of the error that the caller got.
        acted: Whether it had an effect.
        uid: Resource that it was about.
        foreign: Whether that resource belongs to another owner.
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
    """Agenda entry; `number` orders entries of the same time by creation."""

    at: float
    number: int
    kind: str
    subject: str
    detail: tuple[Any, ...] = ()


@dataclass(slots=True, kw_only=True)
class CloudState:
    """Complete state of a simulated cloud; see the module docstring.

    Attributes:
        random: State of the random sequence.
        names: Uid of each existing resource by "zone/name".
        tokens: Uid and end of the token's memory, by token.
        counts: Number of calls so far, by operation.
        fired: Number of times so far, by the scenario's event or fault.
        front: Data of a front, as plain JSON values by kind and name.
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
        """Return plain values for json.dumps. The tuples in the long lists are not copied, because asdict is slow."""
        plain: dict[str, Any] = {name: copy(getattr(self, name)) for name in self.__slots__}
        return {
            **plain,
            "resources": {uid: asdict(resource) for uid, resource in self.resources.items()},
            "queued": {uid: asdict(queued) for uid, queued in self.queued.items()},
            "programs": [(pattern, dict(program)) for pattern, program in self.programs],
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> CloudState:
        """Restore a state from JSON.

        Raises:
            KeyError, TypeError, ValueError: It is not a state.
        """
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
