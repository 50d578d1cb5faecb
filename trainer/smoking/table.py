"""The stages of a smoke test in order, each a line with its mark and time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from trainer.errors import TrainerError

T = TypeVar("T")
_NAMES = 11


class StageError(TrainerError):
    """A process of a stage failed. status: its exit status, or less than 0 for a signal."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status if status > 0 else 128 - status


@dataclass(slots=True)
class Table:
    """status: of the first failure, 0 before one. After it, nothing more is tried.

    write: a line that stays. begin: told the stage that is under way, for a terminal; the next line takes its place.
    """

    write: Callable[[str], None]
    begin: Callable[[str], None] = lambda _: None
    status: int = 0
    begun: float = field(default_factory=time.perf_counter)

    def stage(self, name: str, action: Callable[[], T], told: Callable[[T], str]) -> T | None:
        """Do one stage and say how it went. told: what its result says. None when it failed or was not tried."""
        if self.status:
            self._line("-", name, None, "not tried")
            return None
        self.begin(name)
        begun = time.perf_counter()
        try:
            result = action()
        except TrainerError as error:
            self.status = error.status if isinstance(error, StageError) else int(error.exit_status)
            self._line("✗", name, time.perf_counter() - begun, str(error))
            return None
        self._line("✓", name, time.perf_counter() - begun, told(result))
        return result

    def skip(self, name: str, why: str) -> None:
        self._line("-", name, None, "not tried" if self.status else why)

    def also(self, name: str, said: str) -> None:
        """A stage that was part of the one before."""
        self._line("✓", name, None, said)

    def end(self) -> None:
        seconds = time.perf_counter() - self.begun
        self.write(f"failed after {seconds:.1f} s" if self.status else f"all is well: {seconds:.1f} s")

    def _line(self, mark: str, name: str, seconds: float | None, said: str) -> None:
        self.write(f"{mark} {name:<{_NAMES}} {'' if seconds is None else f'{seconds:.1f} s':>7}  {said}".rstrip())
