"""The checkpoints of one run, as the loop uses them: resume once, save when due, finish."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from trainer.checkpoint import reader
from trainer.checkpoint.fitting import Fit, check_same_model, fit
from trainer.checkpoint.layout import Manifest, step_of
from trainer.checkpoint.regions import Contents, open_contents
from trainer.checkpoint.snapshot import free_memory
from trainer.checkpoint.store import Store, open_store
from trainer.checkpoint.writer import CheckpointWriter, Keep, Origin
from trainer.config import Config
from trainer.data.state import DataState
from trainer.engine import Engine, FloatArray
from trainer.environment import Run
from trainer.errors import ConfigError, PeerError, StorageError
from trainer.options import flat
from trainer.shape.box import Piece
from trainer.team import Team


@dataclass(slots=True)
class Checkpoints:
    """Without a place to write to, saving does nothing.

    team: of the resume, which may take long. saved: the step of the newest save; -1: none. stall: seconds that training
    stood still since `take_stall`.
    """

    config: Config
    store: Store | None
    writer: CheckpointWriter | None
    team: Team
    report: Callable[[str], None]
    resume_from: str
    saved: int = -1
    stall: float = 0.0

    @classmethod
    def open(cls, config: Config, run: Run, team: Team, report: Callable[[str], None]) -> Checkpoints:
        """config: with the model that is trained, `auto` resolved.

        Raises StorageError when the place cannot be opened.
        """
        settings = config.checkpoint
        uri = settings.uri or run.checkpoint_uri
        # `latest` is what every later attempt is told: it may well have nothing of its own yet.
        start = run.resume_from if run.resume_from not in ("", "latest") else settings.start
        if not uri:
            return cls(config, None, None, team, report, start)
        store = open_store(uri, create=True)
        origin = Origin(run.run_id, run.attempt, flat(config))
        side = team.side_channel(settings.timeout)
        writer = CheckpointWriter(store, side, origin, Keep(settings.keep, settings.keep_every), report)
        return cls(config, store, writer, team, report, start)

    def resume(self, engine: Engine, data: DataState) -> int:
        """Load the checkpoint to go on from; returns the steps that are done. data: this run's, at step 0.

        Raises StorageError, and DataError or ConfigError when the checkpoint is of other data or another model.
        """
        self._check_memory(engine)
        done = self._resume(engine, data)
        if self.writer is not None:
            self.writer.prepare(engine)  # its memory comes after that of the parts that were read
        return done

    def due(self, step: int) -> bool:
        """Whether the step that was just done, the step-th, is to be saved."""
        every = self.config.checkpoint.every
        return self.writer is not None and every > 0 and step % every == 0

    def save(self, engine: Engine, data: DataState, *, wait: bool) -> bool:
        """Begin to write, or with `wait` write to the end. False when there is no place to write to."""
        if self.writer is None:
            return False
        if self.saved != data.step:
            self.stall += self.writer.save(engine, data)
            self.saved = data.step
        if wait:
            self.writer.wait()
        return True

    def check(self) -> None:
        """Raise what went wrong in the background."""
        if self.writer is not None:
            self.writer.check()

    def finish(self) -> None:
        """Let the save under way come to its end before the run fails; what goes wrong with it is only told."""
        try:
            if self.writer is not None:
                self.writer.wait()
        except (StorageError, PeerError) as error:
            self.report(f"note: {error}")

    def take_stall(self) -> float:
        stall, self.stall = self.stall, 0.0
        return stall

    def _check_memory(self, engine: Engine) -> None:
        """Raises StorageError where the first save could only end with the system killing the process."""
        needed = sum(piece.bytes for piece in engine.written()) * max(1, self.team.world.sharers)
        free = free_memory()
        if self.writer is not None and free is not None and needed > free:
            raise StorageError(
                f"a save needs {needed / 1e9:,.1f} GB of this host's memory for the copy that is written while "
                f"training goes on, but {free / 1e9:,.1f} GB are free: use more hosts, or ones with more memory"
            )

    def _resume(self, engine: Engine, data: DataState) -> int:
        if self.config.resume == "never":
            self._refuse_named_step()
            self._refuse_used_place()
            return 0
        begun = time.perf_counter()
        # As much in memory as a save will need.
        found = self._find(room=sum(piece.bytes for piece in engine.written()))
        if found is not None:
            return self._take(found, engine, data, begun)
        if self.config.resume == "required":
            place = self.store.uri if self.store else "no checkpoint.uri"
            raise StorageError(f"resume=required, but there is no intact checkpoint in {place}")
        return 0

    def _take(self, found: reader.Checkpoint, engine: Engine, data: DataState, begun: float) -> int:
        manifest = found.manifest
        own = self.store is not None and found.store.uri == self.store.uri
        if not own and manifest.step >= self.config.steps:
            raise ConfigError(
                f"steps={self.config.steps}, but the checkpoint is at step {manifest.step}: give more steps"
            )
        notes = check_same_model(manifest.config, self.config.model)
        if manifest.data is not None:
            changes = data.check_continues(manifest.data, allow_change=self.config.data.allow_change)
            notes += [f"note: {change}; the order of the data is another from here on" for change in changes]
        needed = engine.needed()
        contents = open_contents(found.store, manifest, found.kept, needed)
        chosen = fit(needed, contents.tensors, manifest.config, self.config, weights_only=manifest.weights_only)
        for note in (*notes, *chosen.notes):
            self.report(note)
        engine.load(_values(contents, chosen))
        if own:
            self.saved = manifest.step
        self.report(_resumed(manifest, found.store, time.perf_counter() - begun))
        return manifest.step

    def _find(self, room: int) -> reader.Checkpoint | None:
        if self.store is not None:
            return reader.choose(self.store, self.resume_from, self.team, self.report, room=room)
        if self.resume_from in ("", "latest"):
            return None
        return reader.named(self.resume_from, self.team, self.report, room=room)

    def _refuse_named_step(self) -> None:
        # `latest` is no wish of a person: it stands in every later attempt.
        if self.resume_from not in ("", "latest"):
            raise ConfigError(
                f"resume=never, but ORCH_RESUME_FROM or checkpoint.start is {self.resume_from}: leave one of them out"
            )

    def _refuse_used_place(self) -> None:
        store = self.store
        if store is None:
            return
        if reader.first_says(self.team, lambda: any(step_of(name) is not None for name in store.folders())):
            raise ConfigError(
                f"resume=never, but {store.uri} already holds checkpoints: use another checkpoint.uri, or resume=auto"
            )


def _values(contents: Contents, chosen: Fit) -> Iterator[tuple[Piece, FloatArray]]:
    yield from contents.assemble(chosen.read)
    for piece in chosen.zeros:
        yield piece, np.zeros(piece.box.extent, np.float32)


def _resumed(manifest: Manifest, store: Store, seconds: float) -> str:
    if manifest.data is None:
        return f"started from the imported weights in {store.uri}, read in {seconds:.2f} s"
    return (
        f"resumed from step {manifest.step} of attempt {manifest.attempt}, "
        f"data position {manifest.data.position:,} rows, written by {manifest.world} ranks, "
        f"in {store.uri}, read in {seconds:.2f} s"
    )
