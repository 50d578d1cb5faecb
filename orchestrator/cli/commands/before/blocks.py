"""`orch blocks`: find, buy and list capacity blocks."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.tables import draw_table
from orchestrator.cli.drawing.terminal import can_ask, write_stderr, write_stdout
from orchestrator.cli.lazy_group import LazyCommand, LazyGroup, Section
from orchestrator.errors import NotFoundError, OrchError, UserError
from orchestrator.exits import Exit
from orchestrator.formatting import format_amount, format_duration, format_utc
from orchestrator.messages import count_noun
from orchestrator.providers.block_market import Answers, find_seller, load_seller

if TYPE_CHECKING:
    from orchestrator.providers.block_market import Block, Offering
    from orchestrator.slices import Request
    from orchestrator.store.bill_records import BlockRecord
    from orchestrator.store.store import Store

_SELLER = find_seller()
_PLACE = _SELLER.place_option
_HERE = "orchestrator.cli.commands.before.blocks"


@click.group(
    cls=LazyGroup,
    sections=[
        Section(
            "Commands",
            (
                LazyCommand("find", f"{_HERE}:find", "List what can be bought, the cheapest first."),
                LazyCommand("buy", f"{_HERE}:buy", "Buy one: paid immediately, never cancelled."),
                LazyCommand(
                    "list", f"{_HERE}:list_blocks", "List those bought by this installation, with their times."
                ),
            ),
        )
    ],
    examples=[
        ("orch blocks find p5.48xlarge --nodes 4 --hours 48", "what can be bought, in every region"),
        ("orch blocks buy cb-0123456789abcdef0", "see its price, then type it"),
        ("orch blocks list", "when they begin and end"),
    ],
)
def blocks() -> None:
    """Find, buy and list Capacity Blocks of EC2: instances for a future period, paid in advance."""


class _Moment(click.ParamType["float"]):
    """A time such as `2026-11-23` or `2026-11-23T11:30` in UTC, as epoch seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            found = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"'{value}' is not a time; write 2026-11-23 or 2026-11-23T11:30 (UTC)", param, ctx)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


_output = click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
_profile = click.option(
    f"--{_PLACE}",
    "profile",
    metavar="NAME",
    help=f"{_PLACE.title()} of your {_SELLER.vendor} configuration, instead of {_SELLER.name}.{_PLACE} of orch.",
)
_regions = click.option(
    "--region", "regions", multiple=True, metavar="REGION", help="Search this region only; can be repeated."
)


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch blocks find p5.48xlarge --nodes 4 --hours 48", "in every region that offers the type"),
        ("orch blocks find H100:8 --nodes 2 --hours 24 --region us-east-1 --latest 2026-11-30", ""),
    ],
)
@click.argument("instance_type", metavar="TYPE")
@click.option("-n", "--nodes", type=click.IntRange(min=1), default=1, show_default=True, help="Instances, at most 64.")
@click.option("--hours", type=click.IntRange(min=1), required=True, help="Whole days: 24, 48, ... 336, then weeks.")
@_regions
@click.option("--earliest", type=_Moment(), help="Begins at this time or later: 2026-11-23, or with T11:30, UTC.")
@click.option("--latest", type=_Moment(), help="Begins at this time or earlier.")
@_profile
@_output
@click.pass_context
def find(
    ctx: click.Context,
    instance_type: str,
    nodes: int,
    hours: int,
    regions: tuple[str, ...],
    earliest: float | None,
    latest: float | None,
    profile: str | None,
    output: str,
) -> None:
    """Find Capacity Blocks that can be bought now. Nothing is bought."""
    from orchestrator.paths import load_paths
    from orchestrator.providers.offerings import remember

    of = load_seller()
    want = of.plan_search(instance_type, nodes, hours, earliest, latest)
    places = tuple(dict.fromkeys(regions)) or of.regions_of(want.instance_type)
    answers = of.find(of.open_session(_choose_place(profile)), want, places)
    remember(load_paths().state, _SELLER.name, answers.offerings, time.time())
    if output == "json":
        write_stdout(json.dumps(_as_json("offerings", answers), indent=2))
    else:
        write_stdout(*_offerings_table(answers.offerings))
    _print_problems(answers)
    if not answers.offerings:
        what = f"{count_noun(nodes, 'instance')} of {want.instance_type} for {hours} h"
        write_stderr(f"no Capacity Block of {what} is for sale now in {', '.join(places)}")
        ctx.exit(Exit.CAPACITY)
    if output == "text":
        write_stderr(f"to buy the first: orch blocks buy {answers.offerings[0].id}   (it cannot be cancelled)")


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch blocks buy cb-0123456789abcdef0", "shows the price, then asks you to type it"),
        ("orch blocks buy cb-0123456789abcdef0 --dry-run", "the request, and the aws command that sends the same"),
        ("orch blocks buy cb-0123456789abcdef0 --confirm 7552.00", "for scripts: only at exactly this price"),
    ],
)
@click.argument("offering")
@click.option("--region", metavar="REGION", help="Its region; default: known from the search.")
@click.option("--confirm", metavar="PRICE", help="Its price, instead of typing it at the question.")
@click.option("--dry-run", is_flag=True, help="Print what would be sent; ask nothing, buy nothing.")
@_profile
def buy(offering: str, region: str | None, confirm: str | None, dry_run: bool, profile: str | None) -> None:
    """Buy a Capacity Block that `orch blocks find` listed. It is paid immediately and cannot be cancelled."""
    from orchestrator.paths import load_paths
    from orchestrator.providers.offerings import recall

    of = load_seller()
    known = recall(load_paths().state, _SELLER.name, offering)
    if known is None:
        again = "orch blocks find TYPE --nodes N --hours H   then buy one of those"
        raise NotFoundError(
            f"no search on this computer has listed {offering}",
            f"{_SELLER.vendor} gives no price for an id alone",
            again,
        )
    if region is not None and region != known.region:
        raise UserError(f"{offering} is in {known.region}, not in {region}", next_step=f"--region {known.region}")
    if dry_run:
        from orchestrator.engine.state.names import INSTALLATION
        from orchestrator.engine.state.recorded import open_reader
        from orchestrator.values import to_text

        with open_reader() as reader:
            installation = to_text(reader.installation() or INSTALLATION)
        write_stderr(*_terms(known))
        write_stdout(*_request_lines(of.purchase_request(known, installation, _choose_place(profile))))
        write_stderr("nothing was bought")
        return
    _buy(known, _choose_place(profile), confirm)


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch blocks list", "in every region that has blocks"),
        ("orch blocks list --region us-east-1 -o json", ""),
    ],
)
@_regions
@_profile
@_output
def list_blocks(regions: tuple[str, ...], profile: str | None, output: str) -> None:
    """Show the Capacity Blocks bought by this installation, with the time they have left."""
    from orchestrator.engine.state.recorded import open_reader

    of = load_seller()
    with open_reader() as reader:
        installation = reader.installation()
    answers = Answers()
    if installation is not None:
        places = tuple(dict.fromkeys(regions)) or of.every_region()
        answers = of.bought(of.open_session(_choose_place(profile)), installation, places)
    if output == "json":
        write_stdout(json.dumps(_as_json("blocks", answers), indent=2))
    else:
        write_stdout(*_blocks_table(answers.blocks, time.time()))
    _print_problems(answers)
    if not answers.blocks:
        write_stderr("this installation has bought no Capacity Block; see: orch blocks find --help")


def _choose_place(profile: str | None) -> str:
    """Return the account to ask: the option, or else that of the project or the configuration."""
    if profile is not None:
        return profile
    from orchestrator.engine.state.identities import find_identity
    from orchestrator.task.config import load_config

    layers = load_config(os.environ).explain(f"{_SELLER.name}.{_PLACE}")
    place = str(layers[0].value or "") if layers else ""
    return load_seller().name_place(((_PLACE, place), *find_identity(_SELLER.name)))


def _buy(known: Offering, profile: str, confirm: str | None) -> None:
    """Refresh the offering, show its terms, ask for the price, buy it, and show how to use it."""
    from orchestrator.engine.services import real_services
    from orchestrator.engine.state.opening import open_store
    from orchestrator.paths import load_paths

    of = load_seller()
    session = of.open_session(profile)
    now = of.look_again(session, known)
    write_stderr(*_terms(now))
    if now.id != known.id:
        write_stderr(f"{_SELLER.vendor} lists it as {now.id} now")
    typed = confirm if confirm is not None else _typed(now)
    where = load_paths()
    with open_store(where, real_services(where)) as store:
        block = of.buy(session, now, typed, store.installation)
        if now.currency == "USD":  # money in the records is in dollars
            store.record_block(_describe_purchase(now, block, store))
    write_stderr(f"bought: {block.id}, {block.state}; in the task file:")
    write_stdout(*_task_lines(now, block))


def _describe_purchase(offering: Offering, block: Block, store: Store) -> BlockRecord:
    """Return what the records say of a block: paid whole now, whether it is used or not."""
    from orchestrator.store.bill_records import BlockRecord

    return BlockRecord(
        block_id=block.id,
        provider=_SELLER.name,
        region=block.region,
        machine=offering.instance_type,
        count=offering.count,
        begin=offering.start,
        until=offering.end,
        microdollars=round(offering.fee * 1_000_000),
        project=store.project,
        member=store.member,
    )


def _typed(offering: Offering) -> str:
    """Return the price as the user types it.

    Raises:
        UserError: There is no terminal to ask on.
        OrchError: Nothing was typed.
    """
    price = offering.confirmation
    if not can_ask():
        raise UserError(
            "the price must be typed, and there is no terminal", "nothing was bought", f"add --confirm {price}"
        )
    typed: str = click.prompt(f"type {price} to buy", default="", show_default=False, err=True)
    if not typed:
        raise OrchError("the price was not confirmed", "nothing was bought")
    return typed


def _terms(one: Offering) -> list[str]:
    """Return what is bought, when, at what price, and that it cannot be cancelled."""
    where = f"{one.zone} ({one.region})" if one.zone else one.region
    taken = f"{_SELLER.vendor} takes its instances from {_utc(one.taken_from)} on"
    return [
        f"{one.count} x {one.instance_type} in {where} for {one.hours:g} h",
        f"begins {_utc(one.start)}, {_in(one.start)}; ends {_utc(one.end)}; {taken}",
        f"costs {_money(one)} immediately, {one.per_instance_hour:.2f} an instance-hour, used or not",
        "it cannot be cancelled, moved or returned",
    ]


def _request_lines(sent: Request) -> list[str]:
    from orchestrator.values import Text

    def plain(value: object) -> str:
        if isinstance(value, Text):
            return value.preview()
        raise TypeError(f"not JSON: {value!r}")

    return [
        f"{sent.service} {sent.method} {sent.target}",
        json.dumps(sent.body, indent=2, default=plain),
        shlex.join(word.preview() for word in sent.command),
    ]


def _task_lines(offering: Offering, block: Block) -> list[str]:
    zone = f"/{block.zone}" if block.zone else ""
    return [
        f"num_nodes: {offering.count}",
        "resources:",
        f"  infra: {_SELLER.name}/{block.region}{zone}",
        f"  accelerators: {offering.instance_type}",
        f"  accelerator_args: {{provisioning: capacity-block, reservation: {block.id}}}",
    ]


def _offerings_table(offerings: Sequence[Offering]) -> list[str]:
    if not offerings:
        return []
    rows = [("PRICE", "AN INSTANCE-HOUR", "BEGINS", "ENDS", "HOURS", "ZONE", "OFFERING")]
    for one in offerings:
        an_hour = f"{one.per_instance_hour:.2f}"
        zone = one.zone or one.region
        rows.append((_money(one), an_hour, _utc(one.start), _utc(one.end), f"{one.hours:.4g}", zone, one.id))
    return draw_table(rows, sys.stdout)


def _blocks_table(bought: Sequence[Block], now: float) -> list[str]:
    if not bought:
        return []
    rows = [("BLOCK", "MACHINES", "ZONE", "STATE", "BEGINS", "ENDS", "CLOCK")]
    for one in bought:
        machines = f"{one.count} x {one.instance_type}"
        zone = one.zone or one.region
        rows.append((one.id, machines, zone, one.state, _utc(one.start), _utc(one.end), _clock(one, now)))
    return draw_table(rows, sys.stdout)


def _clock(block: Block, now: float) -> str:
    if now < block.start:
        return f"begins in {format_duration(block.start - now)}"
    if now < block.taken_from:
        return f"its machines are taken in {format_duration(block.taken_from - now)}"
    return "over" if now >= block.end else "its machines are being taken"


def _print_problems(answers: Answers) -> None:
    for region, problem in answers.problems:
        write_stderr(f"{region} did not answer: {problem}")


def _money(one: Offering) -> str:
    return format_amount(one.fee) if one.currency == "USD" else f"{one.fee:,.2f} {one.currency}"


def _in(at: float) -> str:
    left = at - time.time()
    return f"in {format_duration(left)}" if left > 0 else "now"


def _utc(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))


def _as_json(kind: str, answers: Answers) -> dict[str, object]:
    """Return offerings or blocks as in data/blocks.schema.json."""
    found: list[dict[str, object]] = []
    for one in answers.offerings:
        price = {"price": one.confirmation, "price_per_instance_hour": f"{one.per_instance_hour:.4f}"}
        found.append(_common(one) | price | {"currency": one.currency})
    for block in answers.blocks:
        state = {"state": block.state, "free": block.free, "taken_from": format_utc(block.taken_from)}
        found.append(_common(block) | state)
    problems = [{"region": region, "problem": str(problem)} for region, problem in answers.problems]
    return {"version": 1, "kind": kind, "found": found, "problems": problems}


def _common(one: Offering | Block) -> dict[str, object]:
    where: dict[str, object] = {"id": one.id, "region": one.region, "zone": one.zone}
    return where | {
        "instance_type": one.instance_type,
        "count": one.count,
        "start": format_utc(one.start),
        "end": format_utc(one.end),
    }
