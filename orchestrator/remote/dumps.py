"""Where the processes of a job stand: the stacks of a program that does not move, from every host at once."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.hosts import HostOutcome
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.jobs import check_name
from orchestrator.remote.scripts import shell_command

LARGEST = 256 * 1024  # bytes of one host's answer


def collect(
    fleet: Fleet, job: str, *, ranks: Sequence[int] | None = None, timeout: float = 30.0
) -> tuple[dict[int, bytes], tuple[HostOutcome, ...]]:
    """Rank -> text for a person; and the hosts that could not answer. Bounded in time and size; the job goes on.

    For every process of the job: py-spy's stacks where py-spy is installed, else those that the process offered to
    write itself (docs/limits.md), else what the kernel tells of its threads. timeout: seconds for each host; after
    two thirds of it only the kernel is asked.
    """
    check_name(job)
    command = shell_command("job-stacks.sh", job, str(max(1, int(timeout * 2 / 3))), str(LARGEST))
    result = fleet.run(command, ranks=ranks, timeout=timeout, keep=LARGEST + 4096)
    told = {host.outcome.rank: _after_greeting(host.output, job) for host in result.hosts if host.outcome.ok}
    return told, result.failed


def _after_greeting(output: bytes, job: str) -> bytes:
    """Without our own first line, and without what a login shell may have printed before it."""
    mark = f"orch-stacks {job}\n".encode()
    return output.partition(mark)[2] if mark in output else output
