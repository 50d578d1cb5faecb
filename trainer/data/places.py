"""What the words of `data=` mean: a place, and which files or objects below it."""

from __future__ import annotations

import fnmatch
import os
import sysconfig
from pathlib import Path

from trainer.checkpoint.store import Entry, Store
from trainer.errors import DataError

PYTHON_STDLIB = "python-stdlib"
HUB = "hf://"
EVERYTHING = "*"


def is_bucket(place: str) -> bool:
    return place.startswith(("s3://", "gs://"))


def split_pattern(source: str) -> tuple[str, str]:
    """`place:GLOB` -> both, without `file://`; a place whose own name holds a colon is taken as a whole when it is
    there. Raises DataError when there is no place: an empty path would be the current folder."""
    scheme, separator, rest = source.rpartition("://")
    if not rest or rest.startswith(":"):
        raise DataError(f"data={source} names no place: give a path, a bucket folder or hf://NAME")
    if not separator and Path(source).expanduser().exists():
        return source, EVERYTHING
    place, colon, pattern = rest.rpartition(":")
    if not colon or not pattern:
        place, pattern = rest, EVERYTHING
    return (place if scheme in ("", "file") else f"{scheme}{separator}{place}"), pattern


def stdlib_files() -> list[tuple[str, Path]]:
    """The source files of this Python's standard library. Raises DataError."""
    root = Path(sysconfig.get_path("stdlib"))
    files = _walk(root, "*.py", skip=frozenset({"site-packages", "dist-packages"}))
    if not files:
        raise DataError(f"data={PYTHON_STDLIB}: this Python has no source files in {root}")
    return files


def local_files(place: Path, pattern: str) -> list[tuple[str, Path]]:
    """Files below `place` by their relative names, in order of these. Raises DataError when there are none."""
    if place.is_file():
        return [(place.name, place)]
    if not place.is_dir():
        raise DataError(f"data={place}: no such file or folder on this host, looked for at {place.absolute()}")
    files = _walk(place, pattern, skip=frozenset())
    if not files:
        raise DataError(f"data={place}: no file here matches {pattern}")
    return files


def bucket_objects(store: Store, pattern: str) -> list[Entry]:
    """Objects below the folder, in order of their names. Raises DataError when there are none, StorageError."""
    entries = [entry for entry in store.entries("") if _matches(entry.path, pattern)]
    if not entries:
        raise DataError(f"data={store.uri}: no object here matches {pattern}")
    return sorted(entries, key=lambda entry: entry.path)


def _walk(root: Path, pattern: str, skip: frozenset[str]) -> list[tuple[str, Path]]:
    """Without hidden files and without folders named in `skip`."""
    found: list[tuple[str, Path]] = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in skip and not name.startswith(".")]
        inside = os.path.relpath(folder, root)
        prefix = "" if inside == "." else f"{inside}/"
        found += [
            (f"{prefix}{name}", Path(folder, name))
            for name in names
            if not name.startswith(".") and _matches(f"{prefix}{name}", pattern)
        ]
    return sorted(item for item in found if item[1].is_file())


def _matches(name: str, pattern: str) -> bool:
    """`*` stands for any text, slashes too, so `*.py` and `**/*.py` mean the same."""
    return fnmatch.fnmatchcase(name, pattern.removeprefix("**/"))
