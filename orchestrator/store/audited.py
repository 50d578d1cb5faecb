"""The rules of the audit: how events name rows, which columns are left out and why, and the chain of hashes.

Every event names the row that it changed by a subject: "cluster UID", "intent UID/GENERATION", "job UID/ID",
"attempt UID/JOB/ATTEMPT", "pipeline UID", "host_pin NAME", "slice_owner TOKEN", "order UID", "token DIGEST",
"budget PROJECT/MEMBER", "session DIGEST", "invitation DIGEST", "sign_in IDENTITY", "trust_rule UID",
"project_setting PROJECT/KEY", "bill LINE", "block ID", "prediction RUN", "trusted_checkpoint RUN/DIGEST". Each event's
hash covers its content and the hash of the event before, so that a row that was changed, removed or moved later is
found (replay.verify_chain). Pure: no database library.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FORM = "1:"  # begins every hash, so that another form can follow
KEYS: dict[str, tuple[str, ...]] = {
    "clusters": ("uid",),
    "intents": ("cluster_uid", "generation"),
    "jobs": ("cluster_uid", "id"),
    "attempts": ("cluster_uid", "job_id", "attempt"),
    "pipelines": ("uid",),
    "host_pins": ("name",),
    "slice_owners": ("token",),
    "orders": ("uid",),
    "tokens": ("digest",),
    "budgets": ("project", "member"),
    "sessions": ("digest",),
    "invitations": ("digest",),
    "sign_ins": ("identity",),
    "trust_rules": ("uid",),
    "project_settings": ("project", "key"),
    "bills": ("line",),
    "blocks": ("block_id",),
    "predictions": ("run_id",),
    "trusted_checkpoints": ("run_id", "digest"),
}
_NUMBERS = frozenset({"generation", "id", "job_id", "attempt"})

# Columns that repeat what can be read again and change with every observation. Their events would hide the others.
NOT_AUDITED: dict[str, dict[str, str]] = {
    "clusters": {
        "hosts": "addresses as the provider last reported; read again at every observation",
        "held": "contents that hosts last reported; the marks on the hosts decide",
        "last_state": "state as the provider last reported; read again at every observation",
        "last_seen": "when that was",
    },
    "sessions": {"used": "when it was last used, every ten minutes; its begin and end are events"},
    "intents": {"touched": "when a request was last sent; `since` is the time of the state"},
    "budgets": {"revision": "rises with each slice that is planned, whose intent is audited"},
}
# Columns that a later version added: events from before do not name them, and mean this value.
DEFAULTS: dict[str, dict[str, str]] = {}
# Whole tables without events.
TABLES_NOT_AUDITED: dict[str, str] = {
    "admissions": "renewed every day, and ends by itself; what members ask for is audited in orders",
    "provider_records": "how a provider finds its machines again; the events of the intent tell what happened",
    "entry_codes": "digests of what works once; the session or token that one opens has its event",
    "run_keys": "secrets: an event would show them to everyone who may read events",
    "blobs": "contents by their digests; the events of jobs have the digests",
    "progress": "what engines do at the moment, kept for a week; what they did has its events",
    "notification_channels": "how far messages about the events were delivered; one that fails is tried again",
    "leases": "who works on a cluster now; renewed every few seconds, expires, and decides nothing later",
    "meta": "the installation's name, the version of the tables, and the head of this chain",
    "events": "they are the audit",
}


@dataclass(frozen=True, slots=True)
class Head:
    """The newest event of the chain: its number and its hash; 0 and "" before the first."""

    seq: int = 0
    hash: str = ""

    @classmethod
    def parse(cls, text: str) -> Head:
        """Return the head that `str(head)` wrote."""
        seq, _, digest = text.partition(" ")
        return cls(int(seq), digest)

    def __str__(self) -> str:
        return f"{self.seq} {self.hash}"


def format_subject(table: str, row: Mapping[Any, Any]) -> str:
    """Return the name of a row in events and messages, such as "job UID/3". A `/` or `%` in a key is escaped."""
    return f"{table[:-1]} " + "/".join(_escape(str(row[column])) for column in KEYS[table])


def parse_subject(text: str) -> tuple[str, dict[str, Any]]:
    """Return the table and the key columns that a subject names. Raises ValueError for another text."""
    kind, _, key = text.partition(" ")
    columns = KEYS.get(f"{kind}s", ())
    parts = key.split("/")
    if not columns or len(parts) != len(columns):
        raise ValueError(f"not the subject of an event: {text!r}")
    named = zip(columns, map(_unescape, parts), strict=True)
    return f"{kind}s", {column: int(part) if column in _NUMBERS else part for column, part in named}


def _escape(key: str) -> str:
    return key.replace("%", "%25").replace("/", "%2F")


def _unescape(key: str) -> str:
    return key.replace("%2F", "/").replace("%25", "%")


def select_audited(table: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return `values` without the columns that the audit leaves out."""
    left_out = NOT_AUDITED.get(table, {})
    return {column: value for column, value in values.items() if column not in left_out}


def to_json(values: dict[str, Any] | None) -> str | None:
    """Return the columns as JSON with sorted keys; None stays None."""
    return None if values is None else json.dumps(values, sort_keys=True)


def hash_event(event: Mapping[str, Any], prev_hash: str) -> str:
    """Return the hash of a new event: FORM, and the SHA-256 of the hash before it and of the event's content.

    Each column is one text: `-` for NULL, else its length in bytes of UTF-8, a colon, and itself. `at` is the eight
    bytes of the number as hexadecimal digits, so no rule for writing numbers is needed.

    Args:
        event: every column but the two hashes.
        prev_hash: the hash of the event before, "" for the first.
    """
    columns = (prev_hash, str(event["seq"]), struct.pack(">d", event["at"] + 0.0).hex())
    texts = ("cluster", "actor", "kind", "what", "subject", "cause", "before", "after")
    content = b"".join(map(_measured, (*columns, *(event[column] for column in texts))))
    return FORM + hashlib.sha256(content).hexdigest()


def is_hash_of(event: Mapping[str, Any]) -> bool:
    """Return whether the hash of an event is that of its content."""
    return bool(event["hash"] == hash_event(event, event["prev_hash"]))


def _measured(text: str | None) -> bytes:
    if text is None:
        return b"-"
    encoded = text.encode()
    return b"%d:%b" % (len(encoded), encoded)


def clean_text(value: Any) -> Any:
    """Return a value that every database can hold. Output of hosts may contain NUL and lone surrogates.

    The zero of floats loses its sign, since SQLite does not keep it.
    """
    if isinstance(value, float):
        return value + 0.0
    if not isinstance(value, str):
        return value
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
