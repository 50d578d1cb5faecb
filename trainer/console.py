"""Lines for people, on standard output, each written at once so that ranks do not mix within a line."""

from __future__ import annotations

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
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
