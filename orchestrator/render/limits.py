"""The limits that hold on a host without us: one script that installs a timer there. docs/limits.md tells its rules."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from orchestrator.errors import UserError
from orchestrator.remote.scripts import shell_source
from orchestrator.render.templates import fill

OnLimit: TypeAlias = Literal["stop", "end", "jobs"]
Watch: TypeAlias = Literal["machine", "jobs"]


@dataclass(frozen=True, slots=True)
class LimitsWanted:
    """Limits of one host. None: no such limit.

    max_hours: lifetime of the host, counted from `since`, else from its boot (watch "machine"), else from the first
    install. deadline: seconds since the epoch, may be moved later (render_renewal); the lifetime still holds.
    on_limit: "jobs" only ends the jobs; "stop" and "end" then run `stop_command`, bash text that stops or ends the
    machine. watch: whose activity counts against idle_minutes: "machine" (jobs, sessions, accelerators, load), or
    "jobs" alone, where several hosts share one machine or the machine is the user's own. Only with "machine" is
    anything installed in systemd or cron.
    grace_seconds: from TERM to KILL for each job. tick_seconds: between two looks. settle_seconds: after a boot, in
    which nothing is ended, so that whoever started the machine again can give it new limits.
    """

    max_hours: float | None = None
    idle_minutes: float | None = None
    on_limit: OnLimit = "jobs"
    stop_command: str = ""
    deadline: float | None = None
    since: float | None = None
    watch: Watch = "machine"
    grace_seconds: int = 60
    tick_seconds: int = 30
    settle_seconds: int = 600

    def __post_init__(self) -> None:
        for name, value in (("max_hours", self.max_hours), ("idle_minutes", self.idle_minutes)):
            if value is not None and not (math.isfinite(value) and 0 < value < 1_000_000):
                raise UserError(f"limits.{name} is {value}", "it has to be a number above 0", f"{name}: 12")
        if self.on_limit != "jobs" and not self.stop_command.strip():
            raise ValueError(f"on_limit {self.on_limit!r} needs a stop_command")
        if self.tick_seconds < 1 or self.grace_seconds < 0 or self.settle_seconds < 0:
            raise ValueError("seconds of the timer: tick at least 1, the others at least 0")
        for moment in (self.deadline, self.since):
            if moment is not None and not (math.isfinite(moment) and 0 < moment < 1e12):
                raise ValueError(f"{moment} is no moment in seconds since the epoch")

    @property
    def any(self) -> bool:
        return not (self.max_hours is None and self.idle_minutes is None and self.deadline is None)


def render_limits(wanted: LimitsWanted) -> str:
    """The bash script that makes `wanted` so on a host; without any limit, the one that takes all away.

    Safe to run again: the same limits go on as they are, other ones take their place. The lifetime goes on in both
    cases, unless `since` is given. Run it as itself (Hands.script), not inside a job: the timer outlives jobs.
    Raises UserError for text that no script can hold.
    """
    if not wanted.any:
        return fill("limits/remove.sh.j2")
    return fill(
        "limits/install.sh.j2",
        timer=render_timer(wanted),
        deadline=None if wanted.deadline is None else math.floor(wanted.deadline),
        since=None if wanted.since is None else math.floor(wanted.since),
        watch=wanted.watch,
        idle_minutes="" if wanted.idle_minutes is None else f"{wanted.idle_minutes:g}",
        max_hours="" if wanted.max_hours is None else f"{wanted.max_hours:g}",
    )


def render_timer(wanted: LimitsWanted) -> str:
    """The program that stays on the host. It knows everything but the deadline, which lies in a file."""
    return fill(
        "limits/timer.sh.j2",
        max_seconds=math.ceil((wanted.max_hours or 0) * 3600),
        idle_seconds=math.ceil((wanted.idle_minutes or 0) * 60),
        tick_seconds=wanted.tick_seconds,
        grace_seconds=wanted.grace_seconds,
        settle_seconds=wanted.settle_seconds,
        on_limit=wanted.on_limit,
        watch=wanted.watch,
        stop_command=wanted.stop_command,
        kill_script=shell_source("job-kill.sh"),
    )


def render_renewal(deadline: float) -> str:
    """The bash script that moves the deadline of a host that has limits (seconds since the epoch)."""
    return fill("limits/renew.sh.j2", deadline=math.floor(deadline))
