"""Our owner tags as Google's labels, and back.

Keys and values of labels hold lower-case letters, digits, `-` and `_`, at most 63 of them, and a key begins with a
letter (Compute Engine documentation, "Requirements for labels", 2025). A value of ours that is not so is written in
base32 over as many labels as it takes, so that the same value comes back. The user's own labels are only for people:
what is not allowed there becomes `-`, with a hash so that two of them stay two.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping

from orchestrator.values import Text

INSTALLATION = "orch-installation"
CLUSTER = "orch-cluster"
INTENT = "orch-intent"
EPOCH = "orch-epoch"  # only of what was taken over; else 1
PROJECT = "orch-project"
MEMBER = "orch-member"
ADOPTED = "orch-adopted"  # on TPU VMs of their owner that an earlier `orch adopt` labelled: they are never ours to end
LONGEST = 63
_OURS = (INSTALLATION, CLUSTER, INTENT, EPOCH, PROJECT, MEMBER)
_CODED = "b32-"
_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_MOST_PARTS = 9


def to_google(pairs: Iterable[tuple[str, Text]]) -> dict[str, Text]:
    """The labels of a node. A value that is not known yet stays as it is. Raises ValueError over 340 bytes."""
    found: dict[str, Text] = {}
    for key, value in pairs:
        if not value.is_known:
            found[key] = value
        elif key in _OURS:
            found |= {name: Text.of(part) for name, part in _coded(key, value.reveal()).items()}
        else:
            found[_readable(key, _KEY)] = Text.of(_readable(value.reveal(), _VALUE))
    return found


def from_google(labels: Mapping[str, str], key: str) -> str:
    """The value of one of our own labels; "" when there is none, or when it is none of ours."""
    first = labels.get(key, "")
    if not first.startswith(_CODED):
        return first
    parts = [first.removeprefix(_CODED)]
    while (more := labels.get(_name(key, len(parts)))) is not None:
        parts.append(more)
    word = "".join(parts).upper()
    try:
        return base64.b32decode(word + "=" * (-len(word) % 8)).decode()
    except ValueError:
        return ""


def _coded(key: str, value: str) -> dict[str, str]:
    if _VALUE.fullmatch(value) and not value.startswith(_CODED):
        return {key: value}
    word = _CODED + base64.b32encode(value.encode()).decode().rstrip("=").lower()
    parts = [word[start : start + LONGEST] for start in range(0, len(word), LONGEST)]
    if len(parts) > _MOST_PARTS:
        raise ValueError(f"the label {key} is too long: {len(value)} characters")
    return {_name(key, number): part for number, part in enumerate(parts)}


def _name(key: str, number: int) -> str:
    return f"{key}-{number + 1}" if number else key


def _readable(word: str, allowed: re.Pattern[str]) -> str:
    if allowed.fullmatch(word):
        return word
    digest = hashlib.sha256(word.encode()).hexdigest()[:8]
    clean = re.sub(r"[^a-z0-9_-]", "-", word.lower())[: LONGEST - 11]
    return f"l-{clean}-{digest}" if allowed is _KEY else f"{clean}-{digest}"
