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
    """A process of a stage failed.

    Attributes:
        status: Its exit status; 128 plus the number for a signal.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status if status > 0 else 128 - status


@dataclass(slots=True, kw_only=True)
class StageTable:
    """The table of stages; after the first failure no further stage is run.

    Attributes:
        write: Prints a line that stays.
        begin: Receives the stage in progress, for a terminal; the next line replaces it.
        status: Of the first failure; 0 before one.
        begun: When the smoke test began, by time.perf_counter().
    """

    write: Callable[[str], None]
    begin: Callable[[str], None] = lambda _: None
    status: int = 0
    begun: float = field(default_factory=time.perf_counter)

    def run_stage(self, name: str, action: Callable[[], T], describe: Callable[[T], str]) -> T | None:
        """Run one stage and print its result.

        Args:
            name: Of the stage.
            action: Does the stage.
            describe: Returns the text for its result.

        Returns:
            The result; None when the stage failed or was not run.
        """
        if self.status:
            self._line("-", name, None, "not run")
            return None
        self.begin(name)
        begun = time.perf_counter()
        try:
            result = action()
        except TrainerError as error:
            self.status = error.status if isinstance(error, StageError) else int(error.exit_status)
            self._line("✗", name, time.perf_counter() - begun, str(error))
            return None
        self._line("✓", name, time.perf_counter() - begun, describe(result))
        return result

    def skip_stage(self, name: str, why: str) -> None:
        """Print why a stage is not run."""
        self._line("-", name, None, "not run" if self.status else why)

    def add_passed_stage(self, name: str, result: str) -> None:
        """Print a stage that was part of the one before."""
        self._line("✓", name, None, result)

    def write_result(self) -> None:
        """Print the result of all stages."""
        seconds = time.perf_counter() - self.begun
        self.write(f"failed after {seconds:.1f} s" if self.status else f"passed: {seconds:.1f} s")

    def _line(self, mark: str, name: str, seconds: float | None, text: str) -> None:
        self.write(f"{mark} {name:<{_NAMES}} {'' if seconds is None else f'{seconds:.1f} s':>7}  {text}".rstrip())
