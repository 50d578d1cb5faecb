"""The form in which output of jobs is sent: a line of JSON about the job, then for each part a line and its bytes.

A line about a part has its file, rank, begin, size, and how many bytes before it are missing. Its bytes are those of
the program, unchanged, at the place that they have in the file on the host.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

MEDIUM = "application/vnd.orch.output"
MOST_BYTES = 2 << 20  # of the parts of one answer


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPart:
    """A part of one file.

    Attributes:
        file: Such as `attempt-0002/0.log`; the name is the host's rank.
        rank: The host.
        begin: Where it begins in the file on the host.
        missing: How many bytes before `begin` no computer has kept.
    """

    file: str
    rank: int
    begin: int
    content: bytes | memoryview
    missing: int = 0

    @property
    def end(self) -> int:
        """The byte behind it in the file."""
        return self.begin + len(self.content)


def encode_output(head: dict[str, Any], parts: Iterable[OutputPart]) -> bytes:
    """Return the document of a job with parts of its output as one answer."""
    blocks: list[bytes | memoryview] = [_encode_line(head)]
    for part in parts:
        line = {"file": part.file, "rank": part.rank, "begin": part.begin, "size": len(part.content)}
        blocks += [_encode_line(line | ({"missing": part.missing} if part.missing else {})), part.content]
    return b"".join(blocks)


def decode_output(answer: bytes) -> tuple[dict[str, Any], Iterator[OutputPart]]:
    """Return the document of a job, and parts of its output, whose bytes are not copied.

    Raises:
        ValueError: The answer, or a part of it that is read later, has another form.
    """
    head, begin = _decode_line(answer, 0)
    return head, _decode_parts(answer, begin)


def _decode_parts(answer: bytes, begin: int) -> Iterator[OutputPart]:
    while begin < len(answer):
        line, begin = _decode_line(answer, begin)
        numbers = [line["rank"], line["begin"], line["size"], line.get("missing", 0)]
        if not all(isinstance(number, int) and number >= 0 for number in numbers):
            raise ValueError("a number of a part of the output is none")
        rank, start, size, missing = cast("list[int]", numbers)
        if begin + size > len(answer):
            raise ValueError("a part of the output is incomplete")
        content = memoryview(answer)[begin : begin + size]
        yield OutputPart(file=str(line["file"]), rank=rank, begin=start, content=content, missing=missing)
        begin += size


def _encode_line(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode() + b"\n"


def _decode_line(answer: bytes, begin: int) -> tuple[dict[str, Any], int]:
    end = answer.find(b"\n", begin)
    try:
        found: Any = json.loads(answer[begin : end + 1])
    except RecursionError:
        raise ValueError("a line of the output is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("a line of the output is not a JSON object")  # noqa: TRY004  # it is a fault of the service
    return cast("dict[str, Any]", found), end + 1
