"""A change of a tree as one stream, packed once and sent to all hosts that need the same change."""

from __future__ import annotations

import gzip
import hashlib
import mmap
import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from shlex import quote
from typing import Protocol

from orchestrator.errors import UserError
from orchestrator.remote.tree import Tree, TreeFile, TreeFolder, list_manifest

_IN_MEMORY = 16 << 20  # bytes of a stream above which it is kept in a temporary file
_BLOCK = 1 << 20
_SAMPLE = 64 << 10
_WORTH_IT = 0.7  # compress when a sample shrinks below this


class _Sink(Protocol):
    def write(self, data: bytes, /) -> int: ...


@dataclass(frozen=True, slots=True)
class Change:
    """The difference between what a host holds and a tree: files and folders to send, and those to delete."""

    files: tuple[TreeFile, ...]
    deleted: tuple[str, ...]
    folders: tuple[TreeFolder, ...] = ()
    pruned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pack:
    """A packed change.

    Attributes:
        stream: a tar archive as templates/remote/sync.sh reads it.
        option: the option of tar for its compression.
        mapped: the temporary file behind the stream; None for one in memory.
    """

    change: Change
    stream: memoryview
    option: str
    mapped: mmap.mmap | None = None

    def release(self) -> None:
        """Give the memory back that was read of the temporary file; the disk's cache still has it."""
        if self.mapped is not None:
            self.mapped.madvise(mmap.MADV_DONTNEED)


def pack_change(tree: Tree, change: Change, *, compress: bool) -> Pack:
    """Pack a change. Raises UserError when a file of the tree can no longer be read, or has another content.

    Of a file that only grew since the tree was read, what it held then is packed.

    compress: the way is long, so spend a little time to send less, if the content shrinks at all.
    """
    compress = compress and _worth_compressing(tree, change)
    spool = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115  # lives as long as the Pack
    gzipped = gzip.GzipFile(fileobj=spool, mode="wb", compresslevel=1, mtime=0) if compress else None
    out: _Sink = spool if gzipped is None else gzipped
    for folder in change.folders:
        _add_folder(out, folder)
    for file in change.files:
        _add_file(out, tree, file)
    receiving = {PurePosixPath(file.path).parent.as_posix() for file in change.files}
    _add(out, "meta/manifest", list_manifest(tree))
    _add(out, "meta/owned", _nul_separated(file.path for file in tree.files))
    _add(out, "meta/folders", _nul_separated(folder.path for folder in tree.folders))
    _add(out, "meta/receiving", _nul_separated(sorted(receiving)))
    _add(out, "meta/delete", _nul_separated(change.deleted))
    _add(out, "meta/prune", _nul_separated(sorted(change.pruned, key=lambda path: -path.count("/"))))
    for mode in sorted({folder.mode for folder in change.folders}):
        _add(out, f"meta/modes/{mode:o}", _nul_separated(one.path for one in change.folders if one.mode == mode))
    _add(out, "meta/complete", b"")
    out.write(b"\0" * 1024)
    if gzipped is not None:
        gzipped.close()
    option, mapped = "-z" if compress else "", _map(spool)
    return Pack(change, memoryview(_read(spool) if mapped is None else mapped), option, mapped)


def _add_folder(out: _Sink, folder: TreeFolder) -> None:
    info = _info(f"files/{folder.path}", 0, folder.mode)
    info.type, info.mtime = tarfile.DIRTYPE, folder.mtime
    out.write(_header(info))


def _add_file(out: _Sink, tree: Tree, file: TreeFile) -> None:
    info = _info(f"files/{file.path}", file.size, file.mode)
    info.mtime = file.mtime
    if file.link is not None:
        info.type, info.linkname = tarfile.SYMTYPE, file.link
        out.write(_header(info))
        return
    path, digest = tree.source(file), hashlib.sha256()
    out.write(_header(info))
    for block in _read_blocks(path, file.size):
        digest.update(block)
        out.write(block)
    if digest.hexdigest() != file.sha256:
        raise _changed_error(tree, path)
    out.write(b"\0" * (-file.size % tarfile.BLOCKSIZE))


def _read_blocks(path: Path, size: int) -> Iterator[bytes]:
    """Yield what a file held when it had this size."""
    try:
        with path.open("rb") as opened:
            while size and (block := opened.read(min(_BLOCK, size))):
                size -= len(block)
                yield block
    except OSError as error:
        raise _unreadable(path, error) from error


def _changed_error(tree: Tree, path: Path) -> UserError:
    why = "its content is not the one that was planned"
    if tree.objects is not None:  # a disk or a power failure damaged it; the next launch copies it again
        path.unlink(missing_ok=True)
        return UserError(f"the kept copy {path} was damaged", why, "run the same command again")
    return UserError(f"{path} changed while it was being sent", why, "run the same command again")


def _unreadable(path: Path, error: OSError) -> UserError:
    return UserError(f"cannot read {path}", error.strerror or str(error), f"ls -l {quote(str(path))}")


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
    return b"".join(b"./" + os.fsencode(path) + b"\0" for path in paths)


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
        raise _unreadable(path, error) from error
    return len(zlib.compress(sample, 1)) < _WORTH_IT * len(sample)


def _map(spool: tempfile.SpooledTemporaryFile[bytes]) -> mmap.mmap | None:
    """Return the stream as a mapped file; None where it is in memory."""
    size = spool.tell()
    if size <= _IN_MEMORY:
        return None
    spool.flush()
    return mmap.mmap(spool.fileno(), size, access=mmap.ACCESS_READ)


def _read(spool: tempfile.SpooledTemporaryFile[bytes]) -> bytes:
    spool.seek(0)
    return spool.read()
