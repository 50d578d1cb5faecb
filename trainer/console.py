"""Lines for people on standard output; each line is one write, so that ranks do not mix within a line."""

from __future__ import annotations

import errno
import os
import sys

from trainer.environment import World


class Console:
    """Standard output of one rank."""

    def __init__(self, world: World) -> None:
        self._world = world

    def print_on_first(self, line: str) -> None:
        """Print a line on rank 0 only: for what is the same on every rank."""
        if self._world.is_first:
            self.print_on_every(line)

    def print_on_every(self, line: str) -> None:
        """Print a line on this rank."""
        try:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        except BrokenPipeError:
            _discard_standard_output()
        except OSError as error:
            if error.errno != errno.EIO:  # of a closed terminal
                raise
            _discard_standard_output()


def _discard_standard_output() -> None:
    # `python -m trainer ... | head`: a closed standard output must not end a run.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        sys.stderr.write("note: standard output was closed; the run continues without it\n")
        sys.stderr.flush()
    except OSError:
        os.dup2(nowhere, 2)
    os.close(nowhere)
