"""The state of hosts and their chips now, by the tools that the hosts have, in one command a host."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from orchestrator.hosts import ChipSample, HostJob, HostOutcome
from orchestrator.remote.chips import parse_chips, sort_sample_lines
from orchestrator.remote.fleet import Fleet, HostResult
from orchestrator.remote.jobs import check_job_name, parse_job_states
from orchestrator.remote.scripts import shell_command, shell_source

_SECONDS = 45.0  # for the tools of one host


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """One host.

    Attributes:
        outcome: Of the command on it; what follows is empty where it failed.
        load: Mean number of processes that ran or waited in the last minute.
        processors: Their number.
        memory: Bytes in use and in all.
        disk: The same of the file system of the home folder.
        job: The state of the job that was asked for.
    """

    outcome: HostOutcome
    load: float | None = None
    processors: int | None = None
    memory: tuple[int, int] | None = None
    disk: tuple[int, int] | None = None
    chips: tuple[ChipSample, ...] = ()
    job: HostJob | None = None


def sample_hosts(fleet: Fleet, job: str = "") -> tuple[HostSample, ...]:
    """Return the state of every host, with one command on each.

    Args:
        fleet: The hosts.
        job: Folder of the job whose progress is read; "" for none.
    """
    source = "\n".join(map(shell_source, ("host-sample.sh", "chip-sample.sh")))
    command = shlex.join(["/bin/sh", "-c", source, "orch"])
    if job:
        check_job_name(job)
        command += "; " + shell_command("job-status.sh", "", job)
    return tuple(_parse(result) for result in fleet.run(command, timeout=_SECONDS).hosts)


def _parse(result: HostResult) -> HostSample:
    if not result.outcome.ok:
        return HostSample(outcome=result.outcome)
    lines = sort_sample_lines(result.output.decode("utf-8", "replace"))
    load = _numbers(lines.get("load", [""])[0])
    return HostSample(
        outcome=result.outcome,
        load=load[0] if load else None,
        processors=int(load[1]) if len(load) > 1 else None,
        memory=_pair(lines.get("memory", [""])[0]),
        disk=_pair(lines.get("disk", [""])[0]),
        chips=parse_chips(lines),
        job=next((state for _, state in parse_job_states(result)), None),
    )


def _numbers(text: str) -> list[float]:
    found = [_number(word) for word in text.split()]
    return [one for one in found if one is not None] if None not in found else []


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,9})?", text) else None


def _pair(text: str) -> tuple[int, int] | None:
    found = _numbers(text)
    return (int(found[0]) * 1024, int(found[1]) * 1024) if len(found) == 2 else None
