"""Ask before a task file that names no machine runs on this computer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orchestrator.cli.drawing.terminal import can_ask, write_stderr
from orchestrator.errors import OrchError, UserError
from orchestrator.messages import join_some

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orchestrator.task.model import Task

_SHOWN = 5  # targets of file mounts in the question


def ask_before_running_here(tasks: Sequence[Task]) -> None:
    """Ask whether programs of a task file may run on this computer, with all rights of the user.

    Args:
        tasks: The tasks that run here because nothing names a machine for them.

    Raises:
        UserError: There is no terminal to ask on.
        OrchError: The user does not agree.
    """
    lines = list(_describe(tasks))
    if not can_ask():
        raise UserError(
            "this task would run on this computer, and there is no terminal to ask on",
            "; ".join(lines),
            "add --infra local or --yes to agree, or --infra CLOUD to rent a machine",
        )
    write_stderr(*lines)
    if not click.confirm("run it on this computer?", default=False, err=True):
        raise OrchError("not agreed to", "nothing was done")


def _describe(tasks: Sequence[Task]) -> Iterator[str]:
    from getpass import getuser

    from orchestrator.task.mounts import outside_targets

    yield f"no machine is requested, so it runs here as user {getuser()}, with access to all of their files"
    if outside := outside_targets(tasks):
        yield f"its file_mounts write outside the hosts' home folders: {join_some(outside, _SHOWN)}"
