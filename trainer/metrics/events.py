"""Writer of TensorBoard event files that does not need its library, which, like tensorboardX, would load all of torch.

A file is a sequence of records: length (8 bytes), checksum of the length, data, checksum of the data (4 bytes each,
CRC-32C, masked), all little-endian. The data is a protocol buffer. Sources: TensorFlow's
tensorflow/core/lib/io/record_writer.cc and tensorflow/core/util/event.proto (Event: 1 wall_time, 2 step, 3
file_version, 5 summary, 7 session_log; SessionLog: 1 status, of which 1 is START; Summary: 1 value; Value: 1 tag, 2
simple_value), as of 2026-11.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

_START = 1
_POLYNOMIAL = 0x82F63B78  # CRC-32C (Castagnoli), reflected


def _table() -> Iterator[int]:
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        yield crc


_TABLE = tuple(_table())


class EventFile:
    """A new event file; the constructor and the methods raise OSError."""

    def __init__(self, folder: Path, suffix: str, begin: int) -> None:
        """Create the file in the folder.

        Args:
            folder: Created if it does not exist.
            suffix: Appended to the file name.
            begin: First step of the file. TensorBoard hides this and later steps of earlier files, because a restart
                after a crash repeats them.
        """
        folder.mkdir(parents=True, exist_ok=True)
        now = time.time()
        name = f"events.out.tfevents.{int(now):010d}.{socket.gethostname()}.{os.getpid()}{suffix}"
        self._file = (folder / name).open("ab")
        self._file.write(_record(_double(1, now) + _bytes(3, b"brain.Event:2")))
        self._file.write(_record(_double(1, now) + _whole(2, begin) + _bytes(7, _whole(1, _START))))

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        """Append the numbers of a step."""
        summary = b"".join(_bytes(1, _bytes(1, name.encode()) + _float(2, value)) for name, value in numbers.items())
        self._file.write(_record(_double(1, time.time()) + _whole(2, step) + _bytes(5, summary)))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _masked_crc(length) + data + _masked_crc(data)


def _masked_crc(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _whole(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _float(field: int, value: float) -> bytes:
    try:
        return _varint(field << 3 | 5) + struct.pack("<f", value)
    except OverflowError:  # larger than a float can be
        return _varint(field << 3 | 5) + struct.pack("<f", float("inf") if value > 0 else float("-inf"))


def _varint(value: int) -> bytes:
    """Encode a number that is not negative."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
