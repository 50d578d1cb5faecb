"""Index of the contents of files that were copied, as git's: a file of the same status is not read again.

A file may change within one tick of a file system's clock, which its times do not show. One that was changed shortly
before it was read is therefore not noted (git, Documentation/technical/racy-git.txt).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from orchestrator.private_files import make_private_folder, write_whole

_RACY = 2_000_000_000  # nanoseconds since its last change: FAT has times of two seconds
_KEPT_SECONDS = 30 * 86400.0
_VERSION = 1
NOTHING: Mapping[str, str] = MappingProxyType({})


def identify_content(status: os.stat_result) -> str:
    """Return what changes with the content of a file; "" where it changed so shortly ago that it may not."""
    if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) < _RACY:
        return ""
    return f"{status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def load_file_index(folder: Path, root: Path) -> Mapping[str, str]:
    """Return what is known of the files below a root (remote/tree.py), by what identifies their content."""
    try:
        found = json.loads(_place(folder, root).read_bytes())
        return dict(found["files"]) if found["version"] == _VERSION else NOTHING
    except (OSError, ValueError, KeyError, TypeError):  # damaged: the files are read again
        return NOTHING


def save_file_index(folder: Path, root: Path, files: Mapping[str, str]) -> None:
    """Replace what is known of the files below a root."""
    make_private_folder(folder)
    content = json.dumps({"version": _VERSION, "root": str(root), "files": dict(files)})
    write_whole(_place(folder, root), content, flush=False)


def drop_old_indexes(folder: Path) -> None:
    """Delete what is known of folders from which nothing was copied for a month: they may be gone."""
    oldest = time.time() - _KEPT_SECONDS
    for place in folder.glob("*.json"):
        with contextlib.suppress(FileNotFoundError):  # another launch deletes it
            if place.stat().st_mtime < oldest:
                place.unlink()


def _place(folder: Path, root: Path) -> Path:
    return folder / f"{hashlib.sha256(os.fsencode(root.absolute())).hexdigest()[:32]}.json"
