"""Local folders for files that wait to be uploaded: below one for each process, which is locked while it lives.

A process that is killed leaves its folder. The next one with the same root removes it, which the lock allows: the
system releases it with the process.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from ..checkpoint.file_lock import hold_lock
from ..checkpoint.regular_files import open_regular_at
from ..environment import Run, World
from ..errors import StorageError

_LOCK = ".lock"  # hidden: the root may be below a bucket's folder
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND
_LOCK_SECONDS = 900.0  # a process that removes what killed ones left may have much to remove


class Staging:
    """The folders of this process alone, on a local disk."""

    def __init__(self, root: Path, name: str, report: Callable[[str], None]) -> None:
        """Make a folder below `root` that holds them, and remove those of processes that were killed.

        Raises:
            StorageError: The disk fails.
        """
        self._made = 0
        try:
            root.mkdir(parents=True, exist_ok=True)
            with hold_lock(root / _LOCK, seconds=_LOCK_SECONDS, report=report):
                _remove_abandoned(root)
                self.path = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=root))
                self._held = (self.path / _LOCK).open("ab")
                fcntl.flock(self._held.fileno(), fcntl.LOCK_EX)
        except OSError as error:
            raise StorageError(f"{root}: cannot be written: {error.strerror}") from error

    def new_folder(self) -> Path:
        """Return a new empty folder.

        Raises:
            OSError: The disk fails.
        """
        self._made += 1
        folder = self.path / f"{self._made:06d}"
        folder.mkdir()
        return folder

    def holds(self, folder: Path) -> bool:
        """Return whether `new_folder` has made this folder."""
        return folder.parent == self.path

    def remove(self) -> None:
        """Remove all folders."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._held.close()


def open_staging(
    run: Run, world: World, uri: str, environ: Mapping[str, str], report: Callable[[str], None]
) -> Staging:
    """Return the folders of this process; `uri` is where checkpoints go, "" for nowhere.

    Raises:
        StorageError: They cannot be made.
    """
    name = f"{run.run_id[:100].replace('/', '-')}-r{world.rank}"  # for people who look there
    return Staging(find_staging_root(uri, environ), name, report)


def find_staging_root(uri: str, environ: Mapping[str, str]) -> Path:
    """Return where the folders are: on the host's large disk, below a bucket that is a folder, or in /tmp.

    Raises:
        StorageError: The one in /tmp is another user's, or a link stands in the bucket's folder.
    """
    if "ORCH_RANK" in environ:
        own = environ.get("ORCH_HOST_DIR") or Path.home() / ".orch" / "host"  # hosts may share a home folder
        return Path(environ.get("ORCH_SCRATCH") or own) / "saves"
    if uri.startswith("file://"):
        root = Path(uri.removeprefix("file://")) / ".saves"
        if root.is_symlink():  # whoever can write to the bucket would choose what is removed
            raise StorageError(f"{root} is a link, which is not followed: remove it")
        return root
    root = Path(tempfile.gettempdir()) / f"orch-run-{os.getuid()}"
    with suppress(FileExistsError):
        root.mkdir(mode=0o700)
    if root.is_symlink() or root.stat().st_uid != os.getuid():
        raise StorageError(f"{root} is another user's: remove it, or set TMPDIR to another folder")
    return root


def _remove_abandoned(root: Path) -> None:
    """Remove the folders of processes that were killed; call it with the root locked, while none is being made."""
    for folder in root.iterdir():
        if not folder.is_dir() or folder.is_symlink():
            continue
        with suppress(OSError), os.fdopen(open_regular_at(None, str(folder / _LOCK), _APPEND), "ab") as held:
            if _is_free(held):
                shutil.rmtree(folder, ignore_errors=True)


def _is_free(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
