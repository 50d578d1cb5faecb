"""A task for TPU Nodes, shown as it would be for TPU VMs, and saved when the user says --write."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.terminal import put, say
from orchestrator.errors import UserError

if TYPE_CHECKING:
    from orchestrator.spec.errors import Rewriting, TpuNodeError


def answer(error: TpuNodeError, *, write: bool, quiet: bool = False) -> int:
    """Print the rewritten task as a diff, or save it; the exit status. Raises `error` itself when nothing is saved.

    quiet: stdout is for a program, so the diff goes to stderr.
    """
    rewriting = error.rewriting
    if rewriting is None:
        raise error
    (say if quiet else put)(rewriting.diff().rstrip("\n"))
    say(*(f"note: {remark}" for remark in rewriting.remarks))
    if not write:
        raise error
    kept = save(rewriting)
    say(f"saved {rewriting.path}; as it was: {kept}", f"  next: orch plan {rewriting.path}")
    return 0


def nothing_to_write(path: str) -> UserError:
    return UserError(f"--write has nothing to save in {path}", "it asks for no TPU Node", "leave --write out")


def save(rewriting: Rewriting) -> Path:
    """Put the rewritten text in the file's place, whole or not at all; the path of the copy of the old one.

    Raises UserError when there is such a copy already, or the folder cannot be written.
    """
    path = Path(os.path.realpath(rewriting.path))
    kept = path.with_name(f"{path.name}.bak")
    if kept.exists():
        raise UserError(f"will not overwrite {kept}", "it is an older copy of this task", "move it away")
    try:
        shutil.copy2(path, kept)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="", dir=path.parent, delete=False) as file:
            file.write(rewriting.after)
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(path, file.name)
        Path(file.name).replace(path)
    except OSError as error:
        raise UserError(f"cannot save {path}", error.strerror or str(error), "copy the lines above by hand") from error
    return kept
