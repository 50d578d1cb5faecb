"""Ask before a program starts that names files which are not sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orchestrator.cli.drawing.terminal import can_ask, write_stderr
from orchestrator.errors import OrchError

if TYPE_CHECKING:
    from collections.abc import Sequence


def agree_to_missing_files(doubts: Sequence[str], *, agreed: bool) -> None:
    """Show what a program names and will not find, and ask a person at a terminal; `agreed` answers.

    Without a terminal it is only shown: the program may not need the files, and machines that cost money ask by
    themselves.

    Raises:
        OrchError: The user does not agree.
    """
    if not doubts:
        return
    write_stderr(*(f"warning: {doubt}" for doubt in doubts))
    if not agreed and can_ask() and not click.confirm("start it without them?", default=False, err=True):
        raise OrchError("not agreed to", "nothing was done")
