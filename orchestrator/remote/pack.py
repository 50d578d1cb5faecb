"""A change of a tree as one stream, packed once and sent to all hosts that need the same change."""

from __future__ import annotations

import gzip
import hashlib
import mmap
import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from shlex import quote
from typing import Protocol

from orchestrator.errors import UserError
from orchestrator.remote.tree import Tree, TreeFile

_IN_MEMORY = 64 << 20  # bytes of a stream above which it is kept in a temporary file
_SAMPLE = 64 << 10
_WORTH_IT = 0.7  # compress when a sample shrinks below this


class _Sink(Protocol):
    def write(self, data: bytes, /) -> int: ...


@dataclass(frozen=True, slots=True)
class Change:
    """The difference between the files on a host and a tree."""

    files: tuple[TreeFile, ...]
    deleted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pack:
    """A packed change.

    Attributes:
        stream: a tar archive as templates/remote/sync.sh reads it.
        option: the option of tar for its compression.
    """

    change: Change
    stream: memoryview
    option: str


def manifest_of(tree: Tree) -> bytes:
    """Return the manifest that a host keeps of a tree; its SHA-256 is `tree.digest`."""
    return b"".join(manifest_line(file) for file in tree.files)


def manifest_line(file: TreeFile) -> bytes:
    """Return the record of one file, which ends in NUL."""
    kind = "f" if file.link is None else "l"
    return f"{kind}{file.mode:o} {file.sha256} ".encode() + os.fsencode(file.path) + b"\0"


def pack_change(tree: Tree, change: Change, *, compress: bool) -> Pack:
    """Pack a change. Raises UserError when a file of the tree can no longer be read, or has another content.

    Of a file that only grew since the tree was read, what it held then is packed.

    compress: the way is long, so spend a little time to send less, if the content shrinks at all.
    """
    compress = compress and _worth_compressing(tree, change)
    spool = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115  # lives as long as the Pack
    gzipped = gzip.GzipFile(fileobj=spool, mode="wb", compresslevel=1, mtime=0) if compress else None
    out: _Sink = spool if gzipped is None else gzipped
    for file in change.files:
        _add_file(out, tree, file)
    kept = {str(parent) for file in tree.files for parent in PurePosixPath(file.path).parents}
    emptied = {str(parent) for path in change.deleted for parent in PurePosixPath(path).parents} - kept
    folders = {PurePosixPath(file.path).parent.as_posix() for file in change.files}
    _add(out, "meta/manifest", manifest_of(tree))
    _add(out, "meta/owned", _nul_separated(f"./{file.path}" for file in tree.files))
    _add(out, "meta/folders", _nul_separated(sorted(f"./{folder}" for folder in folders)))
    _add(out, "meta/delete", _nul_separated(f"./{path}" for path in change.deleted))
    _add(out, "meta/prune", _nul_separated(f"./{path}" for path in sorted(emptied, key=lambda path: -path.count("/"))))
    _add(out, "meta/complete", b"")
    out.write(b"\0" * 1024)
    if gzipped is not None:
        gzipped.close()
    return Pack(change, _view(spool), "-z" if compress else "")


def _add_file(out: _Sink, tree: Tree, file: TreeFile) -> None:
    path = tree.source(file)
    try:
        if file.link is not None:
            info = _info(f"files/{file.path}", 0, file.mode)
            info.type, info.linkname = tarfile.SYMTYPE, file.link
            out.write(_header(info))
            return
        with path.open("rb") as opened:
            content = opened.read(file.size)
        info = _info(f"files/{file.path}", len(content), file.mode)
        info.mtime = int(path.stat().st_mtime)
    except OSError as error:
        raise UserError(f"cannot read {path}", error.strerror or str(error), f"ls -l {quote(str(path))}") from error
    if hashlib.sha256(content).hexdigest() != file.sha256:
        why = "its content is not the one that was planned"
        raise UserError(f"{path} changed while it was being sent", why, "run the same command again")
    out.write(_header(info))
    _write(out, content)


def _add(out: _Sink, name: str, content: bytes) -> None:
    out.write(_header(_info(name, len(content), 0o600)))
    _write(out, content)


def _write(out: _Sink, content: bytes) -> None:
    out.write(content)
    out.write(b"\0" * (-len(content) % tarfile.BLOCKSIZE))


def _info(name: str, size: int, mode: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, mode
    return info


def _header(info: tarfile.TarInfo) -> bytes:
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def _nul_separated(paths: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(path) + b"\0" for path in paths)


def _worth_compressing(tree: Tree, change: Change) -> bool:
    """Return whether the largest file, which has most of the bytes, compresses well."""
    largest = max(change.files, key=lambda file: file.size, default=None)
    if largest is None or sum(file.size for file in change.files) < _SAMPLE:
        return False
    path = tree.source(largest)
    try:
        with path.open("rb") as file:
            sample = file.read(_SAMPLE)
    except OSError as error:
        raise UserError(f"cannot read {path}", error.strerror or str(error), f"ls -l {quote(str(path))}") from error
    return len(zlib.compress(sample, 1)) < _WORTH_IT * len(sample)


def _view(spool: tempfile.SpooledTemporaryFile[bytes]) -> memoryview:
    size = spool.tell()
    if size > _IN_MEMORY:
        spool.flush()
        return memoryview(mmap.mmap(spool.fileno(), size, access=mmap.ACCESS_READ))
    spool.seek(0)
    return memoryview(spool.read())
