"""The entry point: `python -m trainer [COMMAND] key=value ...`.

Errors are printed as one line; exit statuses are those of trainer.errors.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from trainer.errors import Exit, TrainerError

_HEAVY = ("torch", "jax")


def main(words: Sequence[str]) -> int:
    """Run one command and return its exit status (trainer.errors.Exit)."""
    return run_and_report_errors(lambda: _run(words))


def run_and_report_errors(action: Callable[[], int]) -> int:
    """Run an action; on an error, print one line and return the exit status of that error."""
    try:
        return action()
    except TrainerError as error:
        _report_error(error.code, str(error))
        return error.exit_status
    except KeyboardInterrupt:
        _report_error("interrupted", "stopped from the keyboard; steps since the last checkpoint are lost")
        return Exit.INTERRUPTED
    except MemoryError:
        _report_error("device", "out of memory: raise accumulate or lower batch")
        return Exit.DEVICE
    except BrokenPipeError:
        return _discard_further_output()
    except Exception as error:  # the outermost handler: anything else is a fault of this program
        if "out of memory" in str(error):
            _report_error("device", f"out of memory: raise accumulate or lower batch ({_first_line(error)})")
            return Exit.DEVICE
        _report_error("failure", f"{type(error).__name__}: {_first_line(error)}; TRAINER_DEBUG=1 shows the traceback")
        return Exit.FAILURE


def exit_process(status: int) -> None:
    """End the process now, without the destructors of numerical libraries.

    gloo's destructor aborts one run in ten at exit (seen with torch 2.13, November 2026), which would turn a successful
    run into a failed one; JAX's waits for peers that may have exited.
    """
    if any(name in sys.modules for name in _HEAVY):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def _run(words: Sequence[str]) -> int:
    from trainer.commands import load_command, split_command

    if words and words[0] in ("--help", "-h", "help"):
        from trainer.help import format_help, format_topic_help

        topics = [word for word in words if word not in ("--help", "-h", "help")]
        sys.stdout.write("\n".join(map(format_topic_help, topics)) if topics else format_help())
        return Exit.OK
    name, rest = split_command(words)
    if any(word in ("--help", "-h") for word in rest):
        from trainer.help import format_command_help, format_help

        sys.stdout.write(format_help() if name == "train" else format_command_help(name))
        return Exit.OK
    return load_command(name).run(rest)


def _report_error(code: str, message: str) -> None:
    if os.environ.get("TRAINER_DEBUG") == "1":
        traceback.print_exc()
    sys.stderr.write(f"error[{code}]: {message}\n")


def _discard_further_output() -> int:
    # `python -m trainer keys | head`: this is no error, and standard output is closed.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return Exit.FAILURE


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0]


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a locale without our symbols must not end a run
    exit_process(main(sys.argv[1:]))
