"""The rules of the audit: which rows events speak of, what is left out and why, and the chain of hashes.

Every event names the row that it changed by a subject: "cluster UID", "intent UID/GENERATION", "job UID/ID",
"attempt UID/JOB/ATTEMPT", "pipeline UID". Each event's hash covers its content and the hash of the event before, so
that a row that was changed, removed or moved later is found (replay.verify). Pure: no database library.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

KEYS: dict[str, tuple[str, ...]] = {
    "clusters": ("uid",),
    "intents": ("cluster_uid", "generation"),
    "jobs": ("cluster_uid", "id"),
    "attempts": ("cluster_uid", "job_id", "attempt"),
    "pipelines": ("uid",),
}
_NUMBERS = frozenset({"generation", "id", "job_id", "attempt"})

# Columns that only repeat what can be asked again, and change with every look. An event for each would bury the rest.
NOT_AUDITED: dict[str, dict[str, str]] = {
    "clusters": {
        "hosts": "addresses as the provider last said; asked again at every look",
        "held": "what hosts were last seen to hold; the hosts' own marks decide",
        "last_state": "what the provider last said; asked again at every look",
        "last_seen": "when that was",
    },
    "intents": {"touched": "when a request was last sent again; the state's own time is `since`"},
}
# Whole tables without events.
TABLES_NOT_AUDITED: dict[str, str] = {
    "leases": "who is at work now; renewed every few seconds, expires by itself, and decides nothing afterwards",
    "meta": "the installation's name, the version of the tables, and the head of this chain",
    "events": "they are the audit",
}


@dataclass(frozen=True, slots=True)
class Head:
    """The newest event of the chain: its number and its hash; 0 and "" before the first."""

    seq: int = 0
    hash: str = ""

    @classmethod
    def read(cls, text: str) -> Head:
        seq, _, digest = text.partition(" ")
        return cls(int(seq), digest)

    def __str__(self) -> str:
        return f"{self.seq} {self.hash}"


def subject(table: str, row: dict[str, Any]) -> str:
    return f"{table[:-1]} " + "/".join(str(row[column]) for column in KEYS[table])


def place(text: str) -> tuple[str, dict[str, Any]]:
    """The table and the key columns that a subject names. Raises ValueError for another text."""
    kind, _, key = text.partition(" ")
    columns = KEYS.get(f"{kind}s", ())
    parts = key.split("/")
    if not columns or len(parts) != len(columns):
        raise ValueError(f"no subject of an event: {text!r}")
    named = zip(columns, parts, strict=True)
    return f"{kind}s", {column: int(part) if column in _NUMBERS else part for column, part in named}


def audited(table: str, values: dict[str, Any]) -> dict[str, Any]:
    """`values` without the columns that are left out."""
    left_out = NOT_AUDITED.get(table, {})
    return {column: value for column, value in values.items() if column not in left_out}


def to_json(values: dict[str, Any] | None) -> str | None:
    return None if values is None else json.dumps(values, sort_keys=True)


def digest(event: dict[str, Any], prev_hash: str) -> str:
    """SHA-256 over the row's content and the hash before it. `event` has every column but the two hashes."""
    columns = ("seq", "at", "cluster", "actor", "kind", "what", "subject", "cause", "before", "after")
    content = json.dumps([prev_hash, *(event[column] for column in columns)], separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()


def clean(value: Any) -> Any:
    """Text that every database can hold: no NUL, no half characters. What hosts print may have both."""
    if not isinstance(value, str):
        return value
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
