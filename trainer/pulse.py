"""The signs of life of a rank: the heartbeat for watchers outside, the watchdog inside."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from types import TracebackType

from trainer.config import Config
from trainer.console import Console
from trainer.environment import Run, World
from trainer.errors import Exit
from trainer.heartbeat import Heartbeat
from trainer.watchdog import Watchdog


class Pulse:
    """Only the main loop beats: one that stands still must look like it."""

    def __init__(self, config: Config, run: Run, world: World, console: Console) -> None:
        stacks = run.job / f"stacks-{world.rank}.txt" if run.job else None
        self._heartbeat = Heartbeat(run.heartbeat_file, world, console)
        self._watchdog = Watchdog(config.dist.watchdog, stacks)
        self._patience = config.checkpoint.timeout

    def __enter__(self) -> Pulse:
        self._watchdog.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watchdog.__exit__(kind, error, trace)

    def beat(self, step: int) -> None:
        """A step is done."""
        self._heartbeat.beat(step)
        self._watchdog.beat(step)

    @contextmanager
    def saving(self, step: int, *, to_the_end: bool) -> Generator[None]:
        """An upload has no steps, and is no hang. to_the_end: it is waited for."""
        if to_the_end:
            self._heartbeat.beat(step, "saving")
        self._watchdog.allow(self._patience, f"saving step {step}")
        yield
        self._watchdog.beat(step)

    def leave(self, status: Exit) -> None:
        """All is done; status: the run's."""
        self._watchdog.leave(status)

    def end(self, step: int) -> None:
        self._heartbeat.beat(step, final=True)
        self._watchdog.allow(self._patience, "leaving")
