"""The local copy of a program's output on one host: bounded on the disk, without moving what follows.

A copy that grows above its limit keeps its first MiB and its end. The middle becomes a hole of the file, so the byte
at which following resumes stays its size. Beside RANK.log, RANK.cut has the first and the last byte of the hole.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from orchestrator.private_files import write_whole

HEAD = 1 << 20  # a multiple of the blocks of file systems, like the ends of all holes
_CHUNK = 1 << 20
_PUNCH_AND_KEEP_SIZE = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE of Linux, in linux/falloc.h


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The bytes of a log that are not kept: from `begin`, before `end`."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPiece:
    """Bytes of a log.

    Attributes:
        missing: How many bytes before `begin` are not kept.
        begin: Where the content begins in the log.
    """

    missing: int
    begin: int
    content: bytes

    @property
    def end(self) -> int:
        """The byte behind it."""
        return self.begin + len(self.content)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLimits:
    """How much output of programs is kept on this computer's disk.

    Attributes:
        attempt_bytes: Of one attempt, on all its hosts.
        host_bytes: Of each of its hosts at least, where there are very many.
        all_bytes: Of all jobs; the oldest that ended are deleted first.
    """

    attempt_bytes: int = 256 << 20
    host_bytes: int = 4 << 20
    all_bytes: int = 16 << 30

    def of_host(self, hosts: int) -> int:
        """Return how much of one host is kept."""
        return max(self.attempt_bytes // max(hosts, 1), self.host_bytes)


def append_bounded(file: IO[bytes], path: Path, block: bytes, most: int) -> None:
    """Append a block to a log, and cut its middle out where it takes more than `most` bytes of the disk.

    The caller holds the lock of the file.

    Raises:
        OSError: The disk is full or not writable.
    """
    found, known = os.fstat(file.fileno()), read_cut(path)
    size = found.st_size
    if found.st_blocks * 512 <= most:
        _write_all(file, block)
        return
    begin = size
    if known is not None and known.end >= size:  # no hole could be made inside the file
        begin = known.begin
    elif (end := (size - most // 2) // HEAD * HEAD) > HEAD:
        _note(path, Cut(begin=HEAD, end=end))  # before the hole is made: what it says is never shown as zeros
        if _punch(file.fileno(), HEAD, end - HEAD):
            _write_all(file, block)
            return
    _note(path, Cut(begin=begin, end=size + len(block)))  # what follows is not written
    os.ftruncate(file.fileno(), size + len(block))


def _write_all(file: IO[bytes], block: bytes) -> None:
    """Write a block to an unbuffered file, which takes a part of it where the disk becomes full (write(2))."""
    rest = memoryview(block)
    while rest:
        rest = rest[file.write(rest) :]


def read_cut(path: Path) -> Cut | None:
    """Return which bytes of a log are not kept; None where all are."""
    try:
        begin, end = map(int, path.with_suffix(".cut").read_text("ascii").split())
    except (FileNotFoundError, ValueError):
        return None
    return Cut(begin=begin, end=end)


def describe_missing(missing: int) -> bytes:
    """Return the line that stands for bytes of a log that are not kept; nothing for none."""
    where = "its host has all of it while it exists"
    return f"\n[orch: {missing / 1e6:.1f} MB of this output are not kept here; {where}]\n".encode() if missing else b""


def read_log(path: Path, begin: int, most: int) -> LogPiece:
    """Return bytes of a log from `begin` on, or from where the next bytes are kept.

    It may return less than there is, and then has more behind its end.

    Args:
        path: The log.
        begin: A byte of it.
        most: How many bytes are returned at most.
    """
    cut = read_cut(path)
    missing = 0
    if cut is not None and begin < cut.begin:
        most = min(most, cut.begin - begin)
    elif cut is not None and begin < cut.end:
        begin, missing = cut.end, cut.end - begin
    with path.open("rb") as opened:
        opened.seek(begin)
        return LogPiece(missing=missing, begin=begin, content=opened.read(max(most, 0)))


def copy_log(path: Path, target: IO[bytes]) -> None:
    """Write all of a log that is kept, with a line in the place of the rest."""
    size, begin = path.stat().st_size, 0
    while begin < size:
        piece = read_log(path, begin, _CHUNK)
        if piece.end == begin:
            return
        begin = piece.end
        target.write(describe_missing(piece.missing) + piece.content)


def _note(path: Path, cut: Cut) -> None:
    write_whole(path.with_suffix(".cut"), f"{cut.begin} {cut.end}\n", flush=False)


def _punch(descriptor: int, begin: int, length: int) -> bool:
    """Give the disk space of a part of a file back; return False where the file system or this system cannot."""
    call = find_fallocate()
    return call is not None and call(descriptor, _PUNCH_AND_KEEP_SIZE, begin, length) == 0


@cache
def find_fallocate() -> Callable[[int, int, int, int], int] | None:
    """Return the system call that makes a hole in a file, None where this system has none."""
    import ctypes

    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None, use_errno=True)
    call = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    if call is not None:
        call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return call
