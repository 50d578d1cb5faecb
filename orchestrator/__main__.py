"""`orch` and `python -m orchestrator`: one call, one exit status, no traceback by default."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.cli.command import Session

COMPLETE = "_ORCH_COMPLETE"  # set by the shell when it asks for completion
GC_THRESHOLD = 50_000  # allocations between collections: at Python's 700, imports alone cause hundreds of them
SIGPIPE_STATUS = 141  # what a shell shows for a program that wrote to a closed pipe


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line, without the name of the program, and return its exit status."""
    gc.set_threshold(GC_THRESHOLD)
    arguments = tuple(sys.argv[1:] if argv is None else argv)
    debug = os.environ.get("ORCH_DEBUG", "") not in {"", "0"}
    try:
        return _run_and_report(arguments, debug)
    except KeyboardInterrupt:  # so early that not even the command line was loaded
        return 130


def _run_and_report(arguments: tuple[str, ...], debug: bool) -> int:
    from orchestrator.cli.command import Session
    from orchestrator.cli.drawing.terminal import OutputClosed

    session = Session(arguments, debug)
    try:
        status = _run(session)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:  # the last border: everything else has been translated by now
        if isinstance(error, OutputClosed) or (isinstance(error, BrokenPipeError) and _stdout_is_closed()):
            _stop_writing()
            return SIGPIPE_STATUS
        from orchestrator.cli.failures import report_error

        return report_error(error, session)
    return status


def _run(session: Session) -> int:
    """Run the command; click's own main() would turn a closed pipe into exit 1 and print its own text for Ctrl-C."""
    import click

    from orchestrator.cli.app import app

    instruction = os.environ.get(COMPLETE)
    if instruction:
        from click.shell_completion import shell_complete

        return shell_complete(app, {}, "orch", COMPLETE, instruction)
    try:
        with app.make_context("orch", list(session.arguments), obj=session) as context:
            app.invoke(context)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    return 0


def _stdout_is_closed() -> bool:
    """Return whether stdout was closed by its reader: a broken pipe elsewhere is a failure like any other."""
    import select

    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), select.POLLOUT)
    except (OSError, ValueError):  # not a file at all
        return False
    return any(happened & (select.POLLERR | select.POLLHUP) for _, happened in poll.poll(0))


def _stop_writing() -> None:
    """Prevent a complaint of the interpreter about the closed pipe at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
