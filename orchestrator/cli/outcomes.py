"""How it ended, for people (stderr) and for programs (JSON)."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from orchestrator.cli.human import clock, columns, duration, iso, plural
from orchestrator.cli.terminal import Style, look_at, say
from orchestrator.errors import OrchError
from orchestrator.hosts import HostOutcome
from orchestrator.plan.ranks import host_words
from orchestrator.plan.steps import Done, GiveUp

if TYPE_CHECKING:
    from orchestrator.engine.ready import Ending
    from orchestrator.plan.observed import Ended

MOST_ROWS = 32  # failed hosts shown one by one; the rest is counted
LAST_LINE = 160  # characters of a host's last line


def tell(ending: Ending) -> None:
    """The closing words on stderr: one line when all is well, else a row per failed host and the error."""
    terminal = look_at(sys.stderr)
    step = ending.step
    if ending.attempts:
        say(*history(ending.attempts))
    if isinstance(step, Done) and step.status == 0:
        say(terminal.paint(step.message, Style.GREEN))
        return
    lines = table(ending.outcomes, terminal.width)
    if lines:
        head, *rest = lines
        say(terminal.paint(head, Style.BOLD), *rest)
    said = [step.message] if isinstance(step, Done) else in_words(step).lines()
    say(terminal.paint(said[0], Style.RED), *said[1:])


def history(attempts: tuple[Ended, ...]) -> list[str]:
    """A row per attempt that ended before the last one."""
    rows = [("ATTEMPT", "ENDED", "BY", "STEP", "WHY")]
    for past in attempts:
        step = "-" if past.step is None else str(past.step)
        rows.append((str(past.attempt), clock(past.at) if past.at else "-", str(past.cause), step, past.why))
    return columns(rows)


def table(outcomes: tuple[HostOutcome, ...], width: int | None = None) -> list[str]:
    """A row per failed host; hosts that ended alike and well share one row."""
    if not outcomes:
        return []
    failed = [outcome for outcome in outcomes if not outcome.ok]
    rows = [("HOST", "RANK", "RESULT", "TOOK", "LAST LINE")]
    rows += [_row(outcome) for outcome in failed[:MOST_ROWS]]
    lines = columns(rows, width) if failed else []
    if len(failed) > MOST_ROWS:
        kinds = Counter(outcome.verdict for outcome in failed[MOST_ROWS:])
        counted = ", ".join(f"{verdict}: {count:,}" for verdict, count in kinds.most_common())
        lines.append(f"and {plural(len(failed) - MOST_ROWS, 'more failed host')} ({counted})")
    fine = [outcome.rank for outcome in outcomes if outcome.ok]
    if fine:
        lines.append(f"{host_words(fine)}: exit 0")
    return lines


def _row(outcome: HostOutcome) -> tuple[str, str, str, str, str]:
    from orchestrator.plan.preview_words import one_line

    label = "head" if outcome.rank == 0 else f"worker{outcome.rank}"
    words = one_line(outcome.last_line or outcome.detail).strip()
    short = words if len(words) <= LAST_LINE else words[: LAST_LINE - 1] + "…"
    return (f"{label} ({outcome.host})", str(outcome.rank), outcome.verdict, duration(outcome.seconds), short)


def in_words(step: GiveUp) -> OrchError:
    """A GiveUp as the error it is worded as."""
    error = OrchError(step.what, step.why, step.next_step)
    error.code = step.code
    error.exit_status = int(step.status)
    return error


def as_json(cluster: str, verb: str, ending: Ending) -> dict[str, object]:
    """See data/ending.schema.json."""
    step = ending.step
    error = None
    if isinstance(step, GiveUp):
        error = {"code": step.code, "what": step.what, "why": step.why or None, "next": step.next_step or None}
    return {
        "version": 1,
        "kind": "ending",
        "verb": verb,
        "cluster": cluster,
        "status": ending.status,
        "message": step.message if isinstance(step, Done) else None,
        "error": error,
        "job": ending.job_id,
        "run_id": ending.run_id or None,
        "hosts": [_host_json(outcome) for outcome in ending.outcomes],
        "attempts": [_attempt_json(past) for past in ending.attempts],
    }


def _attempt_json(past: Ended) -> dict[str, object]:
    """One that ended before the last."""
    return {
        "attempt": past.attempt,
        "ended": iso(past.at) if past.at else None,
        "cause": str(past.cause),
        "why": past.why,
        "exit_code": past.exit_code,
        "rank": past.rank,
        "step": past.step,
    }


def _host_json(outcome: HostOutcome) -> dict[str, object]:
    return {
        "rank": outcome.rank,
        "host": outcome.host,
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        "failure": str(outcome.failure) if outcome.failure is not None else None,
        "seconds": round(outcome.seconds, 3),
        "attempts": outcome.attempts,
        "last_line": outcome.last_line,
        "detail": outcome.detail or None,
        "log": outcome.log or None,
    }
