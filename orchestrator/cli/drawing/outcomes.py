"""Report how a command ended, as text on stderr and as JSON."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from orchestrator.cli.drawing.tables import draw_table
from orchestrator.cli.drawing.terminal import Style, inspect_terminal, write_stderr
from orchestrator.formatting import align_columns, format_duration, format_local_time, format_utc
from orchestrator.hosts import HostOutcome
from orchestrator.messages import count_noun
from orchestrator.plan.ranks import format_hosts
from orchestrator.plan.steps import Done, GiveUp

if TYPE_CHECKING:
    from orchestrator.cli.drawing.terminal import Terminal
    from orchestrator.engine.preparation.prepared import CommandResult, MissingOutput
    from orchestrator.plan.observed import EndedAttempt

MOST_ROWS = 32  # failed hosts shown one by one; the rest is counted
LAST_LINE = 160  # characters of a host's last line


def print_ending(ending: CommandResult) -> None:
    """Print the result to stderr: one line for a success, else a row per failed host and the error."""
    terminal = inspect_terminal(sys.stderr)
    step = ending.step
    if ending.attempts:
        write_stderr(*attempt_table(ending.attempts))
    if isinstance(step, Done) and step.status == 0:
        write_stderr(terminal.paint(step.message, Style.GREEN))
        _print_missing_output(ending, terminal)
        return
    lines = failed_host_table(ending.outcomes, terminal.width)
    if lines:
        head, *rest = lines
        write_stderr(terminal.paint(head, Style.BOLD), *rest)
    said = [step.message] if isinstance(step, Done) else step.make_error().lines()
    write_stderr(terminal.paint(said[0], Style.RED), *said[1:])
    _print_missing_output(ending, terminal)


def _print_missing_output(ending: CommandResult, terminal: Terminal) -> None:
    if (missing := ending.missing_output) is not None:
        head = terminal.paint(f"error[missing-output]: {missing.what}", Style.RED)
        write_stderr(head, f"  why:  {missing.why}", f"  next: {missing.next_step}   shows all of it")


def attempt_table(attempts: tuple[EndedAttempt, ...]) -> list[str]:
    """Return a table with a row per attempt that ended before the last one."""
    rows = [("ATTEMPT", "ENDED", "BY", "STEP", "WHY")]
    for past in attempts:
        step = "-" if past.step is None else str(past.step)
        rows.append(
            (str(past.attempt), format_local_time(past.at) if past.at else "-", str(past.cause), step, past.why)
        )
    return draw_table(rows, sys.stderr)


def failed_host_table(outcomes: tuple[HostOutcome, ...], width: int | None = None) -> list[str]:
    """Return a table with a row per failed host; the hosts that succeeded share one row."""
    if not outcomes:
        return []
    failed = [outcome for outcome in outcomes if not outcome.ok]
    rows = [("HOST", "RANK", "RESULT", "TOOK", "LAST LINE")]
    rows += [_row(outcome) for outcome in failed[:MOST_ROWS]]
    lines = align_columns(rows, width) if failed else []
    if len(failed) > MOST_ROWS:
        kinds = Counter(outcome.verdict for outcome in failed[MOST_ROWS:])
        counted = ", ".join(f"{verdict}: {count:,}" for verdict, count in kinds.most_common())
        lines.append(f"and {count_noun(len(failed) - MOST_ROWS, 'more failed host')} ({counted})")
    fine = [outcome.rank for outcome in outcomes if outcome.ok]
    if fine:
        lines.append(f"{format_hosts(fine)}: exit 0")
    return lines


def _row(outcome: HostOutcome) -> tuple[str, str, str, str, str]:
    from orchestrator.plan.preview_format import to_one_line

    label = "head" if outcome.rank == 0 else f"worker{outcome.rank}"
    text = to_one_line(outcome.last_line or outcome.detail).strip()
    short = text if len(text) <= LAST_LINE else text[: LAST_LINE - 1] + "…"
    return (f"{label} ({outcome.host})", str(outcome.rank), outcome.verdict, format_duration(outcome.seconds), short)


def ending_as_json(cluster: str, verb: str, ending: CommandResult) -> dict[str, object]:
    """Return the result as in data/ending.schema.json."""
    step = ending.step
    error = None
    if isinstance(step, GiveUp):
        error = {"code": step.code, "what": step.what, "why": step.why or None, **step.next_step.as_json()}
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
        "missing_output": _missing_output_json(ending.missing_output),
    }


def _missing_output_json(missing: MissingOutput | None) -> dict[str, object] | None:
    if missing is None:
        return None
    return {"ranks": list(missing.ranks), "why": missing.why, "next": missing.next_step}


def _attempt_json(past: EndedAttempt) -> dict[str, object]:
    """Return an attempt that ended before the last one."""
    return {
        "attempt": past.attempt,
        "ended": format_utc(past.at) if past.at else None,
        "cause": past.cause.value,
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
        "ended_by": str(outcome.ended_by) if outcome.ended_by is not None else None,
        "seconds": round(outcome.seconds, 3),
        "attempts": outcome.attempts,
        "last_line": outcome.last_line,
        "detail": outcome.detail or None,
        "log": outcome.log or None,
    }
