"""`orch catalog`: which prices are used, from when and from where, and reading them again from the vendors."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.tables import draw_table
from orchestrator.cli.drawing.terminal import inspect_terminal, write_stderr, write_stdout
from orchestrator.cli.lazy_group import LazyCommand, LazyGroup, Section
from orchestrator.drivers import get_driver, has_part, load_part
from orchestrator.errors import CloudError, OrchError, UserError
from orchestrator.exits import Exit
from orchestrator.messages import count_noun, join_some
from orchestrator.providers.price_refresh import list_readers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.catalog.refreshed import Refreshed, Unread

_HERE = "orchestrator.cli.commands.before.catalog"
_LONGEST_DAYS = 90  # that EC2 keeps of spot prices (DescribeSpotPriceHistory, EC2 API reference)
_MOST_NAMED = 5  # kinds of refusals in the text


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    sections=[
        Section(
            "Commands",
            (
                LazyCommand("show", f"{_HERE}:show", "Which prices are used, from when and from where."),
                LazyCommand("refresh", f"{_HERE}:refresh", "Read prices and places from the vendors."),
            ),
        )
    ],
    examples=[
        ("orch catalog", "which prices are used, from when and from where"),
        ("orch catalog refresh", "read them again, from every cloud that is set up"),
    ],
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def catalog(ctx: click.Context, output: str) -> None:
    """Show which prices are used, or read them from the vendors."""
    if ctx.invoked_subcommand is None:
        _show(output)


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch catalog show", "which prices are used, from when and from where"),
        ("orch catalog show -o json | jq '.clouds[] | {provider, read_at, prices}'", ""),
    ],
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def show(output: str) -> None:
    """Show which prices are used, from when and from where. No cloud is asked."""
    _show(output)


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch catalog refresh", "from every cloud that is set up here"),
        ("orch catalog refresh aws --days 30", "with the spot prices of a month"),
        (
            "orch catalog refresh aws --region us-east-1 --region eu-north-1",
            "of two regions; the others stay as they are",
        ),
    ],
)
@click.argument("provider", type=click.Choice([driver.name for driver in list_readers()]), required=False)
@click.option("--region", "regions", metavar="REGION", multiple=True, help="Only this region; can be repeated.")
@click.option(
    "--days",
    type=click.IntRange(min=1, max=_LONGEST_DAYS),
    default=7,
    show_default=True,
    help="How far back spot prices are read, where the vendor keeps them.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def refresh(ctx: click.Context, provider: str | None, regions: tuple[str, ...], days: int, output: str) -> None:
    """Read prices, and where machines are sold, from the vendors themselves, with your credentials.

    They go before orch's own tables from then on, in every plan and offer. What a vendor refuses is named, keeps its
    older price, and makes the exit status 1. Nothing is rented, and nothing is changed.
    """
    names = (provider,) if provider else _find_set_up()
    failed: list[OrchError] = []
    incomplete = False
    for name in names:
        try:
            incomplete |= _refresh(name, regions, days)
        except OrchError as error:
            failed.append(error)
            if len(names) > 1:
                write_stderr(f"{name}: {error.what}", *filter(None, (error.why, error.next_step)))
    if failed and len(failed) == len(names):
        raise failed[0]
    _show(output)
    if failed or incomplete:
        ctx.exit(failed[0].exit_status if failed else Exit.FAILURE)


def _find_set_up() -> tuple[str, ...]:
    """Return the clouds for which this computer may have credentials.

    Raises:
        UserError: There are none.
    """
    names = [driver.name for driver in list_readers()]
    found = tuple(
        name
        for name in names
        if has_part(name, "configured") and load_part(name, "configured").find_credentials(os.environ, Path.home())
    )
    if not found:
        raise UserError("no cloud is set up on this computer", "", f"orch catalog refresh {names[0]}   or: orch check")
    return found


def _refresh(name: str, regions: tuple[str, ...], days: int) -> bool:
    """Read one cloud, and keep what it gave; return whether something is missing."""
    from orchestrator.catalog.refreshed import load_refreshed, merge_refreshed, write_refreshed
    from orchestrator.providers.price_refresh import PriceRequest, Progress, load_reader

    now = time.time()
    request = PriceRequest(
        now=now,
        today=datetime.fromtimestamp(now, UTC).date().isoformat(),
        regions=regions,
        days=days,
        account=_choose_account(name),
    )
    drawn = _ProgressLine(name)
    try:
        new = load_reader(name).read_prices(request, Progress(drawn.show))
    finally:
        drawn.end()
    if not new.rows:
        _refuse_unknown_regions(name, regions)
        why = new.unread[0].why if new.unread else "it has no prices of these machines there"
        raise CloudError(f"{get_driver(name).vendor} gave no prices", why, f"orch check {name}")
    write_refreshed(merge_refreshed(new, load_refreshed(name).refreshed, regions))
    regions_read = count_noun(len({row.region for row in new.rows}), "region")
    write_stderr(f"{name}: {count_noun(len(new.rows), 'price')} in {regions_read}")
    write_stderr(*_describe_unread(name, new.unread))
    return bool(new.unread)


def _refuse_unknown_regions(name: str, regions: tuple[str, ...]) -> None:
    """Raise UserError for a region of which a vendor gave nothing, and that no table knows."""
    from orchestrator.catalog.comparing import refuse_unknown_region
    from orchestrator.catalog.rented import load_tables

    machines = [machine for table in load_tables() for machine in table.list_machines() if machine.provider == name]
    for region in regions:
        refuse_unknown_region(machines, region)


def _choose_account(name: str) -> str:
    """Return the profile or project that the configuration names; "" for the usual one."""
    from orchestrator.task.config import load_config

    option = get_driver(name).place_option
    layers = load_config(os.environ).explain(f"{name}.{option}") if option else ()
    return str(layers[0].value or "") if layers else ""


def _describe_unread(name: str, unread: Sequence[Unread]) -> list[str]:
    """Return a line for each reason, with what it is the reason of."""
    by_reason: dict[str, list[str]] = {}
    for one in unread:
        by_reason.setdefault(one.why, []).append(one.what)
    lines = [f"{name}: not read: {join_some(whats)}: {why}" for why, whats in by_reason.items()]
    more = [f"{name}: and {len(lines) - _MOST_NAMED} more reasons: orch catalog show -o json"]
    return lines if len(lines) <= _MOST_NAMED else lines[:_MOST_NAMED] + more


class _ProgressLine:
    """What was read so far: one line that changes for a person, and a line for each kind otherwise."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._live = inspect_terminal(sys.stderr).live
        self._drawn = False

    def show(self, what: str, done: int, total: int) -> None:
        """Draw a new count."""
        if self._live:
            self._drawn = True
            sys.stderr.write(f"\r{self._name}: {what}: {done} of {total}\x1b[K")
            sys.stderr.flush()
        elif done == total:
            write_stderr(f"{self._name}: {what}: {done} of {total}")

    def end(self) -> None:
        """Clear the line."""
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _show(output: str) -> None:
    from orchestrator.catalog.refreshed import describe_problems, load_refreshed, refreshed_path

    names = [driver.name for driver in list_readers()]
    loaded = {name: load_refreshed(name) for name in names}
    if output == "json":
        items = [_as_json(name, loaded[name].refreshed, loaded[name].problem, refreshed_path(name)) for name in names]
        write_stdout(json.dumps({"version": 1, "kind": "catalog", "clouds": items}, indent=2))
        return
    rows = [("CLOUD", "READ", "PRICES", "REGIONS", "NOT READ", "FROM")]
    for name in names:
        refreshed = loaded[name].refreshed
        if refreshed is None:
            rows.append((name, "-", "-", "-", "-", "orch's own tables"))
            continue
        regions = len({row.region for row in refreshed.rows})
        read = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(refreshed.read_at))
        rows.append(
            (
                name,
                read,
                f"{len(refreshed.rows):,}",
                str(regions),
                str(len(refreshed.unread)),
                str(refreshed_path(name)),
            )
        )
    write_stdout(*draw_table(rows, sys.stdout))
    write_stderr(*describe_problems(names, time.time()))
    if all(one.refreshed is None for one in loaded.values()):
        write_stderr("to read the prices of all regions with your credentials: orch catalog refresh")


def _as_json(name: str, refreshed: Refreshed | None, problem: str, path: Path) -> dict[str, Any]:
    rows = refreshed.rows if refreshed is not None else ()
    return {
        "provider": name,
        "used": "refreshed" if refreshed is not None else "shipped",
        "file": str(path),
        "problem": problem or None,
        "read_at": refreshed.read_at if refreshed is not None else None,
        "oldest": (refreshed.oldest or None) if refreshed is not None else None,
        "newest": (refreshed.newest or None) if refreshed is not None else None,
        "prices": len(rows),
        "markets": dict(sorted(Counter(row.market for row in rows).items())),
        "regions": sorted({row.region for row in rows}),
        "sources": sorted({row.source for row in rows}),
        "not_read": [{"what": one.what, "why": one.why} for one in (refreshed.unread if refreshed is not None else ())],
    }
