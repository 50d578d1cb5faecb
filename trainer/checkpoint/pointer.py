"""Moves `latest` forward, and removes checkpoints that are far enough behind it."""

from __future__ import annotations

from trainer.checkpoint.layout import LATEST, Latest, parse_step_folder, step_folder
from trainer.checkpoint.manifest import MANIFEST, CorruptCheckpoint
from trainer.checkpoint.store import Store
from trainer.errors import StorageError

_TRIES = 100


def read_latest(store: Store) -> Latest | None:
    """Return the pointer; None if there is none.

    Raises:
        CorruptCheckpoint: It cannot be parsed.
        StorageError: It cannot be read.
    """
    found = store.find(LATEST)
    return None if found is None else Latest.from_json(found.data)


def advance_latest(store: Store, step: int) -> bool:
    """Make `latest` name this step, unless it already names it or a later one.

    Any number of writers may race; each step has at most one winner and the pointer never moves back. A pointer that
    cannot be parsed is replaced.

    Returns:
        True for the writer that moved it.

    Raises:
        StorageError: The bucket fails, or others change the pointer too often.
    """
    target = Latest(step)
    for _ in range(_TRIES):
        found = store.find(LATEST)
        if found is not None:
            try:
                if Latest.from_json(found.data).step >= step:
                    return False
            except CorruptCheckpoint:
                pass  # unreadable: this checkpoint is complete, so the pointer is replaced
        if store.replace_if_unchanged(LATEST, target.to_json(), found.version if found else None):
            return True
    raise StorageError(f"{store.uri}/{LATEST}: changed by others {_TRIES} times while this process tried to move it")


def prune_checkpoints(store: Store, keep: int, keep_every: int = 0) -> list[int]:
    """Remove all but the newest `keep` complete checkpoints; return the steps that were removed.

    Never removed: what `latest` names and anything newer, complete or not (another writer may be writing it); complete
    ones at a multiple of `keep_every` (0: none); imported weights (step 0), which no training reproduces. Older folders
    without a manifest are left over from killed writers and are removed as well.
    """
    latest = read_latest(store)
    if latest is None:
        return []
    steps = sorted((step for name in store.list_folders() if (step := parse_step_folder(name))), reverse=True)
    kept, removed = 0, list[int]()
    for step in steps:
        if step > latest.step:
            continue
        entries = store.list_objects(step_folder(step))
        manifest = f"{step_folder(step)}/{MANIFEST}"
        complete = any(entry.path == manifest for entry in entries)
        recent = step == latest.step or (complete and kept < keep)
        if recent or (complete and keep_every and step % keep_every == 0):
            kept += complete
            continue
        rest = [entry.path for entry in entries if entry.path != manifest]
        if complete:
            store.delete([manifest])  # first: what is left is no checkpoint
        store.delete(rest)
        store.remove_leftovers(step_folder(step))
        removed.append(step)
    return removed
