"""The checkpoints of one run, as the loop uses them: resume once, save when due, finish."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from trainer.checkpoint import reader
from trainer.checkpoint.claim import Beat, check_epoch, hold_epoch, wait_for_access
from trainer.checkpoint.description import Description, find_description
from trainer.checkpoint.epoch import Epoch
from trainer.checkpoint.layout import read_data_state, run_folder
from trainer.checkpoint.manifest import LATEST, Manifest, StepFolder
from trainer.checkpoint.pointer import fence_latest, repair_latest
from trainer.checkpoint.regions import Contents, open_contents
from trainer.checkpoint.restore_plan import (
    RestorePlan,
    check_same_adapters,
    check_same_model,
    list_arithmetic_changes,
    list_data_changes,
    list_mask_changes,
    plan_restore,
    read_lora_config,
)
from trainer.checkpoint.save_clock import SaveClock
from trainer.checkpoint.save_schedule import SaveSchedule
from trainer.checkpoint.snapshot import read_free_memory
from trainer.checkpoint.store import Store, open_store
from trainer.checkpoint.writer import CheckpointWriter, RetentionPolicy, RunInfo
from trainer.config import Config
from trainer.data.described import find_data_description
from trainer.data.state import DataState
from trainer.engine import Engine, FloatArray
from trainer.environment import Run
from trainer.errors import ConfigError, MissingFolderError, PeerError, StorageError
from trainer.evaluation import Evaluated
from trainer.options import flatten_config
from trainer.shape.box import TensorRegion
from trainer.shape.initial_values import make_initial_values
from trainer.team import Team

_WATCH_RETRY_SECONDS = 30.0  # a missed look at the run's epoch is no failure


@dataclass(slots=True, kw_only=True)
class Checkpoints:
    """The checkpoints of one run; without a place to write to, saving does nothing.

    Attributes:
        team: A channel for the resume, which may take long.
        beat: Written while this start holds the run; None on other ranks, and without a place to write to.
        saved: The step of the newest save; -1 for none.
        stall: Seconds for which saves interrupted training since `take_stall`.
    """

    config: Config
    store: Store | None
    schedule: SaveSchedule | None
    team: Team
    report: Callable[[str], None]
    resume_from: str
    beat: Beat | None = None
    epoch: int = 0
    saved: int = -1
    stall: float = 0.0

    @classmethod
    def open(cls, config: Config, run: Run, team: Team, report: Callable[[str], None]) -> Checkpoints:
        """Open the place of the checkpoints, and hold the run's epoch there.

        Args:
            config: With the model that is trained, `auto` resolved.
            run: Which run and attempt this is.
            team: A channel for the resume, which may take long.
            report: Receives notes.

        Raises:
            StorageError: The place cannot be opened.
            TakenOver: A later start has claimed the run.
        """
        settings = config.checkpoint
        uri = settings.uri or run.checkpoint_uri
        # Every later attempt gets `latest`, possibly before the run has its own checkpoint.
        start = run.resume_from if run.resume_from not in ("", "latest") else settings.start
        if not uri:
            return cls(config=config, store=None, schedule=None, team=team, report=report, resume_from=start)
        store = _open_place(uri, config)
        place = open_store(run_folder(store.uri), create=True, retry_seconds=settings.retry_seconds)
        watched = open_store(run_folder(store.uri), create=True, retry_seconds=_WATCH_RETRY_SECONDS)
        if run_folder(uri) != run_folder(run.checkpoint_uri):
            run = replace(run, epoch=0)  # the launcher claimed another folder
        claim = partial(wait_for_access, partial(_hold, store, place, run), settings.retry_seconds, report)
        epoch = Epoch(**reader.broadcast_from_first(team, claim))
        origin = RunInfo(
            run.run_id, run.attempt, flatten_config(config), epoch.epoch, partial(check_epoch, watched, epoch)
        )
        best = bool(config.eval.every) and config.eval.keep_best
        keep = RetentionPolicy(settings.keep, settings.keep_every, best)
        writer = CheckpointWriter(store, team.side_channel(settings.patience), origin, keep, report)
        decisions = team.side_channel(settings.patience)
        clock = SaveClock(seconds=60 * settings.minutes, team=decisions)
        schedule = SaveSchedule(config=settings, team=decisions, writer=writer, report=report, clock=clock)
        beat = Beat(watched, epoch) if team.world.is_first else None
        return cls(
            config=config,
            store=store,
            schedule=schedule,
            team=team,
            report=report,
            resume_from=start,
            beat=beat,
            epoch=epoch.epoch,
        )

    def beating(self) -> AbstractContextManager[object]:
        """Return the context in which others see that this start is at work."""
        return self.beat if self.beat is not None else nullcontext()

    def resume(self, engine: Engine, data: DataState) -> int:
        """Load the checkpoint to resume from; return the steps that are done.

        Args:
            engine: Receives the state.
            data: This run's data state, at step 0.

        Raises:
            StorageError: A checkpoint cannot be read, or is required and absent.
            DataError: The checkpoint is of another corpus.
            ConfigError: The checkpoint is of another model or data order.
        """
        self._check_memory(engine)
        self._check_room(engine)
        done = self._resume(engine, data)
        if self.schedule is not None:
            self.schedule.writer.allocate_buffers(engine)  # its memory comes after that of the parts that were read
        return done

    def is_due(self, step: int) -> bool:
        """Return whether the step that was just done may be saved."""
        return self.schedule is not None and self.schedule.is_due(step)

    def save(self, engine: Engine, data: DataState, *, wait: bool, evaluated: Evaluated | None = None) -> bool:
        """Begin a save where one is due; with `wait`, save this step and complete it.

        Args:
            engine: The state.
            data: The position in the data.
            wait: Whether to complete it.
            evaluated: The evaluation after this step; None without one.

        Returns:
            False when there is no place to write to.

        Raises:
            StorageError: With `wait`, the save failed; else too many have failed. Also TakenOver.
            PeerError: Another rank was lost.
        """
        if self.schedule is None:
            return False
        start = time.perf_counter()
        loss = evaluated.loss if evaluated is not None and math.isfinite(evaluated.loss) else None
        if wait:
            self._save_and_wait(self.schedule, engine, data, loss)
        elif self.saved != data.step and self.schedule.admits_save(data.step):
            self._begin(self.schedule, engine, data, loss)
        self.stall += time.perf_counter() - start
        return True

    def raise_failure(self) -> None:
        """Raise TakenOver or PeerError of a background save, and LastingStorageError of the first one."""
        if self.beat is not None:
            self.beat.raise_failure()
        if self.schedule is not None:
            self.schedule.writer.raise_failure()
            self.schedule.raise_first_failure()

    def finish_save(self) -> None:
        """Wait for the save in progress before the run fails; an error of the save is only reported."""
        try:
            if self.schedule is not None:
                self.schedule.writer.wait_until_written()
        except (StorageError, PeerError) as error:
            self.report(f"note: {error}")

    @property
    def failed_saves(self) -> int:
        """Number of saves of this start that failed."""
        return self.schedule.failed if self.schedule is not None else 0

    def _save_and_wait(self, schedule: SaveSchedule, engine: Engine, data: DataState, eval_loss: float | None) -> None:
        succeeded = schedule.wait_for_last()
        if self.saved != data.step or not succeeded:
            self._begin(schedule, engine, data, eval_loss)
            schedule.finish_last()

    def _begin(self, schedule: SaveSchedule, engine: Engine, data: DataState, eval_loss: float | None) -> None:
        schedule.writer.save(engine, data, eval_loss)
        self.saved = data.step
        schedule.record_begin()

    def take_stall(self) -> float:
        """Return the seconds for which saves interrupted training since the last call."""
        stall, self.stall = self.stall, 0.0
        return stall

    def _check_memory(self, engine: Engine) -> None:
        """Check that the first save fits into memory, before the system would kill the process for it."""
        needed = sum(piece.bytes for piece in engine.written()) * max(1, self.team.world.sharers)
        free = read_free_memory()
        if self.schedule is not None and free is not None and needed > free:
            raise StorageError(
                f"a save needs {needed / 1e9:,.1f} GB of this host's memory for the copy that is written while "
                f"training continues, but {free / 1e9:,.1f} GB are free: use more hosts, or ones with more memory"
            )

    def _check_room(self, engine: Engine) -> None:
        """Check that a checkpoint of all ranks fits into the place, before steps are trained that cannot be saved.

        Checkpoints beyond `checkpoint.keep` are removed when the disk is full, so with them it is left to the save.
        """
        store = self.store
        sizes = self.team.gather(sum(piece.bytes for piece in engine.written()))
        if store is None:
            return
        room = sum(int(size) for size in sizes)

        def check() -> bool:
            saved = sum(StepFolder.parse(name) is not None for name in store.list_folders())
            if saved <= self.config.checkpoint.keep:
                store.check_room(room)
            return True

        reader.broadcast_from_first(self.team, check)

    def _resume(self, engine: Engine, data: DataState) -> int:
        if self.config.resume == "never":
            self._refuse_named_step()
            self._refuse_used_place()
            self._repair_latest(None)
            self._describe(None)
            return 0
        begun = time.perf_counter()
        # As much in memory as a save will need.
        found = self._find(room=sum(piece.bytes for piece in engine.written()))
        self._describe(found)
        if found is not None:
            done = self._restore(found, engine, data, begun)
            own = self.store is not None and found.store.uri == self.store.uri
            self._repair_latest(StepFolder.parse(found.manifest.folder) if own else None)
            return done
        if self.config.resume == "required":
            place = self.store.uri if self.store else "no checkpoint.uri"
            raise StorageError(f"resume=required, but there is no intact checkpoint in {place}")
        self._repair_latest(None)
        return 0

    def _describe(self, found: reader.Checkpoint | None) -> None:
        """Let checkpoints name the description of the model and its tokenizer: the earlier one, joined with the data's.

        Raises:
            StorageError: The bucket fails; on every rank.
        """
        schedule = self.schedule
        if schedule is None:
            return

        def describe() -> bool:
            earlier = None if found is None else find_description(found.store, found.manifest.description, self.report)
            of_data = find_data_description(self.config.data, self.config.model)
            schedule.writer.describe((earlier or Description()).join(of_data) if of_data is not None else earlier)
            return True

        reader.broadcast_from_first(self.team, describe)

    def _repair_latest(self, resumed: StepFolder | None) -> None:
        store = self.store
        if store is None:
            return
        if reader.broadcast_from_first(self.team, lambda: repair_latest(store, resumed, self.epoch)):
            self.report(f"note: {store.uri}/{LATEST} named a checkpoint that is lost or damaged; it is repaired")

    def _restore(self, found: reader.Checkpoint, engine: Engine, data: DataState, begun: float) -> int:
        manifest = found.manifest
        own = self.store is not None and found.store.uri == self.store.uri
        adapts = not own and self.config.lora.rank > 0 and not read_lora_config(manifest.config).rank
        if not own and not adapts and manifest.step >= self.config.steps:
            raise ConfigError(
                f"steps={self.config.steps}, but the checkpoint is at step {manifest.step}: give more steps"
            )
        notes = check_same_model(manifest.config, self.config.model)
        if own:
            notes += list_mask_changes(manifest.config, self.config)
            notes += list_arithmetic_changes(manifest.config, self.config)
        notes += check_same_adapters(manifest.config, self.config.lora, own=own)
        earlier = read_data_state(manifest)
        if earlier is not None and not adapts:
            changes = data.check_compatible(
                earlier,
                allow_change=self.config.data.allow_change,
                settings=list_data_changes(manifest.config, self.config),
            )
            notes += [f"note: {change}; the order of the data is another from here on" for change in changes]
        for note in (*notes, *load_state(found, engine, self.config)):
            self.report(note)
        if own:
            self.saved = manifest.step
        if adapts and earlier is not None:  # a new run from the weights: its steps, rate and data begin
            self.report(f"LoRA adapters begin at step 0, on the weights of step {manifest.step} in {found.store.uri}")
            return 0
        self.report(_resumed(manifest, found.store, time.perf_counter() - begun))
        return manifest.step

    def _find(self, room: int) -> reader.Checkpoint | None:
        if self.store is not None:
            return reader.choose_checkpoint(self.store, self.resume_from, self.team, self.report, room=room)
        if self.resume_from in ("", "latest"):
            return None
        return reader.find_named_checkpoint(self.resume_from, self.team, self.report, room=room)

    def _refuse_named_step(self) -> None:
        # `latest` is no choice of the user: every later attempt gets it.
        if self.resume_from not in ("", "latest"):
            raise ConfigError(
                f"resume=never, but ORCH_RESUME_FROM or checkpoint.start is {self.resume_from}: leave one of them out"
            )

    def _refuse_used_place(self) -> None:
        store = self.store
        if store is None:
            return
        if reader.broadcast_from_first(
            self.team, lambda: any(StepFolder.parse(name) is not None for name in store.list_folders())
        ):
            raise ConfigError(
                f"resume=never, but {store.uri} already holds checkpoints: use another checkpoint.uri, or resume=auto"
            )


def _hold(store: Store, place: Store, run: Run) -> dict[str, Any]:
    epoch = hold_epoch(place, run)
    fence_latest(store, epoch.epoch)
    return asdict(epoch)


def load_state(found: reader.Checkpoint, engine: Engine, config: Config) -> Sequence[str]:
    """Load a checkpoint into an engine, and return what differs from its own run, one line each.

    Args:
        found: The checkpoint.
        engine: Receives the state.
        config: The settings of the engine.

    Raises:
        StorageError: The checkpoint cannot be read.
        ConfigError: It lacks what the engine needs.
    """
    manifest, needed = found.manifest, engine.needed()
    contents = open_contents(found.store, manifest, found.kept, needed)
    chosen = plan_restore(needed, contents.tensors, manifest.config, config, weights_only=manifest.weights_only)
    engine.load(_values(contents, chosen, config.seed))
    return chosen.notes


def _values(contents: Contents, chosen: RestorePlan, seed: int) -> Iterator[tuple[TensorRegion, FloatArray]]:
    yield from contents.read_pieces(chosen.read)
    for piece in chosen.zeros:
        yield piece, np.zeros(piece.box.extent, np.float32)
    for piece, parameter in chosen.initial:
        yield piece, make_initial_values(parameter, piece.box, seed)


def _open_place(uri: str, config: Config) -> Store:
    """Open the place of the checkpoints; a folder is made, unless the run must resume from what is there."""
    try:
        return open_store(uri, create=config.resume != "required", retry_seconds=config.checkpoint.retry_seconds)
    except MissingFolderError as error:
        raise StorageError(
            f"resume=required, but there is no intact checkpoint in {uri}: {error}; is checkpoint.uri spelled right?"
        ) from error


def _resumed(manifest: Manifest, store: Store, seconds: float) -> str:
    data = read_data_state(manifest)
    if data is None:
        return f"started from the imported weights in {store.uri}, read in {seconds:.2f} s"
    return (
        f"resumed from step {manifest.step} of attempt {manifest.attempt}, "
        f"data position {data.position:,} rows, written by {manifest.world} ranks, "
        f"in {store.uri}, read in {seconds:.2f} s"
    )
