"""The stacks of a job's processes, from all hosts in parallel, to explain a hang."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.hosts import HostOutcome
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.jobs import check_job_name
from orchestrator.remote.scripts import shell_command

MAX_BYTES = 256 * 1024  # bytes of one host's answer


def collect_stacks(
    fleet: Fleet, job: str, *, ranks: Sequence[int] | None = None, timeout: float = 30.0
) -> tuple[dict[int, bytes], tuple[HostOutcome, ...]]:
    """Collect the stacks of a job without disturbing it, bounded in time and size.

    For every process of the job: py-spy's stacks where py-spy is installed, else those that the process offered to
    write itself (docs/limits.md), else the kernel's view of its threads.

    Args:
        fleet: the hosts.
        job: name of the job.
        ranks: the hosts to ask, None for all.
        timeout: seconds for each host; after two thirds of it only the kernel is read.

    Returns:
        Text by rank, and the outcomes of the hosts that failed.
    """
    check_job_name(job)
    command = shell_command("job-stacks.sh", job, str(max(1, int(timeout * 2 / 3))), str(MAX_BYTES))
    result = fleet.run(command, ranks=ranks, timeout=timeout, keep=MAX_BYTES + 4096)
    stacks = {host.outcome.rank: _after_greeting(host.output, job) for host in result.hosts if host.outcome.ok}
    return stacks, result.failed


def _after_greeting(output: bytes, job: str) -> bytes:
    """Remove our own first line and anything that a login shell printed before it."""
    mark = f"orch-stacks {job}\n".encode()
    return output.partition(mark)[2] if mark in output else output
