"""Ask before a command begins to cost money."""

from __future__ import annotations

import sys
from shutil import get_terminal_size
from typing import TYPE_CHECKING, TextIO

import click

from orchestrator.cli.drawing.terminal import can_ask, inspect_terminal, write_stderr
from orchestrator.cli.execution.transfer_consent import agree_to_lines
from orchestrator.errors import OrchError, UserError

if TYPE_CHECKING:
    from orchestrator.client.orders import OrderCalls, PlannedOrder


def preview_width(stream: TextIO) -> int:
    """Return the columns of a preview: those of the terminal, or COLUMNS, between 80 and 100."""
    return min(100, max(80, inspect_terminal(stream).width or get_terminal_size().columns))


def agree_to_costs(orders: OrderCalls, planned: PlannedOrder, *, agreed: bool) -> PlannedOrder:
    """Show what a command transfers, and ask before that or machines cost money.

    Args:
        orders: Knows the costs.
        planned: The plan.
        agreed: Whether the user agreed on the command line.

    Returns:
        The plan, with what was learned of its buckets.

    Raises:
        UserError: There is no terminal to ask on.
        OrchError: The user does not agree.
    """
    planned, costs = orders.find_costs(planned)
    if agreed:
        agree_to_lines(costs.transfers, large=costs.large, agreed=True)
        return planned
    if not costs.rented:
        agree_to_lines(costs.transfers, large=costs.large, agreed=False)
        return planned
    lines = [costs.rented, *(f"transfer {one}" for one in costs.transfers)]
    if not can_ask():
        raise UserError(
            "this spends money, and there is no terminal to ask on",
            "; ".join(lines),
            "add --yes to agree, or --dry-run to see what would be done",
        )
    write_stderr(planned.render_head(preview_width(sys.stderr)) + "\n".join(lines))
    if not click.confirm("spend this?", default=False, err=True):
        raise OrchError("not agreed to", "nothing was done")
    return planned
