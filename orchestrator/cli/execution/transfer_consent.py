"""Ask before data leaves a cloud or region where that costs more than a bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orchestrator.cli.drawing.terminal import can_ask, write_stderr
from orchestrator.errors import OrchError, UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.engine.operations.transfers import Transfer


def agree_to_download(uri: str, size: int, *, agreed: bool) -> None:
    """Show what bytes of a bucket cost that come to this computer, and ask where it is much.

    Raises:
        UserError: There is no terminal to ask on.
        OrchError: The user does not agree.
    """
    from orchestrator.engine.operations.transfers import assess_download

    agree_to_transfers(assess_download(uri, size), agreed=agreed)


def agree_to_transfers(transfers: Sequence[Transfer], *, agreed: bool) -> None:
    """Show transfers, and ask where they cost much; `agreed` answers. Raises as agree_to_download does."""
    from orchestrator.engine.operations.transfers import is_large

    agree_to_lines([str(one) for one in transfers], large=is_large(transfers), agreed=agreed)


def agree_to_lines(transfers: Sequence[str], *, large: bool, agreed: bool) -> None:
    """Show transfers as a plan words them, and ask where they cost much. Raises as agree_to_download does."""
    if not transfers:
        return
    lines = [f"transfer {one}" for one in transfers]
    if agreed or not large:
        write_stderr(*lines)
        return
    if not can_ask():
        raise UserError(
            "this transfer costs money, and there is no terminal to ask on", "; ".join(lines), "add --yes to agree"
        )
    write_stderr(*lines)
    if not click.confirm("transfer it?", default=False, err=True):
        raise OrchError("not agreed to", "nothing was transferred")
