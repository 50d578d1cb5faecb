"""A local file on its way into a bucket: measured once, then read in pieces, and refused if it changed meanwhile."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from orchestrator.errors import StorageError
from orchestrator.storage.faults import disk_border
from orchestrator.storage.objects import OnBytes


@dataclass(frozen=True, slots=True)
class SourceFile:
    """size: bytes. sha256: hex. state: inode and change time, by which a later change is seen."""

    path: Path
    size: int
    sha256: str
    state: tuple[int, int]

    @classmethod
    def measure(cls, path: Path) -> SourceFile:
        """Read the file once for its SHA-256. Raises NotFoundError, AccessError or StorageError."""
        with disk_border(f"read {path}"), path.open("rb") as reader:
            size, state = _look(reader)
            digest = hashlib.file_digest(reader, "sha256").hexdigest()
        return cls(path, size, digest, state)

    def pieces(self, length: int, on_bytes: OnBytes) -> Iterator[bytes]:
        """The content in pieces of `length` bytes; each is reported once its successor is asked for.

        Raises StorageError at the end, before the reader of the pieces can finish, if the file changed.
        """
        doing = f"read {self.path}"
        with disk_border(doing):
            reader = self.path.open("rb")
        with reader:
            left = self.size
            while left > 0:  # never past the measured size: a log may grow faster than we copy
                with disk_border(doing):
                    piece = reader.read(min(length, left))
                if not piece:
                    break
                left -= len(piece)
                yield piece
                on_bytes(len(piece))
            with disk_border(doing):
                now = _look(reader)
        if left or now != (self.size, self.state):
            step = "copy it again when nothing writes to it"
            raise StorageError(f"cannot copy {self.path}", "it changed while it was being read", step)


def file_sha256(path: Path) -> str:
    """SHA-256 of a local file in hex. Raises as `SourceFile.measure` does."""
    return SourceFile.measure(path).sha256


def _look(reader: BinaryIO) -> tuple[int, tuple[int, int]]:
    found = os.fstat(reader.fileno())
    return found.st_size, (found.st_ino, found.st_mtime_ns)
