"""`orch budget`: what projects and members may spend."""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.tables import draw_table
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.lazy_group import LazyCommand, LazyGroup, Section
from orchestrator.client.choose import open_documents, open_team
from orchestrator.errors import UserError
from orchestrator.formatting import format_amount

if TYPE_CHECKING:
    from orchestrator.plan.spending_budget import SpendingBudget

_HERE = "orchestrator.cli.commands.settings.budget"
_NONE = "none"
_MARKETS = ("on-demand", "spot", "reservation", "capacity-block", "flex-start")


class _Limit(click.ParamType[Any]):
    """A number above 0, or `none` for no limit."""

    name = "limit"

    def __init__(self, kind: type[int] | type[float]) -> None:
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == _NONE:
            return _NONE
        try:
            number = self._kind(str(value).removeprefix("$"))
        except ValueError:
            number = 0
        if not 0 < number < math.inf:
            self.fail(f"{value!r} is not a number above 0, and not '{_NONE}'", param, ctx)
        return number


class _Markets(click.ParamType[tuple[str, ...]]):
    """Names of markets with commas between them, or `all`."""

    name = "list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        names = () if value == "all" else tuple(dict.fromkeys(value.split(",")))
        if wrong := [name for name in names if name not in _MARKETS]:
            self.fail(f"{wrong[0]!r} is not a market; known: {', '.join(_MARKETS)}, all", param, ctx)
        return names


@click.group(
    "budget",
    cls=LazyGroup,
    invoke_without_command=True,
    sections=[
        Section(
            "Commands",
            (
                LazyCommand("set", f"{_HERE}:set_command", "Set limits of a budget; the others stay."),
                LazyCommand("remove", f"{_HERE}:remove_command", "Remove a budget."),
            ),
        )
    ],
    examples=[
        ("orch budget", "limits, what is spent, and what is left this month"),
        ("orch budget set --per-month 500 --per-hour 40", "for everything that orch rents"),
        ("orch budget set --project vision --member ada --per-run 100", "for one member in one project"),
        ("orch budget remove --project vision --member ada", ""),
    ],
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def budget(ctx: click.Context, output: str) -> None:
    """List the budgets: limits, what is spent and held, and what is left this month.

    A slice holds the price of its first hour from its launch on. Months are those of UTC. BILLED is the part of this
    month that is from bills (orch cost import); the rest is by the prices on record.
    """
    if ctx.invoked_subcommand is not None:
        return
    with open_documents() as documents:
        found = documents.list_budgets()
        if output == "json":
            write_stdout(json.dumps(found, indent=2))
        elif found["budgets"]:
            write_stdout(*draw_table(_list_rows(found["budgets"]), sys.stdout))
        else:
            write_stderr("no budgets; orch budget set --per-month DOLLARS makes one (docs/team.md)")


def _list_rows(documents: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    from orchestrator.documents.budgets import budget_from_json, list_other_limits

    billed = any(one["billed"] for one in documents)
    names = ("THIS MONTH", *(["BILLED"] if billed else []), "HELD", "LEFT", "AN HOUR", "OTHER LIMITS")
    rows: list[tuple[str, ...]] = [("PROJECT", "MEMBER", *names)]
    for one in documents:
        budget = budget_from_json(one)
        rows.append(
            (
                budget.project or "all",
                budget.member or "all",
                _of(one["spent"], budget.dollars_per_month),
                *([_dollars(one["billed"])] if billed else []),
                _dollars(one["held"]),
                _dollars(one["left"]) if budget.dollars_per_month is not None else "",
                _of(one["per_hour"], budget.dollars_per_hour),
                "; ".join(list_other_limits(budget)),
            )
        )
    return rows


def _of(used: float | None, limit: float | None) -> str:
    return _dollars(used) + (f" of {_dollars(limit)}" if limit is not None else "")


def _dollars(value: float | None) -> str:
    return "not known" if value is None else format_amount(value)


_project = click.option("--project", default="", metavar="NAME", help="Only clusters of this project.")
_member = click.option("--member", default="", metavar="NAME", help="Only clusters of this member.")
_DOLLARS = _Limit(float)


@click.command(
    "set",
    cls=OrchCommand,
    examples=[
        ("orch budget set --per-month 500 --per-run 100 --per-hour 40", "for everything"),
        ("orch budget set --project vision --largest-slice 64 --markets spot,on-demand", "for one project"),
        ("orch budget set --per-month 800 --at-limit stop", "runs end when the money of the month is spent"),
        ("orch budget set --per-hour none", "without this limit; the others stay"),
    ],
)
@_project
@_member
@click.option("--per-month", type=_DOLLARS, metavar="DOLLARS", help="In a calendar month of UTC.")
@click.option("--per-run", type=_DOLLARS, metavar="DOLLARS", help="Of a run, over its attempts and resumes.")
@click.option("--per-hour", type=_DOLLARS, metavar="DOLLARS", help="Of all slices that exist at the same time.")
@click.option("--largest-slice", type=_Limit(int), metavar="CHIPS", help="Of one slice; hosts, where it has no chips.")
@click.option("--markets", type=_Markets(), metavar="LIST", help=f"Some of {','.join(_MARKETS)}, or all.")
@click.option("--unknown-prices", type=click.Choice(["refuse", "allow"]), help="Machines whose price is not known.")
@click.option("--at-limit", type=click.Choice(["refuse", "stop"]), help="Refuse further slices, or end runs, too.")
def set_command(
    project: str,
    member: str,
    per_month: float | str | None,
    per_run: float | str | None,
    per_hour: float | str | None,
    largest_slice: int | str | None,
    markets: tuple[str, ...] | None,
    unknown_prices: str | None,
    at_limit: str | None,
) -> None:
    """Set limits of a budget; those that are not named stay as they are. `none` removes one.

    Without --project and --member it is about everything. A launch has to fit into every budget that covers it.
    Through a service, its owners change budgets.
    """
    given: dict[str, Any] = {
        "dollars_per_month": per_month,
        "dollars_per_run": per_run,
        "dollars_per_hour": per_hour,
        "largest_slice": largest_slice,
        "markets": markets,
        "unknown_prices": unknown_prices,
        "at_limit": at_limit,
    }
    values: dict[str, Any] = {
        name: None if value == _NONE else value for name, value in given.items() if value is not None
    }
    if not values:
        raise UserError("nothing to set", "no limit is named", "orch budget set --per-month 500")
    from orchestrator.documents.budgets import budget_from_json

    with open_team() as team:
        now = budget_from_json(team.set_budget(project, member, values))
    write_stderr(f"budget of {now.scope}: {_describe(now)}")


@click.command("remove", cls=OrchCommand, examples=[("orch budget remove --project vision", "")])
@_project
@_member
def remove_command(project: str, member: str) -> None:
    """Remove a budget. Without --project and --member it is that of everything."""
    with open_team() as team:
        team.remove_budget(project, member)
    write_stderr("the budget is removed")


def _describe(now: SpendingBudget) -> str:
    from orchestrator.documents.budgets import list_other_limits

    amounts = (
        (now.dollars_per_month, "a month"),
        (now.dollars_per_hour, "an hour at the same time"),
    )
    parts = [f"{format_amount(amount)} {period}" for amount, period in amounts if amount is not None]
    return "; ".join([*parts, *list_other_limits(now)]) or "no limits"
