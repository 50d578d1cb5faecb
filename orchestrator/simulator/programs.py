"""Programs on simulated hosts: their ends, exit statuses and logs, all as functions of the time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from orchestrator.hosts import JobPhase
from orchestrator.simulator.state import Host, Job

LINES = 200  # a log has about so many lines, however long the program runs
_ATTEMPT = re.compile(r"-a(\d+)(?:-|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Behaviour of a job.

    A job's attempt is the number after "-a" in its name, else 1.

    Attributes:
        seconds: Run time; None means until it is stopped.
        step_seconds: Seconds for one step of its counter.
        exit_code: Exit status where no entry of `exits` matches.
        exits: Exit status by "ATTEMPT/RANK", where either may be "*".
        ends: Run time in seconds by "ATTEMPT/RANK".
        last_words: Last line of its log.
    """

    seconds: float | None = 50.0
    step_seconds: float = 1.0
    exit_code: int = 0
    exits: Mapping[str, int] = field(default_factory=dict[str, int])
    ends: Mapping[str, float] = field(default_factory=dict[str, float])
    last_words: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def job(self, name: str, rank: int, now: float) -> Job:
        """Return the job that this program becomes on one host."""
        attempt = attempt_of(name)
        code = _fitting(self.exits, attempt, rank)
        seconds = _fitting(self.ends, attempt, rank)
        runs = self.seconds if seconds is None else seconds
        planned = 0 if runs is None or self.step_seconds <= 0 else int(runs / self.step_seconds)
        return Job(
            began=now,
            ends=None if runs is None else now + runs,
            exit_code=self.exit_code if code is None else int(code),
            step_seconds=self.step_seconds,
            last_words=self.last_words,
            log_every=max(1, planned // LINES),
        )


SETUP = Program(seconds=5.0)


def attempt_of(name: str) -> int:
    found = _ATTEMPT.search(name)
    return int(found[1]) if found else 1


def choose(known: list[tuple[str, dict[str, Any]]], name: str) -> Program:
    """Return the first program whose pattern matches the job's name, else the default for setup jobs or others."""
    for pattern, fields in known:
        if fnmatchcase(name, pattern):
            return Program(**fields)
    return SETUP if "setup" in name else Program()


def phase(job: Job, now: float) -> JobPhase:
    if job.lost:
        return JobPhase.LOST
    return JobPhase.RUNNING if is_running(job, now) else JobPhase.FINISHED


def is_running(job: Job, now: float) -> bool:
    return not job.lost and (job.ends is None or now < job.ends)


def steps(job: Job, now: float) -> int:
    """Return the number of completed steps."""
    until = min(time for time in (now, job.ends, job.froze) if time is not None)
    return int((until - job.began) / job.step_seconds + 1e-9) if job.step_seconds > 0 else 0


def beat_age(job: Job, now: float) -> float:
    """Return the seconds since its last step, or since its start."""
    return max(0.0, now - (job.began + steps(job, now) * job.step_seconds))


def stop(job: Job, now: float, code: int) -> None:
    """End the job now with this exit status, if it runs."""
    if is_running(job, now):
        job.ends, job.exit_code = now, code


def lose(host: Host, now: float) -> None:
    """End the running jobs of a host that lost its power; they leave no exit status."""
    for job in host.jobs.values():
        if is_running(job, now):
            job.lost, job.ends = True, now


def freeze(host: Host, now: float) -> None:
    """Let the running jobs continue for ever without further steps."""
    for job in host.jobs.values():
        if is_running(job, now):
            job.ends, job.froze = None, now


def log(job: Job, rank: int, now: float) -> bytes:
    """Return all output until now; it only grows."""
    numbers = range(job.log_every, steps(job, now) + 1, job.log_every)[: 5 * LINES]
    lines = [f"rank {rank} begins", *(f"step {number}" for number in numbers)]
    if not is_running(job, now) and not job.lost and job.last_words:
        lines.append(job.last_words)
    return "".join(f"{line}\n" for line in lines).encode()


def next_end(host: Host, now: float) -> float | None:
    """Return when the next of the host's programs ends by itself."""
    ends = [job.ends for job in host.jobs.values() if job.ends is not None and is_running(job, now)]
    return min(ends, default=None)


def _fitting(table: Mapping[str, Any], attempt: int, rank: int) -> Any:
    for key in (f"{attempt}/{rank}", f"{attempt}/*", f"*/{rank}", "*/*"):
        if key in table:
            return table[key]
    return None
