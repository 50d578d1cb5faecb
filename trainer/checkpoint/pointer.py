"""Moves `latest` forward, and removes checkpoints that are far enough behind it.

It moves back only when a start of the run finds that what it names is lost or damaged: see `repair_latest`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from ..errors import StorageError
from .claim import raise_taken_over
from .manifest import LATEST, CorruptCheckpoint, Latest, Manifest, StepFolder, order_step_folders
from .store import Store

_TRIES = 100


def read_latest(store: Store) -> Latest | None:
    """Return the pointer; None if there is none.

    Raises:
        CorruptCheckpoint: It cannot be parsed.
        StorageError: It cannot be read.
    """
    found = store.find(LATEST)
    return None if found is None else Latest.from_json(found.data)


def advance_latest(store: Store, folder: StepFolder) -> bool:
    """Make `latest` name this checkpoint, unless it already names it or a later step.

    Any number of writers may race; each step has at most one winner of an epoch, and the pointer never moves back.

    Returns:
        True for the writer that moved it.

    Raises:
        TakenOver: It is of a later epoch.
        StorageError: The bucket fails, or others change the pointer too often.
    """

    def advance(found: Latest | None) -> Latest | None:
        if found is not None and (found.step > folder.step or found.manifest == folder.manifest):
            return None
        if found is not None and found.step == folder.step and not folder.epoch:
            return None
        return Latest(folder.step, folder.manifest, folder.epoch)

    return _move(store, folder.epoch, advance)


def fence_latest(store: Store, epoch: int) -> None:
    """Make `latest` refuse every epoch below this one, from before this start reads its first checkpoint.

    Where there is none, it names the newest complete checkpoint.

    Raises:
        TakenOver: It is of a later epoch.
        StorageError: The bucket fails, or others change the pointer too often.
    """

    def fence(found: Latest | None) -> Latest | None:
        if found is not None and found.epoch == epoch:
            return None
        newest = found if found is not None else _find_newest(store)
        return Latest(newest.step, newest.manifest, epoch)

    _move(store, epoch, fence)


def repair_latest(store: Store, resumed: StepFolder | None, epoch: int) -> bool:
    """Make `latest` name the checkpoint from which this start resumes, where it names a later step.

    Those between were all refused: they are lost or damaged. Without this, no checkpoint would be pruned until training
    has passed the step that `latest` names.

    Args:
        store: The folder of checkpoints.
        resumed: The newest intact checkpoint; None where there is none.
        epoch: Of this start.

    Returns:
        True if it was moved back.

    Raises:
        TakenOver: It is of a later epoch.
        StorageError: The bucket fails, or others change the pointer too often.
    """
    intact = Latest(0, "", epoch) if resumed is None else Latest(resumed.step, resumed.manifest, epoch)

    def repair(found: Latest | None) -> Latest | None:
        return intact if found is not None and found.step > intact.step else None

    return _move(store, epoch, repair)


def prune_checkpoints(
    store: Store,
    keep: int,
    keep_every: int = 0,
    epoch: int = 0,
    *,
    losses: dict[StepFolder, float | None] | None = None,
) -> list[str]:
    """Remove all but the newest `keep` complete checkpoints; return the names of the folders that were removed.

    Never removed: what `latest` names, anything newer, complete or not (another writer may be writing it), and
    everything of an epoch above `epoch`; complete ones at a multiple of `keep_every` (0: none); with `losses` the
    newest of those with the lowest loss of an evaluation (what is read is added to it); imported weights (step 0),
    which no training reproduces. Older folders without a manifest are left over from killed writers and are removed as
    well. Nothing is removed once `latest` is of a later epoch.
    """
    latest = read_latest(store)
    if latest is None or latest.epoch > epoch:
        return []
    folders = [
        folder
        for folder, _ in order_step_folders(store.list_folders(), latest)
        if 0 < folder.step <= latest.step and folder.epoch <= epoch
    ]
    best = _find_best(store, folders, losses) if losses is not None and len(folders) > keep else None
    kept, removed = 0, list[str]()
    for folder in folders:
        entries = store.list_objects(folder.name)
        complete = any(entry.path == folder.manifest for entry in entries)
        if complete and folder == best and kept >= keep:
            continue
        recent = folder.manifest == latest.manifest or (complete and kept < keep)
        if recent or (complete and keep_every and folder.step % keep_every == 0):
            kept += complete
            continue
        rest = [entry.path for entry in entries if entry.path != folder.manifest]
        if complete:
            store.delete([folder.manifest])  # first: what is left is no checkpoint
        store.delete(rest)
        store.remove_leftovers(folder.name)
        removed.append(folder.name)
    return removed


def _find_best(
    store: Store, folders: Sequence[StepFolder], losses: dict[StepFolder, float | None]
) -> StepFolder | None:
    """Return the first of the complete checkpoints with the lowest loss of an evaluation; None without one."""
    for folder in folders:
        if folder not in losses and (found := store.find(folder.manifest)) is not None:
            losses[folder] = None
            with suppress(CorruptCheckpoint):
                losses[folder] = Manifest.from_json(found.data, folder).eval_loss
    known = {folder: loss for folder in folders if (loss := losses.get(folder)) is not None}
    return min(known, key=known.__getitem__, default=None)


def _move(store: Store, epoch: int, change: Callable[[Latest | None], Latest | None]) -> bool:
    """Replace the pointer by what `change` makes of it; a pointer that cannot be parsed counts as none."""
    for _ in range(_TRIES):
        found, before = store.find(LATEST), None
        if found is not None:
            with suppress(CorruptCheckpoint):
                before = Latest.from_json(found.data)
        if before is not None and before.epoch > epoch:
            raise_taken_over(before.epoch, epoch)
        after = change(before)
        if after is None:
            return False
        if store.replace_if_unchanged(LATEST, after.to_json(), found.version if found else None):
            return True
    raise StorageError(f"{store.uri}/{LATEST}: changed by others {_TRIES} times while this process tried to move it")


def _find_newest(store: Store) -> Latest:
    for folder, _ in order_step_folders(store.list_folders(), None):
        if store.find(folder.manifest) is not None:
            return Latest(folder.step, folder.manifest)
    return Latest(0, "")
