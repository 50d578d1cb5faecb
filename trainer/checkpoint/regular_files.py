"""Regular files below one folder of a disk, for both storage modules. It needs only the standard library.

Whoever can write into a `file://` bucket can put a link, a named pipe or a device there. A link would lead reads and
writes elsewhere (`latest.json` to /etc/passwd), and opening a pipe waits for its other end. So each part of a name is
opened from the descriptor of its parent, no link is followed, and what is opened must be a regular file. Links on the
way to the folder itself are followed: they are of whoever named it.

Sources: open(2), O_NOFOLLOW ("if the trailing component is a symbolic link, then the open fails, with the error
ELOOP"; with O_DIRECTORY it is ENOTDIR) and fifo(7) ("a process can open a FIFO in nonblocking mode"); man-pages 6.9.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

MOST_NAME_BYTES = 1024
"""Longest name of an object, as in the clouds; it also bounds how deep a listing goes."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS = ((stat.S_ISLNK, "a link"), (stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket"))


class NotRegularError(OSError):
    """A link, a pipe, a socket or a device stands where a file or folder of a bucket is expected."""


class FolderEntry(NamedTuple):
    """An entry of a folder; `file` is None for a folder."""

    name: str
    file: os.stat_result | None


def open_folder_below(root: Path, path: str, *, create: bool = False) -> int:
    """Return a descriptor of a folder below `root` ("" for `root`); with `create`, make what is missing.

    Raises:
        NotRegularError: A link is among its parts.
        FileNotFoundError: It does not exist.
        NotADirectoryError: A file is among its parts.
        OSError: The disk refuses it, or the name is too long.
        ValueError: A part is `..`.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError(f"{path!r} leads out of {root}")
    if len(os.fsencode(path)) > MOST_NAME_BYTES:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), f"{root}/{path[:100]}...")
    if create:
        root.mkdir(parents=True, exist_ok=True)
    here = os.open(root, _FOLDER)
    for index, part in enumerate(parts):
        try:
            below = _open_part(here, part, root.joinpath(*parts[: index + 1]), create)
        finally:
            os.close(here)
        here = below
    return here


@contextmanager
def open_parent(root: Path, path: str, *, create: bool = False) -> Generator[tuple[int, str], None, None]:
    """Open the folder that holds an object; yield its descriptor and the object's name in it.

    Raises what `open_folder_below` does.
    """
    above, _, name = path.rpartition("/")
    if name in ("", ".", ".."):
        raise ValueError(f"{path!r} names no file")
    folder = open_folder_below(root, above, create=create)
    try:
        yield folder, name
    finally:
        os.close(folder)


def open_regular(root: Path, path: str) -> int:
    """Return a descriptor that reads a file below `root`. Raises what `open_parent` and `open_regular_at` do."""
    with open_parent(root, path) as (folder, name):
        return open_regular_at(folder, name, shown=f"{root}/{path}")


def open_regular_at(folder: int | None, name: str, flags: int = os.O_RDONLY, *, shown: str = "") -> int:
    """Return a descriptor of a regular file.

    Args:
        folder: Descriptor of its folder; None where `name` is a path.
        name: Its name.
        flags: Of open(2).
        shown: Names it in errors; `name` by default.

    Raises:
        NotRegularError: It is a link, a pipe, a socket or a device; none of them is waited for.
        FileNotFoundError: It does not exist.
        IsADirectoryError: It is a folder.
        OSError: The disk refuses it.
    """
    shown = shown or name
    try:
        file = os.open(name, flags | _SAFELY, 0o666, dir_fd=folder)
    except OSError as error:
        kind = _describe_kind(folder, name)  # of what is there: a pipe refuses a writer with ENXIO
        if kind and not isinstance(error, FileNotFoundError):
            raise _refuse(shown, kind) from error
        raise
    mode = os.fstat(file).st_mode
    if stat.S_ISREG(mode):
        return file
    os.close(file)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), shown)
    raise _refuse(shown, _name_kind(mode))


def create_at(folder: int, name: str, *, shown: str = "") -> int:
    """Return a descriptor that writes a new file; errors name it as `shown`.

    Raises:
        FileExistsError: Something has its name.
        OSError: The disk refuses it.
    """
    try:
        return os.open(name, _NEW, 0o666, dir_fd=folder)
    except OSError as error:
        error.filename = shown or name
        raise


def reserve_room(file: int, size: int) -> None:
    """Reserve bytes for a file, where the file system can: it then counts them against its quotas.

    Not by posix_fallocate(3), which writes into each block where the file system cannot (fallocate(2) fails with
    EOPNOTSUPP there; man-pages 6.9).

    Raises:
        OSError: There is no room (ENOSPC), or the quota is used up (EDQUOT).
    """
    reserve = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    if reserve is None or not size:
        return
    if reserve(file, 0, ctypes.c_longlong(0), ctypes.c_longlong(size)) != 0:
        failed = ctypes.get_errno()
        if failed in (errno.ENOSPC, errno.EDQUOT):
            raise OSError(failed, os.strerror(failed))


def stat_regular(root: Path, path: str) -> os.stat_result | None:
    """Return the state of a file below `root`; None if there is none, or a folder.

    Raises:
        NotRegularError: It is neither, or a link is among the folders.
        OSError: The disk refuses it.
    """
    try:
        with open_parent(root, path) as (folder, name):
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISDIR(found.st_mode):
        return None
    if not stat.S_ISREG(found.st_mode):
        raise _refuse(f"{root}/{path}", _name_kind(found.st_mode))
    return found


def list_folder(root: Path, path: str) -> list[FolderEntry]:
    """Return the files and folders in a folder below `root`, in no order; none where there is no such folder.

    Links, pipes, sockets and devices are left out.

    Raises:
        NotRegularError: A link is among the parts of its name.
        OSError: The disk refuses it.
    """
    entries: list[FolderEntry] = []
    try:
        folder = open_folder_below(root, path)
    except (FileNotFoundError, NotADirectoryError):
        return entries
    try:
        with os.scandir(folder) as found:
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    entries.append(FolderEntry(entry.name, None))
                elif entry.is_file(follow_symlinks=False):
                    try:
                        entries.append(FolderEntry(entry.name, entry.stat(follow_symlinks=False)))
                    except FileNotFoundError:
                        continue  # deleted by another since it was listed
    finally:
        os.close(folder)
    return entries


def _open_part(parent: int, part: str, place: Path, create: bool) -> int:
    if create:
        with suppress(FileExistsError):
            os.mkdir(part, dir_fd=parent)
    try:
        return os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
    except OSError as error:
        kind = _describe_kind(parent, part)
        if kind and not isinstance(error, FileNotFoundError):
            raise _refuse(str(place), kind) from error
        error.filename = str(place)
        raise


def _describe_kind(folder: int | None, name: str) -> str:
    """Return what stands there, where it is neither a file nor a folder; else ""."""
    try:
        return _name_kind(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return ""


def _name_kind(mode: int) -> str:
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return ""
    return next((name for matches, name in _KINDS if matches(mode)), "a device")


def _refuse(place: str, kind: str) -> NotRegularError:
    return NotRegularError(f"{place} is {kind}: only files and folders of the bucket itself are used")
