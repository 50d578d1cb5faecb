"""The entry: `python -m trainer key=value ...`, `devices`, `check`, `--help`; errors in one line, exit statuses."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainer.errors import Exit, TrainerError

if TYPE_CHECKING:
    from trainer.environment import Run, World


def main(words: Sequence[str]) -> int:
    """Run one command; returns its exit status (trainer.errors.Exit)."""
    try:
        return _run(words)
    except TrainerError as error:
        _complain(error.code, str(error))
        return error.exit_status
    except KeyboardInterrupt:
        _complain("interrupted", "stopped from the keyboard; steps since the last checkpoint are lost")
        return Exit.INTERRUPTED
    except MemoryError:
        _complain("device", "out of memory: raise accumulate or lower batch")
        return Exit.DEVICE
    except Exception as error:  # the last border: anything else is our fault and says so
        if "out of memory" in str(error):
            _complain("device", f"out of memory: raise accumulate or lower batch ({_first_line(error)})")
            return Exit.DEVICE
        _complain("failure", f"{type(error).__name__}: {_first_line(error)}; TRAINER_DEBUG=1 shows the trace")
        return Exit.FAILURE


def _run(words: Sequence[str]) -> int:
    if any(word in ("--help", "-h", "help") for word in words):
        from trainer.help import text

        sys.stdout.write(text())
        return Exit.OK
    if words and words[0] == "devices":
        from trainer.accelerators.discovery import discover

        sys.stdout.write(json.dumps([device.as_json() for device in discover()], indent=2) + "\n")
        return Exit.OK
    from trainer.options import parse

    if words and words[0] == "check":
        config = parse(words[1:])
        from trainer.check import check

        sys.stdout.write(check(config) + "\n")
        return Exit.OK
    config = parse(words)
    from trainer.environment import read_run, read_world

    run, world = read_run(os.environ), read_world(os.environ)
    config.rows_per_micro_batch(world.size)
    from trainer.stacks import offer_stacks

    offer_stacks(os.environ, world.rank)
    _say_that_it_starts(run, world)
    from trainer.loop import train

    return train(config, run, world)


def _say_that_it_starts(run: Run, world: World) -> None:
    # Until the first step is done: loading libraries, meeting the others, restoring, compiling. Without a step, so that
    # nobody takes a long start for steps that no longer come.
    from trainer.console import Console
    from trainer.heartbeat import Heartbeat

    Heartbeat(run.heartbeat_file, world, Console(world)).beat(None, "starting")


def _complain(code: str, message: str) -> None:
    if os.environ.get("TRAINER_DEBUG") == "1":
        traceback.print_exc()
    sys.stderr.write(f"error[{code}]: {message}\n")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0]


def _leave(status: int) -> None:
    # Once torch is loaded, see trainer.distributed.leave for why the process ends without ceremony.
    distributed = sys.modules.get("trainer.distributed")
    if distributed is not None:
        distributed.leave(status)
    sys.exit(status)


if __name__ == "__main__":
    _leave(main(sys.argv[1:]))
