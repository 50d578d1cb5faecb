"""The checkpoints of one run, as the loop uses them: resume once, save when due, finish."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainer.checkpoint import reader
from trainer.checkpoint.layout import step_of
from trainer.checkpoint.store import Store, open_store
from trainer.checkpoint.writer import CheckpointWriter, Origin
from trainer.config import Config
from trainer.data import DataState
from trainer.distributed import Team
from trainer.environment import Run
from trainer.errors import ConfigError, StorageError
from trainer.options import flat
from trainer.state import TrainState


@dataclass(slots=True)
class Checkpoints:
    """Without a place to write to, saving does nothing. stall: seconds that training stood still since `take_stall`."""

    config: Config
    store: Store | None
    writer: CheckpointWriter | None
    team: Team
    report: Callable[[str], None]
    resume_from: str
    saved: int = 0
    stall: float = 0.0

    @classmethod
    def open(cls, config: Config, run: Run, team: Team, report: Callable[[str], None]) -> Checkpoints:
        """Raises StorageError when the place cannot be opened."""
        uri = config.checkpoint.uri or run.checkpoint_uri
        if not uri:
            return cls(config, None, None, team, report, run.resume_from)
        store = open_store(uri, create=True)
        origin = Origin(run.run_id, run.attempt, flat(config))
        side = team.side_channel(config.checkpoint.timeout)
        writer = CheckpointWriter(store, side, origin, config.checkpoint.keep, report)
        return cls(config, store, writer, team, report, run.resume_from)

    def resume(self, state: TrainState, data: DataState) -> int:
        """Load the checkpoint to go on from; returns the steps that are done. data: this run's, at step 0.

        Raises StorageError, and DataError or ConfigError when the checkpoint is of other data or another model.
        """
        if self.config.resume == "never":
            self._refuse_used_place()
            return 0
        found = self._find()
        if found is None:
            if self.config.resume == "required":
                place = self.store.uri if self.store else "no checkpoint.uri"
                raise StorageError(f"resume=required, but there is no intact checkpoint in {place}")
            return 0
        manifest = found.manifest
        state.check_same_model(manifest.config, flat(self.config))
        changes = data.check_continues(manifest.data, allow_change=self.config.data.allow_change)
        for change in changes:
            self.report(f"note: {change}; the order of the data is another from here on")
        state.load(found.tensors(), manifest.step)
        self.saved = manifest.step
        self.report(
            f"resumed from step {manifest.step} of attempt {manifest.attempt}, "
            f"data position {manifest.data.position:,} rows, written by {manifest.world} ranks, "
            f"in {found.store.uri}"
        )
        return manifest.step

    def due(self, done: int) -> bool:
        every = self.config.checkpoint.every
        return self.writer is not None and every > 0 and done % every == 0

    def save(self, state: TrainState, data: DataState, *, wait: bool) -> bool:
        """Begin to write, or with `wait` write to the end. False when there is no place to write to."""
        if self.writer is None:
            return False
        if self.saved != data.step:
            self.stall += self.writer.save(data, state.share())
            self.saved = data.step
        if wait:
            self.writer.wait()
        return True

    def check(self) -> None:
        """Raise what went wrong in the background."""
        if self.writer is not None:
            self.writer.check()

    def take_stall(self) -> float:
        stall, self.stall = self.stall, 0.0
        return stall

    def _find(self) -> reader.Checkpoint | None:
        if self.store is not None:
            return reader.choose(self.store, self.resume_from, self.team, self.report)
        if self.resume_from in ("", "latest"):
            return None
        return reader.named(self.resume_from, self.team, self.report)

    def _refuse_used_place(self) -> None:
        used = self.store is not None and any(step_of(name) is not None for name in self.store.folders())
        if self.store is not None and any(self.team.gather(used)):
            raise ConfigError(
                f"resume=never, but {self.store.uri} already holds checkpoints: "
                "use another checkpoint.uri, or resume=auto"
            )
