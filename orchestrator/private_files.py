"""Files and folders of orch's own state, which only their owner may use, whatever the umask is."""

from __future__ import annotations

import contextlib
import os
import stat
from functools import cache
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


@cache
def close_to_others(state: Path) -> None:
    """Take the rights of group and others off what an older orch left below `state`, once in a process.

    When the first level is closed, everything below was made so, and is not read. Homes of local hosts are closed,
    too; what programs keep in them stays as it is.
    """
    with contextlib.suppress(OSError):  # absent, or another user's: reading it reports that
        if not any(narrow(path) for path in (state, *state.iterdir())):
            return
        for folder, folders, files in os.walk(state):
            here = Path(folder)
            for name in (*folders, *files):
                narrow(here / name)
            if here.parent.name == "hosts" and "home" in folders:
                folders.remove("home")


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
