"""What a process writes, as safetensors files in memory, filled in place: the only copy between training and bucket.

The files' form: 8 bytes with the header's length (little endian), a JSON header, then the tensors' bytes
(safetensors documentation, "Format", read November 2026). The safetensors library reads them back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trainer.checkpoint.layout import Broken, key_of, piece_of
from trainer.engine import FloatArray
from trainer.shape.box import Piece

PART_BYTES = 1 << 30
"""Parts are closed at this size, so that several are hashed and sent at once, and read back in small steps."""

_ALIGN = 64  # values begin where a vector unit can read them


class PartBuffer:
    """One part. data: the whole file; views: where each piece's values lie in it; header: bytes before the first."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        entries: dict[str, dict[str, object]] = {}
        start = 0
        for piece in pieces:
            end = start + piece.bytes
            entries[key_of(piece)] = {"dtype": "F32", "shape": piece.box.extent, "data_offsets": [start, end]}
            start = end
        text = json.dumps(entries, separators=(",", ":")).encode()
        text += b" " * (-(8 + len(text)) % _ALIGN)
        self.header = 8 + len(text)
        whole: npt.NDArray[np.uint8] = np.empty(self.header + start, np.uint8)
        self.data = whole.data
        self.data[: self.header] = len(text).to_bytes(8, "little") + text
        self.views: dict[Piece, FloatArray] = {}
        start = self.header
        for piece in pieces:
            flat = whole[start : start + piece.bytes].view(np.float32)
            self.views[piece] = flat.reshape(piece.box.extent)
            start += piece.bytes

    def touch(self) -> None:
        """Have the system hand out the memory now: else the first copy waits for one page after the other."""
        np.frombuffer(self.data, np.uint8)[self.header :: 4096] = 0


class HostBuffer:
    """All parts of a process: made once, and filled again for every checkpoint."""

    def __init__(self, pieces: Sequence[Piece], limit: int = PART_BYTES) -> None:
        self.parts = tuple(PartBuffer(group) for group in groups(pieces, limit))
        self.views: Mapping[Piece, FloatArray] = {
            piece: view for part in self.parts for piece, view in part.views.items()
        }


def free_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes that this machine can still hand out, swap included; None where the system does not say."""
    try:
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        return sum(1024 * int(lines[name].split()[0]) for name in ("MemAvailable", "SwapFree"))
    except (OSError, KeyError, ValueError, IndexError):
        return None


def groups(pieces: Sequence[Piece], limit: int = PART_BYTES) -> Iterator[list[Piece]]:
    """Neighbours that make a part of at most `limit` bytes; a piece that is larger has a part of its own."""
    group, size = list[Piece](), 0
    for piece in pieces:
        if group and size + piece.bytes > limit:
            yield group
            group, size = [], 0
        group.append(piece)
        size += piece.bytes
    if group:
        yield group


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a part. dtype: as safetensors names it. start, end: of its bytes, counted from the part's begin."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def piece(self) -> Piece:
        """Raises Broken when the entry is none of ours."""
        piece = piece_of(self.key, self.shape)
        if self.dtype != "F32" or self.end - self.start != piece.bytes:
            raise Broken(f"the entry {self.key!r} is not of float32 values")
        return piece


def read_header(head: bytes | bytearray | memoryview) -> list[Entry]:
    """head: the bytes of a safetensors file before its values. Raises Broken."""
    try:
        content = json.loads(bytes(head[8:]))
        return [
            Entry(
                str(key),
                str(entry["dtype"]),
                tuple(map(int, entry["shape"])),
                len(head) + int(entry["data_offsets"][0]),
                len(head) + int(entry["data_offsets"][1]),
            )
            for key, entry in content.items()
            if key != "__metadata__"
        ]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise Broken(f"a safetensors header cannot be read: {error!r}") from error
