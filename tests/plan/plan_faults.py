"""What can go wrong in the simulation of plan_simulation.py, and the machines it goes wrong on."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from orchestrator.hosts import EndedBy, JobPhase
from orchestrator.slices import SliceState

PROGRAM = 50.0  # seconds the program takes when nothing happens to it
BEAT = 1.0  # seconds one step of it takes
CODES = (0, 1, 3, 75, 137, 42)


class Fault(StrEnum):
    NONE = "none"
    CRASH_BEFORE = "crash before the action"
    CRASH_RECORDED = "crash after the intent is written, before the call"
    CRASH_CALLED = "crash after the call, before its result is written"
    CRASH_AFTER = "crash after the action"
    AWAY = "crash, and no command for an hour"
    NO_CAPACITY = "the create is refused"
    FULL = "no create is accepted for a while"
    NO_ACCESS = "the create is forbidden"
    CALL_LOST = "the call times out and did not act"
    ANSWER_LOST = "the call times out and acted"
    IGNORED = "a call, not a create, is answered well and does nothing"
    PREEMPTED = "the provider takes the slice"
    NOTICE = "the program saves and goes, and a moment later the provider takes the slice"
    FAILED = "the provider gives up on the slice"
    ENDED_ELSEWHERE = "the slice is ended outside orch"
    STOPPED = "the slice is stopped outside orch"
    STALE = "the provider shows old states for a while"
    UNCLEAR = "the provider cannot be queried for a while"
    FOREIGN = "the command is run with credentials of another account"
    OFFLINE = "our own network is down for a while: neither provider nor hosts answer"
    SLOW = "what the slice is at takes a minute longer"
    SILENT = "a host does not answer for a while"
    ALL_SILENT = "no host answers for a while, and the provider calls them ready"
    DEAD = "a host never answers again"
    REBOOT = "a host restarts"
    IMPOSTOR = "a host shows another key"
    STEP_FAILS = "a copy or a script fails on a host"
    STEP_LOST = "a connection breaks during a step"
    PROGRAM_ENDS = "the program ends on a host"
    HUNG_ALIKE = "the program does not move any more, all ranks at the same step"
    HUNG_APART = "the program does not move any more, one rank a step before the others"
    UNKILLABLE = "a process hangs in a driver and cannot be killed"
    DOWN_REQUESTED = "`down` is requested"
    CANCELLED = "cancel is requested"


CRASHES = frozenset({Fault.CRASH_BEFORE, Fault.CRASH_RECORDED, Fault.CRASH_CALLED, Fault.CRASH_AFTER, Fault.AWAY})
# What a loss may be charged for.
LOSSES = frozenset(
    {
        Fault.PREEMPTED, Fault.NOTICE, Fault.FAILED, Fault.ENDED_ELSEWHERE, Fault.STOPPED, Fault.SILENT,
        Fault.ALL_SILENT, Fault.DEAD, Fault.REBOOT, Fault.STEP_LOST, Fault.PROGRAM_ENDS, Fault.HUNG_ALIKE,
        Fault.HUNG_APART, Fault.UNKILLABLE,
    }
)  # fmt: skip
# What may look like one when it lasts.
DELAYS = frozenset({Fault.SLOW, Fault.STALE, Fault.UNCLEAR, Fault.OFFLINE, Fault.AWAY})


@dataclass(frozen=True)
class Mishap:
    """One fault. number: which host, which exit code, how long. late: after the observation, before the action."""

    fault: Fault = Fault.NONE
    number: int = 0
    late: bool = False


@dataclass
class Program:
    """One program on one host. ends: when, with which code (None: killed hard). hung: since when it does not move."""

    began: float
    ends: float
    code: int | None = 0
    hung: float | None = None
    behind: int = 0  # steps by which it stopped before the others
    ended_by: EndedBy | None = None

    def phase(self, now: float) -> JobPhase:
        if self.code is None:
            return JobPhase.LOST
        return JobPhase.RUNNING if now < self.ends else JobPhase.FINISHED

    def step(self, now: float) -> int:
        return max(0, int((min(now, self.hung or now, self.ends) - self.began) / BEAT) - self.behind)

    def beat_age(self, now: float) -> float:
        return max(0.0, now - self.hung) if self.hung is not None else 0.0

    def hang(self, now: float, behind: int) -> None:
        if self.phase(now) is JobPhase.RUNNING and self.hung is None:
            self.hung, self.behind, self.ends = now, behind, inf

    def end(self, now: float, code: int | None) -> None:
        if self.phase(now) is JobPhase.RUNNING:
            self.ends, self.code = now, code


@dataclass
class RealHost:
    contact_from: float = 0.0  # it answers from this time on
    impostor: bool = False
    unkillable: bool = False
    saves: bool = False  # its programs handle TERM
    trees: dict[str, str] = field(default_factory=dict)
    setup: str = ""
    jobs: dict[str, Program] = field(default_factory=dict)  # by folder

    def running(self, now: float) -> set[str]:
        return {folder for folder, job in self.jobs.items() if job.phase(now) is JobPhase.RUNNING}

    def power_off(self, now: float) -> None:
        self.unkillable = False
        for job in self.jobs.values():
            job.end(now, None)

    def stop(self, folder: str, now: float, ended_by: EndedBy) -> bool:
        """TERM, KILL; why is kept before. False when it lives on all the same. One that saves on TERM returns 0."""
        job = self.jobs.get(folder)
        if job is None or job.phase(now) is not JobPhase.RUNNING:
            return True
        job.ended_by = job.ended_by or ended_by
        if self.unkillable:
            job.hang(now, 0)
            return False
        job.end(now, 0 if self.saves else 143)
        return True


@dataclass
class RealSlice:
    """state: until `turns`, then `into`. owned: the user's machines, which live on. born: when it was made."""

    name: str
    token: str
    hosts: list[RealHost]
    state: SliceState = SliceState.CREATING
    into: SliceState | None = SliceState.READY
    turns: float = 0.0
    owned: bool = False
    born: float = 0.0
    preempted_at: float | None = None  # the provider will take it then
    timed_out: float | None = None  # when its timer ended its programs; the machines follow
    block: bool = False  # the provider takes it at the end of its capacity block
