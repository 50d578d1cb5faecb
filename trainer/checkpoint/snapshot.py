"""A process's share of a checkpoint as safetensors files in memory: the only copy between training and bucket.

The files' form: 8 bytes with the header's length (little endian), a JSON header, then the tensors' bytes
(safetensors documentation, "Format", read November 2026). The safetensors library reads them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trainer.checkpoint.epoch import shorten
from trainer.checkpoint.layout import format_region_key, parse_region_key
from trainer.checkpoint.manifest import CorruptCheckpoint
from trainer.engine import FloatArray
from trainer.shape.box import TensorRegion

PART_BYTES = 1 << 30
"""Parts are closed at this size, so that several are hashed and sent in parallel, and read back in small steps."""

_ALIGN = 64  # values begin where a vector unit can read them


class PartBuffer:
    """One part in memory.

    Attributes:
        data: The complete file.
        views: Where each region's values are in it.
        header: Bytes before the first value.
    """

    def __init__(self, pieces: Sequence[TensorRegion]) -> None:
        entries: dict[str, dict[str, object]] = {}
        start = 0
        for piece in pieces:
            end = start + piece.bytes
            entries[format_region_key(piece)] = {
                "dtype": "F32",
                "shape": piece.box.extent,
                "data_offsets": [start, end],
            }
            start = end
        text = json.dumps(entries, separators=(",", ":")).encode()
        text += b" " * (-(8 + len(text)) % _ALIGN)
        self.header = 8 + len(text)
        whole: npt.NDArray[np.uint8] = np.empty(self.header + start, np.uint8)
        self.data = whole.data
        self.data[: self.header] = len(text).to_bytes(8, "little") + text
        self.views: dict[TensorRegion, FloatArray] = {}
        start = self.header
        for piece in pieces:
            flat = whole[start : start + piece.bytes].view(np.float32)
            self.views[piece] = flat.reshape(piece.box.extent)
            start += piece.bytes

    def prefault(self) -> None:
        """Make the system allocate the memory now, so that the first copy does not wait for each page."""
        np.frombuffer(self.data, np.uint8)[self.header :: 4096] = 0


class HostBuffer:
    """All parts of a process: allocated once, and filled again for every checkpoint."""

    def __init__(self, pieces: Sequence[TensorRegion], limit: int = PART_BYTES) -> None:
        self.parts = tuple(PartBuffer(group) for group in group_pieces(pieces, limit))
        self.views: Mapping[TensorRegion, FloatArray] = {
            piece: view for part in self.parts for piece, view in part.views.items()
        }


def read_free_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Return the bytes that this machine can still allocate, swap included; None where this is unknown."""
    try:
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        return sum(1024 * int(lines[name].split()[0]) for name in ("MemAvailable", "SwapFree"))
    except (OSError, KeyError, ValueError, IndexError):
        return None


def group_pieces(pieces: Sequence[TensorRegion], limit: int = PART_BYTES) -> Iterator[list[TensorRegion]]:
    """Yield neighbouring regions that make a part of at most `limit` bytes; a larger region has its own part."""
    group, size = list[TensorRegion](), 0
    for piece in pieces:
        if group and size + piece.bytes > limit:
            yield group
            group, size = [], 0
        group.append(piece)
        size += piece.bytes
    if group:
        yield group


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderEntry:
    """An entry of a part's header.

    Attributes:
        key: See layout.py.
        dtype: As safetensors names it.
        shape: Of the region.
        start: First byte of its values, from the part's beginning.
        end: The byte after them.
    """

    key: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def piece(self) -> TensorRegion:
        """The region that the entry describes.

        Raises:
            CorruptCheckpoint: It does not describe float32 values of this trainer.
        """
        piece = parse_region_key(self.key, self.shape)
        if self.dtype != "F32" or self.end - self.start != piece.bytes:
            raise CorruptCheckpoint(f"the entry {self.key!r} is not of float32 values")
        return piece


def parse_header(head: bytes | bytearray | memoryview) -> list[HeaderEntry]:
    """Parse the bytes of a safetensors file before its values.

    Raises:
        CorruptCheckpoint: They are no valid header.
    """
    try:
        content = json.loads(bytes(head[8:]))
        return [
            HeaderEntry(
                key=str(key),
                dtype=str(entry["dtype"]),
                shape=tuple(map(int, entry["shape"])),
                start=len(head) + int(entry["data_offsets"][0]),
                end=len(head) + int(entry["data_offsets"][1]),
            )
            for key, entry in content.items()
            if key != "__metadata__"
        ]
    except (ArithmeticError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptCheckpoint(f"a safetensors header cannot be read: {shorten(error)}") from error
