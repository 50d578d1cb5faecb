"""A reader of the tar archives that hosts send. Nothing in them is trusted.

It knows what `fetch.sh` makes (GNU tar's own format: files, folders, symbolic links, long names) and refuses all else;
tarfile would also follow hard links, and read a header of any length into memory.
Format: GNU tar manual, "Basic Tar Format" (https://www.gnu.org/software/tar/manual/html_node/Standard.html, 2026-11).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

from orchestrator.received_files import ReceivingFolder, RefusedEntryError

_BLOCK = 512
_CHUNK = 1 << 20
_LONGEST_NAME = 1 << 16
_FILE, _LINK, _FOLDER, _LONG_NAME, _LONG_LINK = (b"0", b"\0", b"7"), b"2", b"5", b"L", b"K"
_KINDS = {b"1": "a hard link", b"3": "a device", b"4": "a device", b"6": "a pipe"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header:
    name: str
    kind: bytes
    size: int
    mode: int
    modified: float
    target: str


def unpack_archive(
    stream: IO[bytes], folder: ReceivingFolder, top: str = "", skip_link: Callable[[str], None] | None = None
) -> None:
    """Write the archive's files and folders below `folder`.

    Args:
        stream: The archive, read in order.
        folder: Where it goes.
        top: The only name at the archive's top that was requested, "" for any.
        skip_link: Called with the name of each symbolic link instead of making it; None makes those that stay inside.

    Raises:
        RefusedEntryError: An entry is not accepted; what was written before it stays.
        OSError: The disk refuses it.
    """
    for header in _read_headers(stream):
        name = header.name.removeprefix("./").rstrip("/")
        if top and name.partition("/")[0] != top:
            raise RefusedEntryError(f"the host sent {name[:200]!r}", f"only {top!r} was requested")
        if header.kind in _FILE:
            with folder.write_file(name, executable=bool(header.mode & 0o100), modified=header.modified) as write:
                for chunk in _read_content(stream, header.size):
                    write(chunk)
        elif header.kind == _FOLDER:
            if name not in ("", "."):
                folder.make_folder(name)
        elif header.kind != _LINK:
            what = _KINDS.get(header.kind, f"of the unknown kind {header.kind!r}")
            raise RefusedEntryError(f"{name[:200]!r} is {what}", "only files and folders are copied")
        elif skip_link is not None:
            skip_link(name)
        else:
            folder.make_link(name, header.target)


def _read_headers(stream: IO[bytes]) -> Iterator[_Header]:
    """Yield each entry's header; its content must be read before the next."""
    long_name = long_target = None
    while (block := _read_exactly(stream, _BLOCK)).strip(b"\0"):
        header = _parse_header(block)
        if header.kind in (_LONG_NAME, _LONG_LINK):
            if header.size > _LONGEST_NAME:
                raise RefusedEntryError("the archive has a name that is too long", f"{header.size:,} bytes")
            text = os.fsdecode(b"".join(_read_content(stream, header.size)).partition(b"\0")[0])
            long_name, long_target = (text, long_target) if header.kind == _LONG_NAME else (long_name, text)
            continue
        yield _Header(
            name=header.name if long_name is None else long_name,
            kind=header.kind,
            size=header.size,
            mode=header.mode,
            modified=header.modified,
            target=header.target if long_target is None else long_target,
        )
        long_name = long_target = None


def _parse_header(block: bytes) -> _Header:
    found = sum(block) - sum(block[148:156]) + 8 * ord(" ")
    if _number(block[148:156]) != found:
        raise RefusedEntryError("the archive is damaged", "a header's checksum is wrong")
    return _Header(
        name=_text(block[:100]),
        kind=block[156:157],
        size=_number(block[124:136]),
        mode=_number(block[100:108]),
        modified=float(_number(block[136:148])),
        target=_text(block[157:257]),
    )


def _text(field: bytes) -> str:
    return os.fsdecode(field.partition(b"\0")[0])


def _number(field: bytes) -> int:
    """Return an octal number, or one in base 256, which begins with the byte 0x80.

    Raises:
        RefusedEntryError: It is neither, or negative.
    """
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    if not all(byte in b"01234567" for byte in digits):
        raise RefusedEntryError("the archive is damaged", f"{field!r} is not a number")
    return int(digits or b"0", 8)


def _read_content(stream: IO[bytes], size: int) -> Iterator[bytes]:
    """Yield `size` bytes in chunks, then pass over what fills the last block."""
    left = size
    while left:
        chunk = stream.read(min(left, _CHUNK))
        if not chunk:
            raise RefusedEntryError("the archive ended early", f"{left:,} bytes of a file are missing")
        left -= len(chunk)
        yield chunk
    if size % _BLOCK:
        _read_exactly(stream, _BLOCK - size % _BLOCK)


def _read_exactly(stream: IO[bytes], size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = stream.read(size - len(found))
        if not more:
            raise RefusedEntryError("the archive ended early", "the connection closed, or tar failed on the host")
        found += more
    return found
