"""What a writer of a bucket who means harm puts in the place of a small file of orch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

OPTIONS: tuple[object, ...] = (
    None, True, -1, 0, 10**30, 1.5, "", "x" * 100_000, "\x1b]52;c;aGk=\x07\r\u202e", "../../../etc/passwd", "/etc",
    "a\nb", [], ["x"], {}, {"a": [1]},
)  # fmt: skip

BODIES: dict[str, bytes] = {
    "empty": b"",
    "not UTF-8": b"\xff\xfe" * 50_000,
    "UTF-16": '{"epoch": 1}'.encode("utf-16"),
    "not JSON": b"\x00\x1b[8m" * 1000,
    "null": b"null",
    "a number": b"7",
    "a text": b'"\\u001b]52;c;aGk="',
    "a list": b"[]",
    "an object": b"{}",
    "NaN": b"NaN",
    "Infinity": b'{"step": Infinity, "epoch": 1e999}',
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "a long number": b'{"step": ' + b"9" * 5_000 + b"}",
    "a key twice": b'{"step": 1, "step": 2}',
}


def change_each_value(valid: Any) -> Iterator[bytes]:
    """Yield a valid document with one of its values replaced by each hostile one, or missing, and each bad body."""
    yield from BODIES.values()
    for key in valid:
        yield json.dumps({name: value for name, value in valid.items() if name != key}).encode()
        for value in OPTIONS:
            yield json.dumps({**valid, key: value}).encode()


def is_plain(text: str) -> bool:
    """Return whether an error is short enough for a person, and has no traceback in it."""
    return 0 < len(text) < 1_000 and "Traceback" not in text
