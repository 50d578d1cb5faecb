"""Show a task that asks for what its vendor has ended, rewritten, and save it with --write."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.errors import UserError

if TYPE_CHECKING:
    from orchestrator.task.errors import OutdatedTaskError, TaskRewrite


def offer_rewrite(error: OutdatedTaskError, *, write: bool, quiet: bool = False) -> int:
    """Print the rewritten task as a diff, save it with `write`, and return the exit status.

    `quiet` sends the diff to stderr, since stdout is for a program.

    Raises:
        OutdatedTaskError: Nothing is saved.
    """
    rewriting = error.rewriting
    if rewriting is None:
        raise error
    (write_stderr if quiet else write_stdout)(rewriting.diff().rstrip("\n"))
    write_stderr(*(f"note: {remark}" for remark in rewriting.remarks))
    if not write:
        raise error
    kept = save_rewritten_task(rewriting)
    write_stderr(f"saved {rewriting.path}; the old version is in {kept}", f"  next: orch plan {rewriting.path}")
    return 0


def no_rewrite_error(path: str) -> UserError:
    return UserError(
        f"--write has nothing to save in {path}", "it requests nothing that its vendor has ended", "leave --write out"
    )


def save_rewritten_task(rewriting: TaskRewrite) -> Path:
    """Replace the file by the rewritten text, atomically, and return the path of the copy of the old one.

    Raises:
        UserError: There is such a copy already, or the folder cannot be written.
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
