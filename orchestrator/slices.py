"""Values about slices: candidates, requests, specifications and observed states.

A slice is the machines that one create request makes together: a TPU slice, a group of EC2 instances, N local hosts. It
has one or more hosts in rank order. Pure values, shared by the planner, the engine and the providers.
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
    """Machines at list price, kept until they are ended."""

    def __str__(self) -> str:
        return "on demand"


@dataclass(frozen=True, slots=True)
class Spot:
    """Machines that the provider may preempt."""

    def __str__(self) -> str:
        return "spot"


@dataclass(frozen=True, slots=True)
class Reservation:
    """Machines of a reservation that the account holds."""

    name: str

    def __str__(self) -> str:
        return f"reservation {self.name}"


@dataclass(frozen=True, slots=True)
class FlexStart:
    """Machines for a fixed time once they are available; the provider ends them after `hours`."""

    hours: float

    def __str__(self) -> str:
        return f"flex start, {self.hours:g} h"


@dataclass(frozen=True, slots=True)
class CapacityBlock:
    """Machines of an EC2 Capacity Block: bought beforehand for a fixed time."""

    reservation_id: str

    def __str__(self) -> str:
        return f"capacity block {self.reservation_id}"


@dataclass(frozen=True, slots=True)
class Owned:
    """The user's own machines: nothing is rented, nothing is created or ended."""

    def __str__(self) -> str:
        return "your own"


Market: TypeAlias = OnDemand | Spot | Reservation | FlexStart | CapacityBlock | Owned


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One concrete way to get a slice, complete enough to build the request; candidates are tried in order.

    Attributes:
        hosts: All hosts of the cluster (num_nodes x hosts per slice).
        chips_per_host: Accelerator chips of each host; 0 for CPU hosts.
        price_per_hour: US dollars for the complete candidate; None when not known, which is never shown as 0.
        details: Values for this provider only (instance type, runtime version, addresses).
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
        """Return a value of `details`."""
        return dict(self.details).get(key, default)

    @property
    def where(self) -> str:
        """The place: provider/region/zone."""
        return "/".join(part for part in (self.provider, self.region, self.zone) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request to a provider, complete: the previewed value is the one that is sent.

    Attributes:
        service: "local", "tpu.v2", "ec2".
        method: "POST", or an operation.
        target: A path, or the subject of the operation.
        body: JSON values, with Text where a part is unknown or secret.
        command: The same request as a command line to paste; () when there is none.
        before: Requests that are sent first, in this order, each unless it was done already.
        after: Requests that are sent once this one took effect.
        why: Why this request and not an equivalent one; "" where there is no choice.
        gives: Unknowns that its answer makes known to later requests, each with its JMESPath in the answer.
        optional: Whether the sequence continues without its answer: a question that only saves later requests.
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
    optional: bool = False

    @property
    def in_order(self) -> tuple[Request, ...]:
        """This request with those before and after it, in the order in which they are sent."""
        earlier = tuple(one for request in self.before for one in request.in_order)
        return (*earlier, self, *(one for request in self.after for one in request.in_order))


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceSpec:
    """A slice to create. `name` is deterministic; `token` makes a repeated create harmless."""

    cluster: str
    name: str
    token: Text
    candidate: Candidate
    labels: tuple[tuple[str, Text], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceKeys:
    """SSH keys of one slice, made before the create.

    Attributes:
        user_public: The line for authorized_keys.
        recovery_public: The line of a person's recovery key, without a comment; "" for none.
        identity_file: Path of its private key on this computer.
        known_hosts: File with the pinned host keys.
        host_private: One OpenSSH private key per rank; () when the hosts bring their own keys.
        host_public: One public line per rank, likewise.
    """

    user_public: str
    identity_file: str
    known_hosts: str
    host_private: tuple[str, ...] = field(default=(), repr=False)
    host_public: tuple[str, ...] = ()
    recovery_public: str = ""

    @property
    def login_keys(self) -> tuple[str, ...]:
        """The lines of all keys that log in to the hosts from the create on."""
        return tuple(filter(None, (self.user_public, self.recovery_public)))


class SliceState(StrEnum):
    """State of a slice by the provider. ABSENT is a positive statement, never an empty or failed listing."""

    ABSENT = "absent"
    CREATING = "creating"
    READY = "ready"
    STOPPING = "stopping"
    STOPPED = "stopped"
    STARTING = "starting"
    PREEMPTED = "preempted"  # taken back completely or in part: the slice is unusable and must be ended
    FAILED = "failed"  # the provider gave up on it; must be ended
    ENDING = "ending"
    UNCLEAR = "unclear"  # the provider could not be queried, or answered in part


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceView:
    """One observation of a slice.

    Attributes:
        hosts: In rank order, only when READY.
        reason: The provider's message, one line.
        until: Epoch seconds until which the provider lets a request wait for machines; None where it does not queue.
        ends: Epoch seconds at which the provider begins to take the machines back; None where no end is announced.
        due: Whether a step of its create or its end can be taken now, which observing never does
            (providers/protocol.py, Finishes).
        installation: Whose label the machines carry; "" where the provider does not show it.
        login: The command that logs in, when the provider does not accept the credentials; else "".
        refused: Why the provider refused a create that it had accepted: an error as of a create refused immediately.
    """

    state: SliceState
    hosts: tuple[HostAddress, ...] = ()
    reason: str = ""
    until: float | None = None
    ends: float | None = None
    due: bool = False
    installation: str = ""
    login: str = ""
    refused: OrchError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedSlice:
    """A slice with our labels, found by listing the provider.

    Attributes:
        created: Seconds since the epoch.
        intent: The label that names its record.
        machine: What the provider calls one of its machines, such as "p5.48xlarge" or "v5litepod-8"; "" when unknown.
        count: How many of them the provider shows.
        spot: Whether the provider may preempt them.
        project: The label of the cluster's project, "" where there is none.
        member: The label of the cluster's owner, "" where there is none.
    """

    name: str
    cluster: str
    installation: str
    state: SliceState
    created: float
    where: str = ""
    intent: str = ""
    machine: str = ""
    count: int = 0
    spot: bool = False
    project: str = ""
    member: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredSlice:
    """A slice as its provider describes it to an installation that has no record of it.

    Attributes:
        candidate: The candidate that describes the same machines.
        installation: Whose label it carries.
        epoch: That of its label; 1 where it has none.
        host_public: The public host key of each rank, as the provider holds it; () when it holds none.
        closed: Why the hosts cannot be entered by anyone without their keys' record; "" when they can be tried.
    """

    candidate: Candidate
    installation: str
    epoch: int
    host_public: tuple[str, ...] = ()
    closed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """A provider's knowledge of its hosts, other than their addresses.

    Attributes:
        env: Added to the environment of setup and run on every host.
        python: The interpreter of a bundled program; "" when setup has to install one.
        image_python: The Python that a program of one's own finds on a host, in words; "" where nothing is to be said.
        scratch: A folder on fast local disk, or "".
        end_command: Bash that ends the complete slice from one of its hosts; "" where a limit can only end the jobs.
        stop_command: Bash that stops such a machine and keeps its disk; "" where it can only be ended.
        backend: The backend of programs there; "" for that of the requested accelerator.
        has_accelerator: Whether they have the machine's accelerator.
        shares_files: Whether they see the files of this computer.
        bucket_folder: The folder that holds the buckets of a simulated cloud; "" for real buckets.
    """

    env: tuple[tuple[str, str], ...] = ()
    python: str = ""
    image_python: str = ""
    scratch: str = ""
    end_command: str = ""
    stop_command: str = ""
    backend: str = ""
    has_accelerator: bool = True
    shares_files: bool = False
    bucket_folder: str = ""
