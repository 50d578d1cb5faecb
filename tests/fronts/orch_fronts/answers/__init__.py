"""Verbatim answers of the vendors: the corpus of tests/first_contact, and what the fronts answer with.

A front says an answer with its own values: `slots` of an entry names what changes in it, such as
`zone = ["us-central1-b"]` or, with the words around it, `limit = ["Limit: {4} in"]`. All else stays verbatim.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, cast

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
        slots: Places in the text and its details that a front fills, by their names; braces mark a part of a place.
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
    slots: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """An entry's text and details with the values of this moment."""

    entry: Entry
    text: str
    details: tuple[Mapping[str, Any], ...]


@cache
def load_answers() -> tuple[Entry, ...]:
    """Return all entries, in the order of the files.

    Raises:
        ValueError: An entry has a field that there is not.
    """
    found: list[Entry] = []
    names = {one.name for one in fields(Entry)}
    for path in sorted(FOLDER.glob("*.toml")):
        for one in tomllib.loads(path.read_text(encoding="utf-8"))["answer"]:
            unknown = set(one) - names
            if unknown:
                raise ValueError(f"{path.name}: {one.get('id')} has unknown fields {sorted(unknown)}")
            given: dict[str, Any] = {**one, "details": tuple(one.get("details", ())), "file": path.name}
            found.append(Entry(**given))
    return tuple(found)


@cache
def answers_by_id() -> Mapping[str, Entry]:
    return {entry.id: entry for entry in load_answers()}


def say(name: str, **values: object) -> Said:
    """Return an answer with these values in its slots; slots without a value stay as the vendor wrote them.

    Raises:
        KeyError: There is no such answer, or it has no such slot.
    """
    entry = answers_by_id()[name]
    replaced = dict(_filled(place, str(value)) for slot, value in values.items() for place in entry.slots[slot])
    return Said(entry=entry, text=_replace(entry.text, replaced), details=tuple(_replace(entry.details, replaced)))


def _filled(place: str, value: str) -> tuple[str, str]:
    """Return a place as it stands in the text, and with the value."""
    before, brace, rest = place.partition("{")
    if not brace:
        return place, value
    old, _, after = rest.partition("}")
    return f"{before}{old}{after}", f"{before}{value}{after}"


def _replace(value: Any, replaced: Mapping[str, str]) -> Any:
    """Replace in every text of a plain value."""
    if isinstance(value, str):
        return _replace_text(value, replaced)
    if isinstance(value, Mapping):
        return {key: _replace(one, replaced) for key, one in cast(Mapping[str, Any], value).items()}
    if isinstance(value, list | tuple):
        return [_replace(one, replaced) for one in cast(Sequence[Any], value)]
    return value


def _replace_text(text: str, replaced: Mapping[str, str]) -> str:
    """Replace the longest place first, since one may be part of another."""
    if not replaced:
        return text
    pattern = "|".join(re.escape(one) for one in sorted(replaced, key=len, reverse=True))
    return re.sub(pattern, lambda found: replaced[found[0]], text)
