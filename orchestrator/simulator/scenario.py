"""Scenarios: the resources of a simulated cloud and its faults, as frozen values.

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
    """Zone of a region.

    Attributes:
        name: "*" stands for every unnamed zone, each in the region that its name begins with.
    """

    name: str
    region: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Machines of one kind in a zone; a zone without any pool has unlimited machines of all kinds.

    Attributes:
        accelerator: "*" means all accelerators together.
        market: "*" means all markets together.
        unit: "hosts" or "chips".
    """

    zone: str
    accelerator: str
    amount: int
    market: str = ANY
    unit: str = "hosts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Limit of the account in a region; the fields are those of Pool."""

    region: str
    accelerator: str
    amount: int
    market: str = ANY
    unit: str = "hosts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Reservation: machines that only a create with the market "reservation:NAME" may use."""

    name: str
    zone: str
    accelerator: str
    amount: int
    unit: str = "hosts"


class FaultKind(StrEnum):
    """Faults of one call; those of hosts begin with "host-"."""

    THROTTLED = "throttled"  # 429, did not act
    INTERNAL = "internal"  # 500, did not act
    UNAVAILABLE = "unavailable"  # 503, did not act
    DENIED = "denied"  # 403, did not act
    ANSWER = "answer"  # the vendor's answer of the name `answer`, did not act; for the fronts
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
    """Events that can happen without a call."""

    PREEMPT = "preempt"
    MAINTENANCE = "maintenance"
    FAIL = "fail"  # the cloud gives up on the resource
    VANISH = "vanish"  # another owner ends it
    FAIL_HOST = "fail-host"
    REBOOT_HOST = "reboot-host"
    SILENCE_HOST = "silence-host"  # for `seconds`
    IMPOSTOR_HOST = "impostor-host"
    HANG = "hang"  # its programs run on and make no more steps
    EXIT = "exit"  # its programs end now with `exit_code`
    CAPACITY = "capacity"  # the pool of (zone, accelerator, market) becomes `amount`


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Fault of calls, which applies when the call's number is in `nth`, or with probability `rate`.

    Attributes:
        call: Operation such as "create", "get", "list", "end", "host.start", or "*".
        nth: Numbers of calls, counted from 1 by operation.
        begin: Seconds after the cloud's creation from which it applies.
        end: Seconds after the cloud's creation until which it applies.
        times: Maximum number of times; 0 means no limit.
        rank: Host that it affects; None means the last one.
        answer: Id of a vendor's answer (tests/fronts/orch_fronts/answers).
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
    answer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """Event that happens without a call, at the time of exactly one of at, after_ready and step.

    Attributes:
        at: Seconds after the cloud's creation.
        after_ready: Seconds after a resource whose name matches `name` became ready.
        step: Step of the program on host `rank`.
        rank: None means all hosts, or host 0 for an event of one host.
        times: Maximum number of times; 0 means always.
        notice: Seconds of notice that the hosts get.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """Durations in seconds, each scaled by a seeded factor between 1 - jitter and 1 + jitter.

    Attributes:
        detect: Until the cloud notices a dead host.
        contact: One command on hosts.
        queue: One change of phase of a queued request.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """Boot of hosts whose image starts sshd before our start-up script has run.

    Attributes:
        delay: Seconds until the start-up script runs on host 0; 0 means that hosts have our key from the beginning.
        stagger: Seconds by which each further host is later.
    """

    delay: float = 0.0
    stagger: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Complete scenario of a simulated cloud.

    Attributes:
        speed: Factor by which a rehearsal runs faster than real time.
        spot_life: Mean seconds until a spot resource is preempted; 0 means never without an event.
        lag: Seconds for which a read may miss a new resource or still show a deleted one.
        honour_tokens: False shows whether a test would notice a second resource.
        read_only: Whether a mutating call fails the test.
        account: Number of the account, where the cloud has accounts.
        new_account: Whether the vendor's quotas of a new account or project hold.
        creates_per_minute: Limit of create requests; 0 means none.
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
    boot: Boot = field(default_factory=Boot)
    spot_life: float = 0.0
    notice: float = 30.0
    lag: float = 0.0
    page: int = 50
    honour_tokens: bool = True
    read_only: bool = False
    account: str = "123456789012"
    new_account: bool = False
    creates_per_minute: int = 0

    def region(self, zone: str) -> str:
        """Return the zone's region, or "" when there is no such zone."""
        for known in self.zones:
            if known.name == zone:
                return known.region
        if zone and any(known.name == ANY for known in self.zones):
            letter = zone[-1:].isalpha() and zone[-2:-1].isdigit()  # us-east-1a is of us-east-1, us-west4-a of us-west4
            return zone[:-1] if letter else zone.rpartition("-")[0] or zone
        return ""

    @cached_property
    def faulty(self) -> frozenset[str]:
        """Return the operations that have a fault."""
        return frozenset(fault.call for fault in self.faults)
