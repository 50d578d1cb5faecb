"""The corpus of verbatim answers: its entries, as they stand in the TOML files of this folder."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One answer, state or line of a log.

    Attributes:
        call: What was asked, or where the text stands.
        form: How the answer reaches the client: tpu (REST, google-api-core), compute (REST, google-api-python-client),
            operation (google.rpc.Status), compute-operation (errors of an operation), refresh (token endpoint),
            ec2, query, json, s3 (protocols of AWS), queued-state, instance-state, text (a line of a log).
        code: The vendor's code, or the number of a google.rpc.Code.
        text: Verbatim, with names of accounts and projects masked.
        source: The public address; "code index: " where the index names no address.
        date: Of the post, or of the reading.
        kind: What it means, see faults.Kind; for states and texts a word of this corpus.
        next: next place, next region, next market, retry, wait or stop.
        step: A word or command that the message must contain.
        note: What a reader must know about the entry.
    """

    id: str
    call: str
    form: str
    text: str
    source: str
    date: str
    kind: str
    next: str
    http: int = 0
    code: str | int = ""
    status: str = ""
    reason: str = ""
    error: str = ""
    service: str = ""
    state: str = ""
    details: tuple[Mapping[str, Any], ...] = field(default=())
    step: str = ""
    note: str = ""
    file: str = ""


def load_corpus() -> tuple[Entry, ...]:
    """Return all entries, in the order of the files."""
    found: list[Entry] = []
    names = {one.name for one in fields(Entry)}
    for path in sorted(FOLDER.glob("*.toml")):
        for one in tomllib.loads(path.read_text(encoding="utf-8"))["answer"]:
            unknown = set(one) - names
            if unknown:
                raise ValueError(f"{path.name}: {one.get('id')} has unknown fields {sorted(unknown)}")
            found.append(Entry(**{**one, "details": tuple(one.get("details", ())), "file": path.name}))
    return tuple(found)
