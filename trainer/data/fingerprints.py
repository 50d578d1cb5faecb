"""Fingerprints of corpora: of names and sizes, and where it is known also of the content.

A fingerprint is `NAMES` or `NAMES/KIND:CONTENT`. NAMES is a digest of names, sizes and order, which is all that
earlier versions recorded; for token shards it covers the tokens themselves. KIND is what the content is known by:
`sha256` for files, `tags-PLACE` for the entity tags of a bucket. Contents of different kinds cannot be compared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from trainer.checkpoint.store import ObjectEntry
from trainer.data.extents import Piece, fingerprint_pieces

_SHA256 = "sha256"


def fingerprint_files(pieces: Sequence[Piece], digests: Sequence[str]) -> str:
    """Return the fingerprint of files; `digests` has the SHA-256 of each."""
    return _join(fingerprint_pieces(pieces), _SHA256, _digest(digests))


def fingerprint_objects(place: str, entries: Sequence[ObjectEntry]) -> str:
    """Return the fingerprint of a bucket's objects; `place` is their folder, outside which tags mean nothing."""
    names = fingerprint_pieces([Piece(entry.path, entry.size) for entry in entries])
    if not all(entry.tag for entry in entries):
        return names
    return _join(names, f"tags-{_digest([place])[:8]}", _digest([entry.tag for entry in entries]))


def join_fingerprints(parts: Sequence[str]) -> str:
    """Return the fingerprint of a mixture."""
    split = [_split(part) for part in parts]
    names = _digest([names for names, _, _ in split])
    if not any(content for _, _, content in split):
        return names
    kinds = _digest([kind for _, kind, _ in split])
    return _join(names, f"mixture-{kinds[:8]}", _digest([content for _, _, content in split]))


def drop_content(fingerprint: str) -> str:
    """Return the fingerprint as earlier versions recorded it."""
    return _split(fingerprint)[0]


def is_same_corpus(first: str, second: str) -> bool:
    """Return whether two fingerprints can be of one corpus: as far as both know its content, it is the same."""
    names, kind, content = _split(first)
    other_names, other_kind, other_content = _split(second)
    return names == other_names and (kind != other_kind or content == other_content)


def _split(fingerprint: str) -> tuple[str, str, str]:
    names, _, known = fingerprint.partition("/")
    kind, _, content = known.partition(":")
    return names, kind, content


def _join(names: str, kind: str, content: str) -> str:
    return f"{names}/{kind}:{content}"


def _digest(values: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(list(values)).encode()).hexdigest()[:32]
