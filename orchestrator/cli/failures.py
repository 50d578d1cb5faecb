"""How a failure leaves the program: lines on stderr, an exit status, and a log file when the fault is ours."""

from __future__ import annotations

import os
import sys
import time
import traceback
from pathlib import Path

import click

from orchestrator.cli.terminal import say
from orchestrator.errors import OrchError, UserError
from orchestrator.exits import Exit


def explain(error: BaseException, *, debug: bool) -> int:
    """Print what a person needs to know about `error` to stderr; the exit status to leave with."""
    if isinstance(error, click.exceptions.Abort | KeyboardInterrupt):
        _print(["interrupted"])
        return Exit.INTERRUPTED
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        _print([error.format_message()])
        return Exit.USAGE
    if isinstance(error, click.ClickException):
        error = from_click(error)
    if not isinstance(error, OrchError):
        return _our_fault(error, debug=debug)
    if debug:
        _print(_trace(error))
    _print(_detached(error) if error.exit_status == Exit.INTERRUPTED else error.lines())
    return error.exit_status


def from_click(error: click.ClickException) -> OrchError:
    """click's complaint about the arguments in our words."""
    message = error.format_message()
    next_step = ""
    if isinstance(error, click.UsageError) and error.ctx is not None:
        next_step = f"{error.ctx.command_path} --help"
    return UserError(message[:1].lower() + message[1:].rstrip("."), next_step=next_step)


def _detached(error: OrchError) -> list[str]:
    """The user left on purpose: no error, and how to come back."""
    return [error.what, *(f"  {line}" for line in error.next_step.splitlines())]


def _our_fault(error: BaseException, *, debug: bool) -> int:
    trace = _trace(error)
    if debug:
        _print(trace)
    words = str(error).strip().splitlines()
    why = f"{type(error).__name__}: {words[0]}" if words else type(error).__name__
    log = _keep(trace)
    lines = ["error[fault]: a fault in orch itself stopped this command", f"  why:  {why}"]
    if log is not None:
        lines.append(f"  log:  {log}")
    elif not debug:
        lines += trace  # there is no file to point to: better here than lost
    _print([*lines, "  next: orch status   (what is there; a repeated command goes on where this one ended)"])
    return Exit.FAILURE


def _keep(trace: list[str]) -> Path | None:
    """The trace in a file of its own. Neither arguments nor variables are written: they may hold secrets."""
    from orchestrator import __version__
    from orchestrator.paths import paths

    try:
        folder = paths().state / "crash"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
        head = [f"orch {__version__}", f"python {sys.version.split()[0]} on {sys.platform}"]
        path.write_text("\n".join([*head, *trace]) + "\n", encoding="utf-8")
    except OSError:
        return None
    return path


def _trace(error: BaseException) -> list[str]:
    return "".join(traceback.format_exception(error)).rstrip().splitlines()


def _print(lines: list[str]) -> None:
    try:
        say(*lines)
    except OSError:  # nobody reads stderr any more; the exit status still tells
        return
