"""Local files, known by their content: the SHA-256 of each, and its form by its first bytes.

A file is read once. What was found is kept in the cache folder with the file's device, inode, size and times, and holds
until one of them changes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from trainer.checkpoint.store import ObjectEntry, Store
from trainer.data.files.cache import find_cache_folder, hold_lock, replace_file
from trainer.data.files.forms import HEAD_BYTES, Form, recognize_form
from trainer.data.files.local_files import check_unchanged, open_regular_file, read_state
from trainer.environment import usable_cores
from trainer.errors import DataError

_TICK_SECONDS = 2.0  # two writes within the clock ticks of a file system (FAT: 2 s) can leave equal times
_RULES = "2"  # another number where trainer/data/files/forms.py recognizes files otherwise
_LONG_BYTES = 8 << 30
_THREADS = 8
_SAMPLE = 256
_REQUESTS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """The content of a file."""

    sha256: str
    form: Form


def inspect_files(
    files: Sequence[tuple[str, Path]], report: Callable[[str], None], *, trusted: bool = False
) -> list[Inspected]:
    """Return what is known of the files' content, in their order.

    Args:
        files: Names for messages, and paths.
        report: Prints one line for the user, before a long time of reading.
        trusted: All files are text, whatever their first bytes are.

    Raises:
        DataError: A file cannot be read, or is of a form that no reader knows.
    """
    with ExitStack() as stack:
        kept = _open_kept(files, stack)
        known = {} if kept is None else _load(kept)
        before = [_identify(path) for _, path in files]
        missing = [index for index, (identity, _) in enumerate(before) if identity not in known]
        size = sum(before[index][1] for index in missing)
        if size >= _LONG_BYTES:
            report(f"note: reading {size / 1e9:,.0f} GB once, to know the files by their content")
        begun = time.time()
        inspect = partial(_inspect, trusted=trusted)
        with ThreadPoolExecutor(min(_THREADS, usable_cores()), thread_name_prefix="inspect") as pool:
            read = pool.map(inspect, [files[index] for index in missing])
            known |= {before[index][0]: one for index, one in zip(missing, read, strict=True)}
        if missing and kept is not None:
            with suppress(OSError):
                kept_now = {
                    identity: asdict(known[identity])
                    for (identity, _), (_, path) in zip(before, files, strict=True)
                    if _has_distinct_times(path, identity, begun)
                }
                replace_file(kept, json.dumps(kept_now).encode())
        return [known[identity] for identity, _ in before]


def _open_kept(files: Sequence[tuple[str, Path]], stack: ExitStack) -> Path | None:
    """Lock the file in which is kept what was found of these files; None where each start has to read them."""
    places = [_RULES, *(str(path.absolute()) for _, path in files)]
    key = hashlib.sha256("\n".join(places).encode(errors="surrogateescape")).hexdigest()
    try:
        kept = find_cache_folder() / "files" / f"{key[:32]}.json"
        kept.parent.mkdir(parents=True, exist_ok=True)
        stack.enter_context(hold_lock(kept.with_suffix(".lock")))
    except (OSError, DataError):
        return None
    return kept


def are_plain_objects(store: Store, entries: Sequence[ObjectEntry], column: str) -> bool:
    """Return whether objects of a bucket are text that is read in place, by the beginnings of up to 256 of them.

    Raises:
        DataError: An object is of a form that no reader knows.
        StorageError: The bucket cannot be read.
    """
    filled = [entry for entry in entries if entry.size]
    sample = filled[:: -(-len(filled) // _SAMPLE) or 1]

    def is_plain(entry: ObjectEntry) -> bool:
        (head,) = store.read_ranges(entry.path, [0], [min(HEAD_BYTES, entry.size)])
        return recognize_form(entry.path, head, store.name_object(entry.path)).is_plain(column)

    with ThreadPoolExecutor(_REQUESTS, thread_name_prefix="inspect") as pool:
        return all(list(pool.map(is_plain, sample)))


def _inspect(file: tuple[str, Path], *, trusted: bool) -> Inspected:
    name, path = file
    try:
        before = read_state(path)
        with open_regular_file(path) as stream:
            head = stream.read(HEAD_BYTES)
            form = Form(kind="text") if trusted else recognize_form(name, head, str(path))
            stream.seek(0)
            digest = hashlib.file_digest(cast("io.BufferedReader", stream), "sha256").hexdigest()
        check_unchanged(path, before)
        return Inspected(sha256=digest, form=form)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


def _identify(path: Path) -> tuple[str, int]:
    """Return the identity of a file's state, and its size."""
    try:
        found = path.stat()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    return _format_identity(found), found.st_size


def _format_identity(found: os.stat_result) -> str:
    return f"{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}"


def _has_distinct_times(path: Path, identity: str, begun: float) -> bool:
    """Return whether a later change of the file is sure to show in its identity."""
    found = path.stat()
    return _format_identity(found) == identity and max(found.st_mtime, found.st_ctime) < begun - _TICK_SECONDS


def _load(path: Path) -> dict[str, Inspected]:
    """Return what is kept; nothing from a file that cannot be used."""
    try:
        content: Any = json.loads(path.read_bytes())
        return {
            str(identity): Inspected(sha256=str(one["sha256"]), form=Form(**one["form"]))
            for identity, one in content.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
