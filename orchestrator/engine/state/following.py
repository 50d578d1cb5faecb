"""A file beside the copies of an attempt's output says whether they have, or get, all of it.

While a process follows the hosts, the file names the process. When it has followed all of them to the end of the
program, the file says that the copies are complete.
"""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.private_files import write_whole
from orchestrator.store.lease_process import identify_process

_NAME = "followed-by"
_COMPLETE = "complete"


def note_following(folder: Path) -> None:
    """Note that this process follows the hosts. Raises OSError where the disk is full or not writable."""
    write_whole(folder / _NAME, f"{os.getpid()} {identify_process(os.getpid())}", flush=False)


def note_followed(folder: Path, *, complete: bool) -> None:
    """Note that this process follows no more, and whether the copies are complete. Raises OSError as above."""
    if complete:
        write_whole(folder / _NAME, _COMPLETE, flush=False)
    elif _read(folder).startswith(f"{os.getpid()} "):
        (folder / _NAME).unlink(missing_ok=True)


def is_followed(folder: Path) -> bool:
    """Return whether a process of this computer follows the hosts, or has followed them to the end."""
    content = _read(folder)
    if content == _COMPLETE:
        return True
    pid, _, identity = content.partition(" ")
    return bool(identity) and pid.isdigit() and identify_process(int(pid)) == identity


def _read(folder: Path) -> str:
    try:
        return (folder / _NAME).read_text("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""
