"""The question before all clusters of a user are deleted."""

from __future__ import annotations

from collections.abc import Iterable

import click

from orchestrator.cli.drawing.terminal import can_ask, write_stderr
from orchestrator.cli.execution.act import ActMode, PerformMode
from orchestrator.errors import OrchError, UserError
from orchestrator.messages import count_noun


def confirm_deletion_of_all(mine: Iterable[tuple[str, str]], mode: ActMode) -> tuple[str, ...]:
    """Return the names of all clusters of a user, after a question where they would be deleted.

    Args:
        mine: Name and summary of each.
        mode: Whether to show the plan or to perform it.

    Raises:
        UserError: There is no terminal to ask on.
        OrchError: The user declined.
    """
    found = sorted(mine)
    names = tuple(name for name, _ in found)
    if not names:
        write_stderr("there are no clusters of yours")
    if not names or not isinstance(mode, PerformMode) or mode.consent:
        return names
    if not can_ask():
        raise UserError(
            f"this deletes {count_noun(len(names), 'cluster')}, and there is no terminal to ask on",
            ", ".join(names),
            "add --yes to agree, or --dry-run to see what would be done",
        )
    write_stderr(*(f"{name}   {summary}".rstrip() for name, summary in found))
    if not click.confirm(f"delete {count_noun(len(names), 'cluster')}?", default=False, err=True):
        raise OrchError("you declined", "nothing was done")
    return names
