"""Reports that this rank makes progress: the heartbeat for observers outside, the watchdog inside."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from types import TracebackType

from trainer.config import Config
from trainer.console import Console
from trainer.environment import Run, World
from trainer.errors import Exit, LastingStorageError
from trainer.heartbeat import NO_STORAGE, Heartbeat
from trainer.watchdog import Watchdog


class Liveness:
    """Heartbeat and watchdog of one rank; only the main loop feeds them, so that a hang is visible."""

    def __init__(self, config: Config, run: Run, world: World, console: Console) -> None:
        stacks = run.job / f"stacks-{world.rank}.txt" if run.job else None
        self._heartbeat = Heartbeat(run.heartbeat_file, world, console.print_on_every)
        self._watchdog = Watchdog(config.dist.watchdog, stacks)
        self._patience = config.checkpoint.patience

    def __enter__(self) -> Liveness:
        self._watchdog.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watchdog.__exit__(kind, error, trace)
        if isinstance(error, LastingStorageError):
            self._heartbeat.beat(None, NO_STORAGE, final=True)

    def report_step(self, step: int) -> None:
        """Report that a step is done."""
        self._heartbeat.beat(step)
        self._watchdog.beat(step)

    @contextmanager
    def extend_for_save(self, step: int, *, wait: bool) -> Generator[None]:
        """Allow for an upload, which has no steps and is no hang.

        Args:
            step: Steps that are done.
            wait: The loop waits until the upload is complete.
        """
        if wait:
            self._heartbeat.beat(step, "saving")
        self._watchdog.extend(self._patience, f"saving step {step}")
        yield
        self._watchdog.beat(step)

    def leave(self, status: Exit) -> None:
        """Report that all work is done; a hang from here on ends with the run's own status."""
        self._watchdog.expect_exit(status)

    def report_end(self, step: int) -> None:
        """Write the last heartbeat, and allow for the time that closing takes."""
        self._heartbeat.beat(step, final=True)
        self._watchdog.extend(self._patience, "leaving")
