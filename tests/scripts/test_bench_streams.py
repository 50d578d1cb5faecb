"""The reader of `scripts/bench/streams.py` finds every event that a stream lacks or has twice."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts" / "bench"))
from streams import Stream

BEGIN = b"HTTP/1.1 200 OK\r\n\r\nd\r\nretry: 1000\n\n\r\n7\r\nid: 4\n\n\r\n"


def write_chunk(*numbers: int, wrong: int = 0) -> bytes:
    data = (json.dumps({"seq": number + wrong, "what": "id: 99"}) for number in numbers)
    content = "".join(f"id: {number}\ndata: {one}\n\n" for number, one in zip(numbers, data, strict=True)).encode()
    return b"%x\r\n%b\r\n" % (len(content), content)


def read(content: bytes, size: int, *, sampled: bool = True) -> tuple[Stream, list[tuple[int, int]]]:
    stream = Stream(sampled=sampled)
    found = [stream.take(content[at : at + size]) for at in range(0, len(content), size)]
    return stream, [one for one in found if one is not None]


@pytest.mark.parametrize("size", [1, 7, 1 << 18])
def test_a_whole_stream_is_read_in_pieces_of_any_size(size: int) -> None:
    content = BEGIN + write_chunk(5, 6) + b"9\r\n: alive\n\n\r\n" + write_chunk(7)
    begun, found = read(BEGIN, size)
    assert (begun.last, found) == (4, [])
    for block in [content[at : at + size] for at in range(len(BEGIN), len(content), size)]:
        if (one := begun.take(block)) is not None:
            found.append(one)
    assert not begun.is_broken and begun.last == 7
    assert (found[0][0], found[-1][1]) == (4, 7)


@pytest.mark.parametrize("numbers", [(6,), (5, 5), (5, 7), (5, 6, 6)])
def test_a_missing_or_repeated_event_is_found(numbers: tuple[int, ...]) -> None:
    for sampled in (True, False):
        stream = Stream(sampled=sampled)
        stream.take(BEGIN)
        stream.take(write_chunk(*numbers))
        assert stream.is_broken


def test_a_sampled_stream_finds_the_content_of_another_event() -> None:
    stream = Stream(sampled=True)
    stream.take(BEGIN)
    stream.take(write_chunk(5, wrong=1))
    assert stream.is_broken
