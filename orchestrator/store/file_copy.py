"""A copy of the last committed state of a SQLite file, made completely or not at all."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path


def copy_committed_state(database: Path, target: Path) -> None:
    """Copy a file and what its log adds to it, whatever others write meanwhile.

    Raises:
        OSError: the copy cannot be written.
        sqlite3.Error: the same, or the file cannot be read.
    """
    unfinished = target.with_name(target.name + ".part")  # one that a killed command left is removed
    unfinished.unlink(missing_ok=True)
    with (
        closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(unfinished)) as copy,
    ):
        source.backup(copy)
    unfinished.chmod(0o600)
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
    unfinished.replace(target)
