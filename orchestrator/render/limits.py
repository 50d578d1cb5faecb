"""The limits that a host enforces by itself: one script installs a timer there. docs/limits.md has the rules."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from orchestrator.errors import UserError
from orchestrator.remote.scripts import shell_source
from orchestrator.render.templates import render_template

WaitFor: TypeAlias = Literal["jobs_and_ssh", "jobs"]
OnLimit: TypeAlias = Literal["stop", "end", "jobs"]
Watch: TypeAlias = Literal["machine", "jobs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsSpec:
    """Limits of one host. None: no such limit.

    Attributes:
        max_hours: lifetime of the host, counted from `since`, else from its boot (watch "machine"), else from the
            first install.
        idle_minutes: time without activity.
        on_limit: "jobs" only ends the jobs; "stop" and "end" then run `stop_command`.
        stop_command: bash text that stops or ends the machine.
        idle_command: instead of `stop_command` when idle_minutes is reached; "" for the same.
        wait_for: "jobs" counts jobs of orch alone as activity; "jobs_and_ssh" also the rest that `watch` allows.
        deadline: epoch seconds, may be moved later (render_renewal); the lifetime still holds.
        since: epoch seconds from which max_hours counts.
        watch: whose activity counts against idle_minutes: "machine" (jobs, sessions, accelerators, load), or "jobs"
            alone, where several hosts share one machine or the machine is the user's own. Only with "machine" is
            anything installed in systemd or cron.
        grace_seconds: from TERM to KILL for each job.
        tick_seconds: between two checks.
        boot_grace_seconds: after a boot, in which nothing is ended, so that a restarted machine can get new limits.
    """

    max_hours: float | None = None
    idle_minutes: float | None = None
    on_limit: OnLimit = "jobs"
    stop_command: str = ""
    idle_command: str = ""
    wait_for: WaitFor = "jobs_and_ssh"
    deadline: float | None = None
    since: float | None = None
    watch: Watch = "machine"
    grace_seconds: int = 60
    tick_seconds: int = 30
    boot_grace_seconds: int = 600

    def __post_init__(self) -> None:
        for name, value in (("max_hours", self.max_hours), ("idle_minutes", self.idle_minutes)):
            if value is not None and not (math.isfinite(value) and 0 < value < 1_000_000):
                raise UserError(f"limits.{name} is {value}", "it must be a number above 0", f"{name}: 12")
        if self.on_limit != "jobs" and not self.stop_command.strip():
            raise ValueError(f"on_limit {self.on_limit!r} needs a stop_command")
        if self.tick_seconds < 1 or self.grace_seconds < 0 or self.boot_grace_seconds < 0:
            raise ValueError("seconds of the timer: tick at least 1, the others at least 0")
        for moment in (self.deadline, self.since):
            if moment is not None and not (math.isfinite(moment) and 0 < moment < 1e12):
                raise ValueError(f"{moment} is not a time in seconds since the epoch")

    @property
    def any(self) -> bool:
        """Whether there is any limit."""
        return not (self.max_hours is None and self.idle_minutes is None and self.deadline is None)


def render_limits(limits: LimitsSpec) -> str:
    """Return the bash script that installs `limits` on a host; without any limit, the one that removes the timer.

    It may run again: equal limits stay, other ones replace them. The lifetime continues in both cases, unless `since`
    is given. Run it with HostOperations.run_script, not inside a job, since the timer outlives jobs.

    Raises:
        UserError: no script can hold a text.
    """
    if not limits.any:
        return render_template("limits/remove.sh.j2")
    return render_template(
        "limits/install.sh.j2",
        timer=render_timer(limits),
        deadline=None if limits.deadline is None else math.floor(limits.deadline),
        since=None if limits.since is None else math.floor(limits.since),
        watch=limits.watch,
        idle_minutes="" if limits.idle_minutes is None else f"{limits.idle_minutes:g}",
        max_hours="" if limits.max_hours is None else f"{limits.max_hours:g}",
    )


def render_timer(limits: LimitsSpec) -> str:
    """Return the program that stays on the host. It contains everything but the deadline, which is in a file."""
    return render_template(
        "limits/timer.sh.j2",
        max_seconds=math.ceil((limits.max_hours or 0) * 3600),
        idle_seconds=math.ceil((limits.idle_minutes or 0) * 60),
        tick_seconds=limits.tick_seconds,
        grace_seconds=limits.grace_seconds,
        boot_grace_seconds=limits.boot_grace_seconds,
        on_limit=limits.on_limit,
        watch=limits.watch,
        stop_command=limits.stop_command,
        idle_command=limits.idle_command,
        wait_for=limits.wait_for,
        kill_script=shell_source("job-kill.sh"),
    )


def render_renewal(seconds: float) -> str:
    """Return the bash script that moves the deadline of a host with limits to `seconds` from now, by its own time."""
    return render_template("limits/renew.sh.j2", seconds=max(0, math.floor(seconds)))
