"""A store that a test has copied: made to forget that it was, where the copy itself is not what is tested."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from orchestrator.store.other_state import WITNESS_FILE


def untie(database: Path) -> None:
    """Take off what ties a file to its place: the next command that opens it ties it to where it lies then."""
    database.with_name(WITNESS_FILE).unlink(missing_ok=True)
    with closing(sqlite3.connect(database)) as raw, raw:
        raw.execute("DELETE FROM meta WHERE key = 'tie'")
