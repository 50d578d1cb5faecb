"""A slice as the rest of the program sees it: what may be asked for, what was asked, and what is there now.

A slice is the smallest thing that is created and ended as a whole: a TPU slice, a group of EC2 instances, N
local hosts. It has one or more hosts in rank order. Pure values, shared by the planner, the engine and the
providers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from orchestrator.errors import OrchError
from orchestrator.hosts import HostAddress
from orchestrator.values import Text, Unknown


@dataclass(frozen=True, slots=True)
class OnDemand:
    def __str__(self) -> str:
        return "on demand"


@dataclass(frozen=True, slots=True)
class Spot:
    def __str__(self) -> str:
        return "spot"


@dataclass(frozen=True, slots=True)
class Reservation:
    name: str

    def __str__(self) -> str:
        return f"reservation {self.name}"


@dataclass(frozen=True, slots=True)
class FlexStart:
    """Machines for a time that is said beforehand, when they are free; ended by the provider after `hours`."""

    hours: float

    def __str__(self) -> str:
        return f"flex start, {self.hours:g} h"


@dataclass(frozen=True, slots=True)
class CapacityBlock:
    reservation_id: str

    def __str__(self) -> str:
        return f"capacity block {self.reservation_id}"


@dataclass(frozen=True, slots=True)
class Owned:
    """The user's own machines: nothing is rented, nothing is created or ended."""

    def __str__(self) -> str:
        return "your own"


Market: TypeAlias = OnDemand | Spot | Reservation | FlexStart | CapacityBlock | Owned


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to get the machines, complete enough to write the request; tried in list order.

    hosts: all hosts of the cluster (num_nodes x hosts per slice). chips_per_host: accelerator chips each host
    drives, 0 for plain CPU hosts. price_per_hour: US dollars for the whole candidate; None = not known, which is
    never shown as 0. details: what only this provider understands (instance type, runtime version, addresses).
    """

    provider: str
    accelerator: str
    hosts: int
    chips_per_host: int
    market: Market
    region: str = ""
    zone: str = ""
    price_per_hour: float | None = None
    price_note: str = ""
    disk_gib: int | None = None
    details: tuple[tuple[str, str], ...] = ()

    def detail(self, key: str, default: str = "") -> str:
        return dict(self.details).get(key, default)

    @property
    def adopted(self) -> str:
        """What the provider calls machines that were there before orch managed them; "" for those that orch makes."""
        return self.detail("adopted")

    @property
    def where(self) -> str:
        return "/".join(part for part in (self.provider, self.region, self.zone) if part)


@dataclass(frozen=True, slots=True)
class Request:
    """One request to a provider, whole: what is previewed is what is sent.

    service: "local", "tpu.v2", "ec2". method and target: "POST" and a path, or an operation and its subject.
    body: JSON values with Text where a part is unknown or secret. command: the same thing as a command line that a
    person can paste (empty when there is none). before: requests that are sent first, in this order, each after a look
    whether it has been done already. after: those that are sent when this one has taken effect.
    why: of several ways to ask for the same, why this one; "" where there is only one. gives: what its answer makes
    known to those that follow, each with the JMESPath of it in the answer.
    """

    service: str
    method: str
    target: str
    body: Mapping[str, object] = field(default_factory=dict[str, object])
    command: tuple[Text, ...] = ()
    before: tuple[Request, ...] = ()
    after: tuple[Request, ...] = ()
    why: str = ""
    gives: tuple[tuple[Unknown, str], ...] = ()

    @property
    def in_order(self) -> tuple[Request, ...]:
        """All of them, in the order in which they are sent."""
        earlier = tuple(one for request in self.before for one in request.in_order)
        return (*earlier, self, *(one for request in self.after for one in request.in_order))


@dataclass(frozen=True, slots=True)
class SliceSpec:
    """What to create. `name` is deterministic; `token` makes a repeated create harmless."""

    cluster: str
    name: str
    token: Text
    candidate: Candidate
    labels: tuple[tuple[str, Text], ...]


@dataclass(frozen=True, slots=True)
class SliceKeys:
    """SSH material of one slice, made by us before the create.

    user_public: the line for authorized_keys. identity_file: path of its private half on this computer.
    host_private / host_public: one OpenSSH private key and one public line per rank; both empty when the hosts
    bring their own keys. known_hosts: the file with our pinned lines.
    """

    user_public: str
    identity_file: str
    known_hosts: str
    host_private: tuple[str, ...] = field(default=(), repr=False)
    host_public: tuple[str, ...] = ()


class SliceState(StrEnum):
    """What the provider says of a slice. ABSENT is a positive statement, never an empty or failed listing."""

    ABSENT = "absent"
    CREATING = "creating"
    READY = "ready"
    STOPPING = "stopping"
    STOPPED = "stopped"
    STARTING = "starting"
    PREEMPTED = "preempted"  # taken back whole or in part: the slice is of no more use and must be ended
    FAILED = "failed"  # the provider gave up on it; must be ended
    ENDING = "ending"
    UNCLEAR = "unclear"  # the provider could not be asked, or answered in part


@dataclass(frozen=True, slots=True)
class SliceView:
    """One look at a slice. hosts: in rank order, only when READY. reason: the provider's words, one line.

    until: epoch seconds until which the provider lets a request wait for machines; None where it does not queue.
    ends: epoch seconds at which the provider begins to take the machines; None where it does not say.
    """

    state: SliceState
    hosts: tuple[HostAddress, ...] = ()
    reason: str = ""
    until: float | None = None
    ends: float | None = None


@dataclass(frozen=True, slots=True)
class OwnedSlice:
    """A slice that carries our labels, found by listing the provider. intent: the label that names its record."""

    name: str
    cluster: str
    installation: str
    state: SliceState
    created: float  # seconds since the epoch
    where: str = ""
    intent: str = ""
    adopted: bool = False  # it was there before orch managed it


@dataclass(frozen=True, slots=True)
class Stranger:
    """Machines that may be adopted, as they are now. candidate: what orch would have asked for to get the same.

    installation, cluster, intent: labels of an orch on them, "" where there are none. problem: why they cannot be
    adopted, unless they are ours already. notes: what to know first.
    """

    candidate: Candidate
    state: SliceState
    installation: str = ""
    cluster: str = ""
    intent: str = ""
    problem: OrchError | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What a provider knows of its hosts beyond their addresses.

    env: added to the environment of setup and run on every host. python: the interpreter a bundled program runs
    with, or "" when setup has to make one. scratch: a folder on fast local disk, or "". end_command: bash that ends the
    whole slice from one of its hosts; "" where a limit can only end the jobs. backend: what programs
    use there, "" for what drives the accelerator that was asked for.
    """

    env: tuple[tuple[str, str], ...] = ()
    python: str = ""
    scratch: str = ""
    end_command: str = ""
    backend: str = ""
