"""Moving `latest` forward, and removing what lies far enough behind it."""

from __future__ import annotations

from trainer.checkpoint.layout import LATEST, MANIFEST, Broken, Latest, step_folder, step_of
from trainer.checkpoint.store import Store
from trainer.errors import StorageError

_TRIES = 100


def read_latest(store: Store) -> Latest | None:
    """None when there is no pointer. Raises Broken and StorageError."""
    found = store.find(LATEST)
    return None if found is None else Latest.from_json(found.data)


def advance(store: Store, step: int) -> bool:
    """Let `latest` name this step, unless it names it or a later one already. True for the writer that moved it.

    Any number of writers may race; each step has at most one winner and the pointer never goes back.
    One that cannot be read is replaced.
    Raises StorageError.
    """
    wanted = Latest(step)
    for _ in range(_TRIES):
        found = store.find(LATEST)
        if found is not None:
            try:
                if Latest.from_json(found.data).step >= step:
                    return False
            except Broken:
                pass  # it names nothing: this checkpoint is whole, and the pointer is made anew
        if store.swap(LATEST, wanted.to_json(), found.version if found else None):
            return True
    raise StorageError(f"{store.uri}/{LATEST}: changed by others {_TRIES} times while it was to be moved")


def prune(store: Store, keep: int, keep_every: int = 0) -> list[int]:
    """Remove all but the newest `keep` complete checkpoints; returns the steps that were removed.

    Never removed: what `latest` names and anything newer, complete or not (another writer may be at it); complete ones
    at a multiple of `keep_every` (0: none); imported weights (step 0), which no training brings back.
    Older folders without a manifest are the remains of killed writers and go as well.
    """
    latest = read_latest(store)
    if latest is None:
        return []
    steps = sorted((step for name in store.folders() if (step := step_of(name))), reverse=True)
    kept, removed = 0, list[int]()
    for step in steps:
        if step > latest.step:
            continue
        entries = store.entries(step_folder(step))
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
        store.tidy(step_folder(step))
        removed.append(step)
    return removed
