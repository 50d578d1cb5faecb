"""A local file to upload: measured once, then read in pieces, and refused if it changed in between."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from orchestrator.errors import StorageError
from orchestrator.storage.faults import translate_disk_errors
from orchestrator.storage.objects import OnBytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A measured local file.

    Attributes:
        size: bytes.
        sha256: hex.
        state: inode and change time, to detect a later change.
    """

    path: Path
    size: int
    sha256: str
    state: tuple[int, int]

    @classmethod
    def measure(cls, path: Path) -> SourceFile:
        """Read the file once for its SHA-256. Raises NotFoundError, AccessError or StorageError."""
        with translate_disk_errors(f"read {path}"), path.open("rb") as reader:
            size, state = _read_state(reader)
            digest = hashlib.file_digest(reader, "sha256").hexdigest()
        return cls(path=path, size=size, sha256=digest, state=state)

    def pieces(self, length: int, on_bytes: OnBytes) -> Iterator[bytes]:
        """Yield the content in pieces of `length` bytes; each is reported when the next one is requested.

        Raises:
            StorageError: at the end, before the reader of the pieces can finish, if the file changed.
        """
        doing = f"read {self.path}"
        with translate_disk_errors(doing):
            reader = self.path.open("rb")
        with reader:
            left = self.size
            while left > 0:  # never past the measured size: a log may grow faster than it is copied
                with translate_disk_errors(doing):
                    piece = reader.read(min(length, left))
                if not piece:
                    break
                left -= len(piece)
                yield piece
                on_bytes(len(piece))
            with translate_disk_errors(doing):
                now = _read_state(reader)
        if left or now != (self.size, self.state):
            step = "copy it again when nothing writes to it"
            raise StorageError(f"cannot copy {self.path}", "it changed while it was being read", step)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a local file in hex. Raises as `SourceFile.measure` does."""
    return SourceFile.measure(path).sha256


def _read_state(reader: BinaryIO) -> tuple[int, tuple[int, int]]:
    found = os.fstat(reader.fileno())
    return found.st_size, (found.st_ino, found.st_mtime_ns)
