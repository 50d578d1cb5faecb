"""Parsing of the setting `data`: a place, and which files or objects below it."""

from __future__ import annotations

import fnmatch
import os
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from trainer.checkpoint.store import ObjectEntry, Store
from trainer.data.files.local_files import check_regular
from trainer.errors import DataError

PYTHON_STDLIB = "python-stdlib"
HUB_SCHEME = "hf://"
MATCH_ALL = "*"
_NAMED = 3  # files in a message


def is_bucket(place: str) -> bool:
    """Return whether the place is in a bucket."""
    return place.startswith(("s3://", "gs://"))


def split_pattern(source: str) -> tuple[str, str]:
    """Split `place:GLOB` into both, without `file://`.

    A path that exists and contains a colon is taken as a whole.

    Raises:
        DataError: There is no place: an empty path would be the current folder.
    """
    scheme, separator, rest = source.rpartition("://")
    if not rest or rest.startswith(":"):
        raise DataError(f"data={source} names no place: give a path, a bucket folder or hf://NAME")
    if not separator and Path(source).expanduser().exists():
        return source, MATCH_ALL
    place, colon, pattern = rest.rpartition(":")
    if not colon or not pattern:
        place, pattern = rest, MATCH_ALL
    return (place if scheme in ("", "file") else f"{scheme}{separator}{place}"), pattern


def list_stdlib_files() -> list[tuple[str, Path]]:
    """List the source files of this Python's standard library.

    Raises:
        DataError: This Python has no source files.
    """
    root = Path(sysconfig.get_path("stdlib"))
    files = _walk(root, "*.py", skip=frozenset({"site-packages", "dist-packages"}))
    if not files:
        raise DataError(f"data={PYTHON_STDLIB}: this Python has no source files in {root}")
    return files


def list_local_files(place: Path, pattern: str) -> list[tuple[str, Path]]:
    """List the files below `place` with their relative names, sorted by name.

    Raises:
        DataError: There are none.
    """
    if place.is_file():
        return [(place.name, place)]
    if place.exists() and not place.is_dir():
        check_regular(place, place.stat().st_mode)
    if not place.is_dir():
        several = "; several sources need data.weights" if "," in str(place) else ""
        raise DataError(f"data={place}: no such file or folder on this host: {place.absolute()}{several}")
    files = _walk(place, pattern, skip=frozenset())
    if not files:
        raise DataError(f"data={place}: no file here matches {pattern}")
    return files


def list_bucket_objects(store: Store, pattern: str) -> list[ObjectEntry]:
    """List the objects below the folder, sorted by name.

    Raises:
        DataError: There are none.
        StorageError: The bucket cannot be read.
    """
    entries = [entry for entry in store.list_objects("") if _matches(entry.path, pattern)]
    if not entries:
        raise DataError(f"data={store.uri}: no object here matches {pattern}")
    return sorted(entries, key=lambda entry: entry.path)


def check_filled(source: str, sizes: Mapping[str, int]) -> None:
    """Check that files or objects have content.

    Raises:
        DataError: All are empty; it names them.
    """
    if any(sizes.values()):
        return
    names = ", ".join([*list(sizes)[:_NAMED], *(["..."] if len(sizes) > _NAMED else [])])
    raise DataError(f"data={source}: {'the file' if len(sizes) == 1 else 'every file'} here is empty: {names}")


def _walk(root: Path, pattern: str, skip: frozenset[str]) -> list[tuple[str, Path]]:
    """List matching files below `root`, without hidden files and without folders named in `skip`."""
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
    """Match a name against a glob; `*` matches any text with slashes, so `*.py` and `**/*.py` are equal."""
    return fnmatch.fnmatchcase(name, pattern.removeprefix("**/"))
