"""When a job ended: by what its hosts measured, whoever watched it, and whatever clocks are set to. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.clock import SKEW_SECONDS

# Two computers that drive one job may each be off by a minute before they notice it. A host that reports more is wrong.
MOST_AHEAD = 2 * SKEW_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRun:
    """For how long the hosts have run the newest attempt of a job.

    Attributes:
        seconds: The longest time of a host, by its own uptime.
        ended: Whether the program has ended on all hosts.
    """

    seconds: float
    ended: bool


def find_end(*, created: float, started: float | None, at: float, run: HostRun | None) -> float:
    """Return when a job ended, in epoch seconds; never before it was opened or its newest attempt was started.

    A program that ended unwatched ended when its hosts say so, and not when that was observed.

    Args:
        created: When the job was opened, by the clock of whoever did.
        started: When its newest attempt was started; None for none.
        at: When the end was observed, by a clock that may be another one.
        run: What the hosts measured; None where no host reported it.
    """
    begin = max(created, started if started is not None else created)
    if run is None or started is None:
        return max(at, begin)
    measured = begin + max(run.seconds, 0.0)
    if run.ended:
        return min(measured, max(at, begin) + MOST_AHEAD)
    return max(at, min(measured, max(at, begin) + MOST_AHEAD))
