"""Restores a checkpoint on every rank: rank 0 chooses and verifies it, and the others read it at the same time."""

from __future__ import annotations

import fnmatch
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..checkpoint.manifest import PROGRAM_FORMAT, CorruptCheckpoint, Manifest, StepFolder, order_step_folders
from ..checkpoint.pointer import read_latest, repair_latest
from ..checkpoint.store import Store
from ..environment import World
from ..errors import ConfigError, StorageError
from .files import read_manifest, reporting_disk
from .restored import download_files
from .saver import Saver
from .staging import Staging
from .start import Agreement, Choice
from .trust import Trust


@dataclass(kw_only=True)
class Restorer:
    """The restores of one rank.

    Attributes:
        store: The folder of checkpoints.
        trust: Which of them are loaded.
        epoch: Of this start.
        report: Prints a line.
        calls: How often `restore` was called.
    """

    store: Store
    agreement: Agreement
    saver: Saver
    staging: Staging
    world: World
    trust: Trust
    epoch: int
    report: Callable[[str], None]
    calls: int = 0

    def restore(self, folder: Path, files: str) -> Manifest | None:
        """Write the newest complete checkpoint to a folder; see Run.restore.

        Saves that this rank has begun are written first, or have failed.
        """
        call, self.calls = self.calls, self.calls + 1
        self.saver.drain()
        if not self.world.is_first:
            return self._follow(folder, files, call)
        try:
            found = self._restore_newest(folder, files, call)
            repair_latest(self.store, None if found is None else StepFolder.parse(found.folder), self.epoch)
            self._forget_shards(found)
        except (StorageError, ConfigError) as error:
            with suppress(StorageError):  # the error itself is raised
                self.agreement.choose(call, Choice(folder="", is_final=True, failure=str(error)))
            raise
        self.agreement.choose(call, Choice(folder="" if found is None else found.folder, is_final=True))
        return found

    def list_complete(self) -> Iterator[Manifest | str]:
        """Yield the complete checkpoints, newest first, and between them why others are skipped."""
        try:
            latest = read_latest(self.store)
        except CorruptCheckpoint:
            latest = None  # each complete checkpoint counts
        for folder, refusal in order_step_folders(self.store.list_folders(), latest):
            one = refusal or read_manifest(self.store, folder, self.trust)
            yield one if isinstance(one, Manifest) else f"skipped checkpoint {folder.step}: {one}"

    def _restore_newest(self, folder: Path, files: str, call: int) -> Manifest | None:
        for one in self.list_complete():
            if isinstance(one, str):
                self.report(one)
                continue
            if self.world.size > 1:
                self.agreement.choose(call, Choice(folder=one.folder, is_final=False))
            refusal = self._download(one, folder, files) or self._verify_others(one, files)
            if not refusal:
                return one
            self.report(f"skipped checkpoint {one.step}: {refusal}")
        return None

    def _verify_others(self, manifest: Manifest, files: str) -> str:
        """Verify what this rank does not keep, but others may."""
        if self.world.size == 1 or files == "*":
            return ""
        with reporting_disk("restore()"):
            place = self.staging.new_folder()
        try:
            return download_files(
                self.store, manifest, place, lambda file: not fnmatch.fnmatch(file, files), report=self.report
            )
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _follow(self, folder: Path, files: str, call: int) -> Manifest | None:
        """Read what rank 0 reads, and again where rank 0 passes over it."""
        choice: Choice | None = None
        manifest: Manifest | None = None
        refusal = ""
        while choice is None or not choice.is_final:
            earlier, choice = choice, self.agreement.follow_choice(call, choice)
            if choice.failure:
                raise StorageError(f"rank 0 restores nothing: {choice.failure}")
            if earlier is not None and choice.folder == earlier.folder and not refusal:
                continue  # verified by rank 0, and here already
            manifest, refusal = self._read_choice(choice, folder, files, call)
        if refusal:
            raise StorageError(f"{self.store.uri}/{choice.folder}: {refusal}, which rank 0 did not see")
        self._forget_shards(manifest)
        return manifest

    def _read_choice(self, choice: Choice, folder: Path, files: str, call: int) -> tuple[Manifest | None, str]:
        """Return the manifest and what is wrong with the checkpoint, after its files were written."""
        chosen = StepFolder.parse(choice.folder)
        if chosen is None:
            return None, ""
        found = self.store.find(chosen.manifest)
        if found is None:
            return None, "it is not there any more"
        try:
            manifest = Manifest.from_json(found.data, chosen, (PROGRAM_FORMAT,))
        except CorruptCheckpoint as error:
            return None, str(error)
        self.trust.check(self.store, manifest, found.data)
        return manifest, self._download(manifest, folder, files, lambda: self._is_chosen(choice, call))

    def _is_chosen(self, choice: Choice, call: int) -> bool:
        """Return whether rank 0 has not passed over a checkpoint while this rank waited for a shared folder."""
        now = self.agreement.read_choice(call)
        return now is not None and now.folder == choice.folder

    def _download(
        self, manifest: Manifest, folder: Path, files: str, is_current: Callable[[], bool] = lambda: True
    ) -> str:
        return download_files(
            self.store,
            manifest,
            folder,
            lambda file: fnmatch.fnmatch(file, files),
            report=self.report,
            is_current=is_current,
        )

    def _forget_shards(self, resumed: Manifest | None) -> None:
        if self.world.size > 1:
            self.saver.forget_shards(0 if resumed is None else resumed.step)
