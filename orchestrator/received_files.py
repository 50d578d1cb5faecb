"""Files that hosts and buckets send, written below one open folder of this computer and nowhere else.

Every name from elsewhere comes through `ReceivingFolder`. It never follows a symbolic link below the folder: each part
of a name is opened from its parent's descriptor with O_NOFOLLOW, so a chain of links, however long, cannot lead out of
it (tarfile's own filter can be led out: CVE-2025-4517). Modes come from a fixed mask, and count, size, depth and length
of names are bounded.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from orchestrator.errors import OrchError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KEPT_FREE = 512 << 20  # bytes, or a twentieth of a small disk: a full disk stops more than this command
_LAST_TIME = 1 << 40  # seconds since 1970; some file systems refuse more


class RefusedEntryError(OrchError):
    """A host or bucket sent what is not accepted: a name that leaves the folder, a device, or too much."""

    code = "refused-entry"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivingLimits:
    """What one sender may send.

    Attributes:
        entries: Files, folders and links.
        bytes: Content of all files; None for what the disk has free, less half a GiB.
        depth: Parts of a name.
        name_bytes: Length of a whole name.
    """

    entries: int = 1_000_000
    bytes: int | None = None
    depth: int = 64
    name_bytes: int = 1024


class ReceivingFolder:
    """An open folder into which names from elsewhere are written. Threads may share it."""

    def __init__(self, folder: Path, limits: ReceivingLimits | None = None) -> None:
        """Open the folder, which the user named: links on the way to it are followed. It is made when absent.

        Raises:
            OSError: It cannot be made or opened.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.limits = limits or ReceivingLimits()
        self._root = os.open(folder, _FOLDER)
        disk = shutil.disk_usage(self._root)
        free = disk.free - min(_KEPT_FREE, disk.total // 20)
        self._bytes_left = free if self.limits.bytes is None else self.limits.bytes
        self._entries_left = self.limits.entries
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._root)

    def make_folder(self, name: str) -> None:
        """Make the folder and those above it; one that exists keeps its mode.

        Raises:
            RefusedEntryError: The name, or what stands there, is not accepted.
            OSError: The disk refuses it.
        """
        with self._parent_of([*self._split(name), "."]):
            pass

    @contextlib.contextmanager
    def write_file(
        self, name: str, *, executable: bool = False, modified: float | None = None, flush: bool = False
    ) -> Generator[Callable[[bytes], None]]:
        """Write a file through the yielded function; it appears when the block ends, or not at all after an error.

        A file or link of that name is replaced. The mode is 0644, or 0755 for a program, less the umask; a file that
        was private before stays so.

        Args:
            name: Relative, with slashes.
            executable: Whether it is a program.
            modified: Its time in seconds since 1970.
            flush: Whether it must survive a power failure.

        Raises:
            RefusedEntryError: The name is not accepted, or a limit is reached.
            OSError: The disk refuses it.
        """
        with self._parent_of(self._split(name)) as (parent, leaf):
            staged = f".orch-{secrets.token_hex(8)}.part"
            file = os.open(staged, _NEW_FILE, 0o755 if executable else 0o644, dir_fd=parent)
            try:
                try:
                    yield lambda block: self._write(file, name, block)
                    _keep_private(file, parent, leaf)
                    if modified is not None and 0 <= modified < _LAST_TIME:
                        os.utime(file, (modified, modified))
                    if flush:
                        os.fsync(file)
                finally:
                    os.close(file)
                os.rename(staged, leaf, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(staged, dir_fd=parent)
                raise

    def make_link(self, name: str, target: str) -> None:
        """Make a symbolic link to a place inside the folder.

        Only leading `..` are accepted: `a/..` means something else where `a` is a link.

        Raises:
            RefusedEntryError: It would lead out of the folder, or something stands there.
            OSError: The disk refuses it.
        """
        place, parts = self._split(name), target.split("/")
        ups = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
        if not target or target.startswith("/") or ups > len(place) - 1 or ".." in parts[ups:] or "\0" in target:
            raise RefusedEntryError(f"{name!r} is a link out of the folder", f"it leads to {target[:200]!r}")
        with self._parent_of(place) as (parent, leaf):
            try:
                os.symlink(target, leaf, dir_fd=parent)
            except FileExistsError:
                if os.readlink(leaf, dir_fd=parent) != target:
                    raise RefusedEntryError(f"{name!r} is a link", "something of that name is here already") from None

    def _write(self, file: int, name: str, block: bytes) -> None:
        with self._lock:
            self._bytes_left -= len(block)
            if self._bytes_left < 0 and self.limits.bytes is None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.folder / name))
            if self._bytes_left < 0:
                raise RefusedEntryError(f"{name!r} is too large", f"at most {self.limits.bytes:,} bytes were expected")
        rest = memoryview(block)
        while rest:
            rest = rest[os.write(file, rest) :]

    @contextlib.contextmanager
    def _parent_of(self, parts: Sequence[str]) -> Generator[tuple[int, str]]:
        """Open the folder that holds the last part, making what is missing; yield its descriptor and that part."""
        *folders, leaf = parts
        with self._lock:
            self._entries_left -= 1
            if self._entries_left < 0:
                raise RefusedEntryError("too many files", f"at most {self.limits.entries:,} are accepted")
        here = os.dup(self._root)
        try:
            for folder in folders:
                below = _open_folder(here, folder, "/".join(parts))
                os.close(here)
                here = below
            yield here, leaf
        finally:
            os.close(here)

    def _split(self, name: str) -> list[str]:
        """Return the parts of a name.

        Raises:
            RefusedEntryError: It is absolute, too long or too deep, or has a part that is empty or `..`.
        """
        parts = name.split("/")
        shown = name if len(name) <= 200 else f"{name[:200]}..."
        if any(part in ("", ".", "..") for part in parts) or "\0" in name:
            raise RefusedEntryError(f"{shown!r} would leave the folder", "the name was sent from elsewhere")
        if len(parts) > self.limits.depth or len(os.fsencode(name)) > self.limits.name_bytes:
            raise RefusedEntryError(
                f"the name {shown!r} is too long",
                f"at most {self.limits.depth} parts and {self.limits.name_bytes:,} bytes are accepted",
            )
        return parts


def _open_folder(parent: int, name: str, whole: str) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=parent)
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        why = f"{name!r} is a link or a file here, not a folder, which is not followed"
        raise RefusedEntryError(f"{whole!r} cannot be written", why, "remove it, or name another folder") from error


def _keep_private(file: int, parent: int, leaf: str) -> None:
    """Take from the new file what others could not do with the one it replaces."""
    with contextlib.suppress(FileNotFoundError):
        before = os.stat(leaf, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISREG(before.st_mode):
            readable = before.st_mode & 0o444
            os.fchmod(file, os.fstat(file).st_mode & 0o777 & (readable | readable >> 1 | readable >> 2))
