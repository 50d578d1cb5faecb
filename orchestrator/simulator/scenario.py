"""A scenario: how a simulated cloud is built and what goes wrong in it, as frozen values.

The same scenario, the same calls and the same times give the same history. Times are seconds. `scenario_file.py` reads
one from TOML.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

ANY = "*"


@dataclass(frozen=True, slots=True)
class Zone:
    """name: "*" stands for every zone that is not named, each in the region that its name begins with."""

    name: str
    region: str


@dataclass(frozen=True, slots=True)
class Pool:
    """Machines of one kind in a zone. A zone without any pool has all kinds without end.

    accelerator, market: "*" = all of them, together. unit: "hosts" or "chips".
    """

    zone: str
    accelerator: str
    amount: int
    market: str = ANY
    unit: str = "hosts"


@dataclass(frozen=True, slots=True)
class Quota:
    """The account's limit in a region. See Pool."""

    region: str
    accelerator: str
    amount: int
    market: str = ANY
    unit: str = "hosts"


@dataclass(frozen=True, slots=True)
class Held:
    """A reservation: machines that only a create with the market "reservation:NAME" may use."""

    name: str
    zone: str
    accelerator: str
    amount: int
    unit: str = "hosts"


class FaultKind(StrEnum):
    """What can go wrong with one call. Those of hosts begin with "host-"."""

    THROTTLED = "throttled"  # 429, did not act
    INTERNAL = "internal"  # 500, did not act
    UNAVAILABLE = "unavailable"  # 503, did not act
    DENIED = "denied"  # 403, did not act
    TIMEOUT_BEFORE = "timeout-before"  # did not act
    TIMEOUT_AFTER = "timeout-after"  # acted
    DUPLICATE = "duplicate"  # the request arrives twice
    LATE = "late"  # create, end: the request times out and arrives `seconds` later
    NO_CAPACITY = "no-capacity"  # create, start: refused
    LATE_STOCKOUT = "late-stockout"  # create: accepted, then fails
    HALF_MADE = "half-made"  # create: host `rank` never comes up
    SLOW = "slow"  # create, start, stop, end: takes `seconds` longer
    IGNORED = "ignored"  # stop, start, end: answered well, nothing is done
    STUCK = "stuck"  # end: shown as ending, nothing is done until it is asked again
    STALE = "stale"  # get, list: shows what was so `seconds` ago
    EMPTY_PAGE = "empty-page"  # list: a page without items, more follow
    PARTIAL = "partial"  # list: a zone could not be asked
    HOST_LOST_BEFORE = "host-lost-before"  # the connection breaks, the host did nothing
    HOST_LOST_AFTER = "host-lost-after"  # the connection breaks, the host has done it
    HOST_FAILS = "host-fails"  # the command fails on the host


class Deed(StrEnum):
    """What can happen by itself."""

    PREEMPT = "preempt"
    MAINTENANCE = "maintenance"
    FAIL = "fail"  # the cloud gives up on the resource
    VANISH = "vanish"  # somebody else ends it
    FAIL_HOST = "fail-host"
    REBOOT_HOST = "reboot-host"
    SILENCE_HOST = "silence-host"  # for `seconds`
    IMPOSTOR_HOST = "impostor-host"
    HANG = "hang"  # its programs run on and make no more steps
    EXIT = "exit"  # its programs end now with `exit_code`
    CAPACITY = "capacity"  # the pool of (zone, accelerator, market) becomes `amount`


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of calls. It applies when the call's number is in `nth`, or by chance with `rate`.

    call: an operation such as "create", "get", "list", "end", "host.start", or "*". Calls are counted from 1 by
    operation. begin, end: seconds after the cloud's birth between which it applies. times: how often at most, 0 = no
    limit. rank: the host it is about, None = the last one.
    """

    call: str
    kind: FaultKind
    nth: tuple[int, ...] = ()
    rate: float = 0.0
    begin: float = 0.0
    end: float = float("inf")
    times: int = 0
    seconds: float = 30.0
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happens by itself. Exactly one of at, after_ready and step says when.

    at: seconds after the cloud's birth. after_ready: seconds after a resource whose name matches `name` became ready.
    step: when the program on host `rank` makes this step. rank: None = all hosts, or for one-host deeds host 0.
    times: how often at most, 0 = always. notice: seconds that the hosts know it before.
    """

    do: Deed
    at: float | None = None
    after_ready: float | None = None
    step: int | None = None
    name: str = ANY
    rank: int | None = None
    times: int = 1
    notice: float = 0.0
    seconds: float = 60.0
    exit_code: int = 1
    zone: str = ""
    accelerator: str = ANY
    market: str = ANY
    amount: int = 0


@dataclass(frozen=True, slots=True)
class Durations:
    """How long things take, in seconds. Each time between 1 - jitter and 1 + jitter of it, by the seed.

    detect: until the cloud notices a dead host. contact: what one command on hosts takes. queue: one move of a queued
    request.
    """

    create: float = 40.0
    end: float = 20.0
    stop: float = 20.0
    start: float = 30.0
    maintenance: float = 120.0
    reboot: float = 30.0
    detect: float = 60.0
    contact: float = 0.5
    queue: float = 5.0
    jitter: float = 0.2


@dataclass(frozen=True)
class Scenario:
    """The whole. spot_life: mean seconds until a spot resource is preempted, 0 = never by itself.

    lag: seconds for which a listing or a look may miss what is new or still show what has gone. honour_tokens: False
    shows whether a test would notice a second resource. read_only: a call that changes something is a failed test.
    speed: how many times faster than real time a rehearsal runs.
    """

    seed: int = 0
    speed: float = 1.0
    zones: tuple[Zone, ...] = (Zone("sim-a", "sim"), Zone("sim-b", "sim"), Zone(ANY, ""))
    pools: tuple[Pool, ...] = ()
    quotas: tuple[Quota, ...] = ()
    reservations: tuple[Held, ...] = ()
    faults: tuple[Fault, ...] = ()
    happenings: tuple[Happening, ...] = ()
    durations: Durations = field(default_factory=Durations)
    spot_life: float = 0.0
    notice: float = 30.0
    lag: float = 0.0
    page: int = 50
    honour_tokens: bool = True
    read_only: bool = False

    def region(self, zone: str) -> str:
        """The zone's region; "" when there is no such zone."""
        for known in self.zones:
            if known.name == zone:
                return known.region
        if zone and any(known.name == ANY for known in self.zones):
            letter = zone[-1:].isalpha() and zone[-2:-1].isdigit()  # us-east-1a is of us-east-1, us-west4-a of us-west4
            return zone[:-1] if letter else zone.rpartition("-")[0] or zone
        return ""

    @cached_property
    def faulty(self) -> frozenset[str]:
        """Operations that some fault is about."""
        return frozenset(fault.call for fault in self.faults)
