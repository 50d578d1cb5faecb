"""Programs that were ended from outside: by orch, by the limits timer of their hosts, or by a signal from elsewhere.

What ended a program goes before its exit status: one that saves on TERM may return 0, which is no success. So does a
bucket that cannot be used, which the program itself reports in its heartbeat: under torchrun it returns 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from orchestrator.exits import Exit
from orchestrator.hosts import EndedBy
from orchestrator.next_step import NextStep
from orchestrator.plan.limits import LIMIT_CODE
from orchestrator.plan.observed import Outcome
from orchestrator.plan.ranks import format_hosts, label_rank

HIGHEST_SIGNAL = 64  # on Linux (signal(7)); a higher status, such as 255, is the program's own
SIGNAL_CODE = "signal"  # code of a job that a signal ended which orch did not send
# Statuses of signals that people and other programs send (128 + n, signal(7)). A program that handles TERM and returns
# 0 cannot be distinguished from one that ended by itself.
FROM_ELSEWHERE = {143: "TERM", 137: "KILL"}
_TEXTS = {
    EndedBy.LIMIT: "a limit of time or money ended it",
    EndedBy.CANCEL: "a cancel ended it",
    EndedBy.DOWN: "it was ended as its cluster was taken down",
    EndedBy.TAKEN_OVER: "it was ended as another computer has taken the run over",
    EndedBy.RESTART: "orch ended it for a restart that did not follow",
    EndedBy.UNKNOWN: "orch ended it, and its host has not kept why",
}


class EndedRank(Protocol):
    """The program of one host, as it is observed, reported or listed."""

    @property
    def rank(self) -> int:
        """Its host."""
        ...

    @property
    def ended_by(self) -> EndedBy | None:
        """Why orch, or the host's limits timer, ended it; None where it did not."""
        ...


def make_stopped_outcome(subject: str, ranks: Iterable[EndedRank], next_step: NextStep) -> Outcome | None:
    """Return the result of a program that was ended from outside on some rank; None where it was not.

    Args:
        subject: Its name in the message, such as "job 3".
        ranks: All its ranks.
        next_step: What the user can do.
    """
    by_reason: dict[EndedBy, list[int]] = {}
    for one in ranks:
        if one.ended_by is not None:
            by_reason.setdefault(one.ended_by, []).append(one.rank)
    if not by_reason:
        return None
    reason = next(one for one in EndedBy if one in by_reason)  # a limit goes before a cancel
    limited = reason is EndedBy.LIMIT
    return Outcome(
        status=Exit.TIMEOUT if limited else Exit.INTERRUPTED,
        code=LIMIT_CODE if limited else "cancelled",
        what=f"{subject} did not end by itself on {format_hosts(by_reason[reason])}: {_TEXTS[reason]}",
        next_step=next_step,
    )


class FailedRank(Protocol):
    """The program of one host that failed."""

    @property
    def rank(self) -> int:
        """Its host."""
        ...

    @property
    def last_line(self) -> str:
        """What it printed about the failure."""
        ...


def make_bucketless_outcome(job_id: int, failed: FailedRank, next_step: NextStep) -> Outcome:
    """Return the result of a program that cannot use its bucket, and would end in the same way when started again."""
    where = f"{label_rank(failed.rank)} (rank {failed.rank})"
    return Outcome(
        status=Exit.NO_STORAGE,
        code="no-storage",
        what=f"job {job_id} cannot use its bucket on {where}, and is not restarted",
        why=failed.last_line,
        next_step=next_step,
    )


def describe_failed_rank(job_id: int, rank: int, code: int) -> str:
    """Return how a job ended on the host that is to blame."""
    where = f"{label_rank(rank)} (rank {rank})"
    if signal := FROM_ELSEWHERE.get(code):
        return f"job {job_id} was ended on {where} by {signal}, which orch did not send"
    return f"job {job_id} failed on {where}: {describe_exit(code)}"


def describe_exit(code: int) -> str:
    """Return `exit 3`, or `signal 11` for the status with which a shell reports a signal."""
    return f"signal {code - 128}" if 128 < code <= 128 + HIGHEST_SIGNAL else f"exit {code}"
