"""Files and folders of orch's own state, which only their owner may use, whatever the umask is."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def make_private_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing. Folders that are there stay as they are."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        make_private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def open_private(path: str, flags: int) -> int:
    """Open a file for `open(..., opener=open_private)`."""
    return os.open(path, flags, 0o600)


def narrow(path: Path) -> bool:
    """Take the rights of group and others off a file or folder of this user; return whether it had some."""
    try:
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode) or found.st_uid != os.geteuid() or not found.st_mode & 0o077:
            return False
        path.chmod(found.st_mode & 0o700)
    except FileNotFoundError:  # another command removed it meanwhile
        return False
    return True


def write_whole(path: Path, content: str, mode: int = 0o600, *, flush: bool = True) -> None:
    """Write by rename: a reader, or we after a crash, finds the old content or the new.

    With `flush` it waits for the disk, so that one of the two survives a power cut.

    Raises:
        OSError: The file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(content)
        file.flush()
        os.fchmod(file.fileno(), mode)  # the umask may have taken bits away
        if flush:
            os.fsync(file.fileno())
    temporary.replace(path)
