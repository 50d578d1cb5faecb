"""Lines for people, on standard output, each written at once so that ranks do not mix within a line."""

from __future__ import annotations

import errno
import os
import sys

from trainer.environment import World


class Console:
    def __init__(self, world: World) -> None:
        self._world = world

    def first(self, line: str) -> None:
        """Rank 0 only: what is the same everywhere."""
        if self._world.is_first:
            self.every(line)

    def every(self, line: str) -> None:
        try:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        except BrokenPipeError:
            _go_on_unheard()
        except OSError as error:
            if error.errno != errno.EIO:  # of a terminal that is gone
                raise
            _go_on_unheard()


def _go_on_unheard() -> None:
    # `python -m trainer ... | head`: nobody reads on, which is no reason to end a run.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        sys.stderr.write("note: standard output was closed; the run goes on without it\n")
        sys.stderr.flush()
    except OSError:
        os.dup2(nowhere, 2)
    os.close(nowhere)
