"""At which steps a save begins, and what a failed one means: the same decisions on every rank.

A save is due after so many steps, after so many minutes (save_clock.py), or both.

A save is written in the background, and its ranks learn of its end at different moments. So they compare what they know
at the steps at which a save is due, and while the last one is under way, also at a few steps in between. A save that
fails does not end the run: training continues, and the next try comes sooner than the usual one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from trainer.checkpoint.save_clock import SaveClock
from trainer.checkpoint.writer import CheckpointWriter, SaveState
from trainer.config import CheckpointConfig
from trainer.errors import LastingStorageError, StorageError, TakenOver
from trainer.team import Team

CHANCES = 5
"""Steps between two due saves at which a save that failed, or was put off, may begin."""
_LOOK_SECONDS = 0.5  # while training waits for the save before
_PAUSE_SHARE = 1 / 60  # of checkpoint.retry_minutes: from the first failed save to the next try; doubles with each
_LONGEST_PAUSES = 16  # first ones


@dataclass(slots=True, kw_only=True)
class SaveSchedule:
    """The saves of one start of a run.

    Attributes:
        team: A channel for decisions about saves.
        clock: Of saves by time.
        failed: Number of saves that failed.
        written: Whether a save of this start has succeeded.
    """

    config: CheckpointConfig
    team: Team
    writer: CheckpointWriter
    report: Callable[[str], None]
    clock: SaveClock
    failed: int = 0
    written: bool = False
    _under_way: bool = False  # a save was begun, and not all ranks are known to be done with it
    _owed: bool = False  # the last save failed or was put off
    _in_a_row: int = 0
    _begun_at: float = 0.0  # the last save
    _failing_since: float = 0.0
    _not_before: float = 0.0
    _late_at: int = -1  # step at which the time had come

    def is_due(self, step: int) -> bool:
        """Return whether a save may begin at this step, the same on every rank; each calls it once for every step.

        Raises:
            PeerError: Another rank was lost.
        """
        every, waiting = self.config.every, self._under_way or self._owed
        compared = self.clock.compares_at(step)
        if compared and self.clock.is_late(step):
            self._late_at = step
        if self._is_regular(step):
            return True
        return waiting and (step % max(1, every // CHANCES) == 0 if every else compared)

    def _is_regular(self, step: int) -> bool:
        every = self.config.every
        return step == self._late_at or (every > 0 and step % every == 0)

    def admits_save(self, step: int) -> bool:
        """Return whether a save begins at this step, which is due; every rank calls it.

        Where the step is a multiple of checkpoint.every, or the time has come, it waits for the save before, unless the
        bucket is in trouble.

        Raises:
            StorageError: Too many saves have failed.
            PeerError: Another rank was lost.
        """
        regular = self._is_regular(step)
        self.raise_first_failure()
        state, failure, may_retry = self._compare()
        while state is SaveState.RUNNING and regular and not self._owed:
            self.writer.wait(_LOOK_SECONDS)
            state, failure, may_retry = self._compare()
        if state is SaveState.FAILED:
            self.writer.forget_failure()
            self._record_failure(failure)
            return False
        if state is SaveState.RETRYING:
            if regular and not self._owed:
                self._owed = True
                self.report(
                    f"note: the save of step {step} is put off: the bucket fails, and the one before is repeated"
                )
            return False
        if state is SaveState.DONE and self._under_way:
            self._under_way, self._in_a_row, self.written = False, 0, True
        return state is SaveState.DONE and (may_retry if self._owed else regular)

    def record_begin(self) -> None:
        """Record that a save begins now."""
        self._under_way, self._owed, self._begun_at = True, False, time.monotonic()
        self.clock.restart()

    def wait_for_last(self) -> bool:
        """Wait for the save that is under way, before the last one; return whether it succeeded.

        Raises:
            TakenOver: A later start has claimed the run.
            LastingStorageError: It was the first one, and failed for a reason that does not pass.
            PeerError: Another rank was lost.
        """
        self.raise_first_failure()
        try:
            self.writer.wait_until_written()
            self.written = self.written or self._under_way
        except TakenOver:
            raise
        except StorageError as error:
            if isinstance(error, LastingStorageError) and not self.written:
                raise
            self.failed += 1
            self.report(f"note: {error}")
            return False
        return True

    def finish_last(self) -> None:
        """Wait for the last save of the run.

        Raises:
            StorageError: It failed; LastingStorageError where nothing else was saved, and no restart can help.
            PeerError: Another rank was lost.
        """
        try:
            self.writer.wait_until_written()
        except LastingStorageError as error:
            if not self.written:
                raise
            raise StorageError(str(error)) from error  # the one before is there: a restart may resume from it

    def raise_first_failure(self) -> None:
        """Raise the failure of the first save if it does not pass: whatever is trained now could not be saved."""
        error = self.writer.find_failure()
        if isinstance(error, LastingStorageError) and not self.written:
            raise error

    def _compare(self) -> tuple[SaveState, str, bool]:
        """Return what the last save has come to, why it failed, and whether another try may begin."""
        state, failure = self.writer.inspect()
        answers = self.team.gather([state, failure, time.monotonic() >= self._not_before])
        states = [SaveState(state) for state, _, _ in answers]
        worst = next((one for one in (SaveState.RETRYING, SaveState.RUNNING, SaveState.FAILED) if one in states), None)
        why = next((failure for _, failure, _ in answers if failure), "")
        return worst or SaveState.DONE, why, bool(answers[0][2])

    def _record_failure(self, failure: str) -> None:
        """Note a failed save; every rank does at the same step.

        Raises:
            StorageError: It was one too many.
        """
        now = time.monotonic()
        self._failing_since = self._failing_since if self._in_a_row else self._begun_at
        self._under_way, self._owed = False, True
        self._in_a_row += 1
        self.failed += 1
        pause = self.config.retry_seconds * _PAUSE_SHARE
        self._not_before = now + pause * min(2 ** (self._in_a_row - 1), _LONGEST_PAUSES)
        too_long = bool(self.team.gather(now - self._failing_since > 60 * self.config.unsaved_minutes)[0])
        if self._in_a_row >= self.config.failures or too_long:
            raise StorageError(f"{failure} (failed saves in a row: {self._in_a_row})")
        self.report(
            f"note: {failure}; training continues, and saves again soon "
            f"(failed saves in a row: {self._in_a_row} of {self.config.failures})"
        )
