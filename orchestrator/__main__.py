"""`orch` and `python -m orchestrator`: one call, one exit status, never a trace by default."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.cli.command import Session

COMPLETE = "_ORCH_COMPLETE"  # set by the shell when it asks for completion
SIGPIPE_STATUS = 141  # what a shell shows for a program that wrote to a closed pipe


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; the exit status to leave with. argv: without the program's name."""
    words = tuple(sys.argv[1:] if argv is None else argv)
    debug = os.environ.get("ORCH_DEBUG", "") not in {"", "0"}
    try:
        return _explained(words, debug)
    except KeyboardInterrupt:  # so early that not even the command line was loaded
        return 130


def _explained(words: tuple[str, ...], debug: bool) -> int:
    from orchestrator.cli.command import Session
    from orchestrator.cli.terminal import ReaderLeft

    session = Session(words, debug)
    try:
        status = _run(session)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:  # the last border: everything else has become words by now
        if isinstance(error, ReaderLeft) or (isinstance(error, BrokenPipeError) and _stdout_is_closed()):
            _stop_writing()
            return SIGPIPE_STATUS
        from orchestrator.cli.failures import explain

        return explain(error, debug=session.debug)
    return status


def _run(session: Session) -> int:
    """Not click's own main(): that one turns a closed pipe into exit 1, and Ctrl-C into words of its own."""
    import click

    from orchestrator.cli.app import app

    instruction = os.environ.get(COMPLETE)
    if instruction:
        from click.shell_completion import shell_complete

        return shell_complete(app, {}, "orch", COMPLETE, instruction)
    try:
        with app.make_context("orch", list(session.words), obj=session) as context:
            app.invoke(context)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    return 0


def _stdout_is_closed() -> bool:
    """Whether the reader of stdout is gone: a broken pipe elsewhere is a failure like any other."""
    import select

    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), select.POLLOUT)
    except (OSError, ValueError):  # not a file at all
        return False
    return any(happened & (select.POLLERR | select.POLLHUP) for _, happened in poll.poll(0))


def _stop_writing() -> None:
    """Keep the interpreter from complaining about the closed pipe when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
