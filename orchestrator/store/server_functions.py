"""The functions of a store on PostgreSQL: data/postgresql.sql with the tables and columns of the audit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from orchestrator.store.audited import KEYS, NOT_AUDITED

_FILE = Path(__file__).parent / "data" / "postgresql.sql"
_BETWEEN = "\n---\n"


def install_functions(tx: Connection) -> None:
    """Create or replace the functions and triggers in the schema that has the tables."""
    source = _FILE.read_text(encoding="utf-8")
    left_out = {table: list(columns) for table, columns in NOT_AUDITED.items()}
    source = source.replace("@KEYS@", _quoted(KEYS)).replace("@LEFT_OUT@", _quoted(left_out))
    for statement in source.split(_BETWEEN):
        tx.exec_driver_sql(statement.replace("%", "%%"))  # a percent sign would begin a parameter


def _quoted(value: Any) -> str:
    """Return JSON as a text of SQL. It consists of the names of our tables and columns."""
    return f"'{json.dumps(value)}'"
