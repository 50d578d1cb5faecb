"""The entry: `python -m trainer [COMMAND] key=value ...`; errors in one line, exit statuses of trainer.errors."""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from trainer.errors import Exit, TrainerError

_HEAVY = ("torch", "jax")


def main(words: Sequence[str]) -> int:
    """Run one command; returns its exit status (trainer.errors.Exit)."""
    return guarded(lambda: _run(words))


def guarded(action: Callable[[], int]) -> int:
    """The action's status, or what its error says and means."""
    try:
        return action()
    except TrainerError as error:
        _complain(error.code, str(error))
        return error.exit_status
    except KeyboardInterrupt:
        _complain("interrupted", "stopped from the keyboard; steps since the last checkpoint are lost")
        return Exit.INTERRUPTED
    except MemoryError:
        _complain("device", "out of memory: raise accumulate or lower batch")
        return Exit.DEVICE
    except BrokenPipeError:
        return _nobody_reads()
    except Exception as error:  # the last border: anything else is our fault and says so
        if "out of memory" in str(error):
            _complain("device", f"out of memory: raise accumulate or lower batch ({_first_line(error)})")
            return Exit.DEVICE
        _complain("failure", f"{type(error).__name__}: {_first_line(error)}; TRAINER_DEBUG=1 shows the trace")
        return Exit.FAILURE


def leave(status: int) -> None:
    """End the process now, without the destructors of libraries that compute.

    gloo's destructor aborts one run in ten at exit (seen with torch 2.13, November 2026), which would turn a good
    run into a failed one; JAX's waits for peers that may be gone.
    """
    if any(name in sys.modules for name in _HEAVY):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def _run(words: Sequence[str]) -> int:
    from trainer.commands import load, split

    if words and words[0] in ("--help", "-h", "help"):
        from trainer.help import text

        sys.stdout.write(text())
        return Exit.OK
    name, rest = split(words)
    if any(word in ("--help", "-h") for word in rest):
        from trainer.help import text, text_of

        sys.stdout.write(text() if name == "train" else text_of(name))
        return Exit.OK
    return load(name).run(rest)


def _complain(code: str, message: str) -> None:
    if os.environ.get("TRAINER_DEBUG") == "1":
        traceback.print_exc()
    sys.stderr.write(f"error[{code}]: {message}\n")


def _nobody_reads() -> int:
    # `python -m trainer keys | head`: nothing is wrong, and nothing more can be said there.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return Exit.FAILURE


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0]


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a locale without our marks is no reason to end a run
    leave(main(sys.argv[1:]))
