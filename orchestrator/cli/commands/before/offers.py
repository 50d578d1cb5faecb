"""`orch offers`: which machines train this, in what time and at what price, from dated tables."""

from __future__ import annotations

import json
import math
import shlex
import sys
import time
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.tables import draw_list, draw_table
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.errors import OrchError, UserError
from orchestrator.formatting import parse_count, parse_deadline

if TYPE_CHECKING:
    from orchestrator.engine.training.work import OwnProgram, Training
    from orchestrator.offers.capacity import CapacityFigures, CapacityKey
    from orchestrator.offers.estimates import Estimate
    from orchestrator.offers.offers import Offer, OfferRequest

# Of the share of the peak that a run reached, on other machines: assumed. The published tables of two chips differ by
# about so much (trainer/shape/timing.py).
_OTHER_MACHINES, _MOST_UTILISATION = (0.6, 1.3), 0.75


class Count(click.ParamType[float]):
    """A number with a scale, such as 20B or 1e22."""

    name = "count"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            found = parse_count(str(value))
        except ValueError:
            found = 0.0
        if found <= 0:
            self.fail(f"`{value}` is not a number such as 300M, 20B or 1e22", param, ctx)
        return found


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch offers --model 1b --tokens 20B --budget 2000", "the bundled trainer, for at most $2,000"),
        ("orch offers --model 8b --seq 8192 --tokens 20B --by 5d", "done within five days"),
        ("orch offers --model 8b --only gcp,spot --max-hosts 64", "spot TPU slices of up to 64 hosts"),
        ("orch offers --like mine-20261126-0412 --tokens 5B", "as one of your runs was, on other machines"),
        ("orch offers --flops 1e21 --memory 320", "your own program: FLOPs in all, GiB over all chips"),
        ("orch offers --model 1b -o json | jq -r '.offers[0].command'", ""),
        ("orch offers --accuracy", "estimated and measured: speed, time and cost of runs that ended"),
        ("orch offers --capacity", "where and how soon own requests got machines, and how often they were lost"),
    ],
)
@click.argument("settings", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("--model", help="A model of the bundled trainer, such as 300m, 1b, 8b.")
@click.option("--seq", type=click.IntRange(min=16), help="Tokens of a row; default: the model's.")
@click.option("--batch", type=click.IntRange(min=1), help="Rows of a step; default: usual for the size of the model.")
@click.option("--tokens", type=Count(), help="Tokens of the whole run; default: 20 for each parameter.")
@click.option("--flops", type=Count(), help="Your own program: FLOPs of the whole run.")
@click.option("--like", metavar="RUN", help="Your own program: as fast as this run was, on other machines.")
@click.option("--memory", type=click.FloatRange(min=0), help="Your own program: GiB that all chips need.")
@click.option("--by", "deadline", metavar="WHEN", help="When it has to be done: 36h, 5d, or a date such as 2026-12-24.")
@click.option("--budget", type=click.FloatRange(min=0, min_open=True), help="US dollars, at most.")
@click.option("--max-hosts", type=click.IntRange(min=1), default=16, show_default=True, help="Hosts, at most.")
@click.option("--only", metavar="WORDS", default="", help="Clouds, markets, chips or machines: spot,v6e.")
@click.option("--bucket-in", metavar="LOCATION", default="", help="Location of data and checkpoints: us-east-1, US.")
@click.option("--accuracy", is_flag=True, help="Show what was estimated for runs that ended, and what was measured.")
@click.option("--capacity", is_flag=True, help="Show what own requests say: machines got, waits, losses.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def offers(
    ctx: click.Context,
    settings: tuple[str, ...],
    model: str | None,
    seq: int | None,
    batch: int | None,
    tokens: float | None,
    flops: float | None,
    like: str | None,
    memory: float | None,
    deadline: str | None,
    budget: float | None,
    max_hosts: int,
    only: str,
    bucket_in: str,
    accuracy: bool,
    capacity: bool,
    output: str,
) -> None:
    """Show which machines run a training, how long it takes and what it costs. No cloud is asked.

    At most eight ways, none of which is beaten by another in both time and cost. The time has set-up, saves, and
    machines that are lost; waiting for capacity is in it where our records know it. Ranges are from own runs of the
    step, its compilation (plan --compile), like own runs, or else from the published speeds of each chip. The cost has
    disks, addresses and the bucket as far as their prices are known; a line below the table says so.
    """
    from orchestrator.engine.training.kept_speeds import load_speeds
    from orchestrator.engine.training.offers import list_offers
    from orchestrator.offers.offers import OfferRequest, choose_offers

    if accuracy or capacity:
        _refuse_others(ctx, "accuracy" if accuracy else "capacity")
        _show_records(output, of_accuracy=accuracy)
        return
    if budget is not None and not math.isfinite(budget):
        raise UserError(f"`--budget {budget}` is not an amount", "", "--budget 2000")
    words = tuple(word.strip() for word in only.split(",") if word.strip())
    request = OfferRequest(
        seconds=_read_deadline(deadline),
        budget=budget,
        most_hosts=max_hosts,
        only=words,
        bucket=_read_location(bucket_in),
    )
    if like is not None:
        if model or settings or flops:
            raise UserError("--like takes its work from a run", "", "leave --model, --flops and settings out")
        work: Training | OwnProgram = _read_like(like, tokens)
    elif flops is not None:
        work = _read_program(flops, memory, of_the_trainer=bool(model or settings or tokens))
    else:
        work = _read_training(settings, model, seq, batch, tokens)
    found = list_offers(work, request, _read_capacity(), load_speeds())
    shown = choose_offers(found, request)
    _refuse_unfit(found, shown, request)
    if output == "json":
        items = [_as_json(one, work, request) for one in shown]
        write_stdout(json.dumps({"version": 1, "kind": "offers", "offers": items}, indent=2))
        return
    _write(shown, work, request)


def _show_records(output: str, *, of_accuracy: bool) -> None:
    """Print what was estimated and measured, or what own requests say of capacity."""
    if of_accuracy:
        from orchestrator.cli.commands.before.accuracy import show_accuracy

        show_accuracy(output)
        return
    from orchestrator.cli.commands.before.capacity import show_capacity

    show_capacity(output)


def _read_training(
    settings: tuple[str, ...], model: str | None, seq: int | None, batch: int | None, tokens: float | None
) -> Training:
    from orchestrator.engine.training.work import read_training

    settings, tokens = _take_tokens(settings, tokens)
    return read_training(settings, model=model, seq=seq, batch=batch, tokens=tokens)


def _take_tokens(settings: tuple[str, ...], tokens: float | None) -> tuple[tuple[str, ...], float | None]:
    """Return the settings without `tokens=20B`, which `orch train auto` takes too, and the number of tokens."""
    given = [word for word in settings if word.startswith("tokens=")]
    if given and (tokens is not None or len(given) > 1):
        raise UserError("the number of tokens is given twice", "", "leave one out")
    for word in given:
        tokens = Count().convert(word.partition("=")[2], None, None)
    return tuple(word for word in settings if word not in given), tokens


def _read_program(flops: float, memory: float | None, *, of_the_trainer: bool) -> OwnProgram:
    """Return an own program. Raises UserError where memory is missing, or options of the bundled trainer are given."""
    from orchestrator.engine.training.work import OwnProgram

    if of_the_trainer:
        why = "--model, --tokens and settings are for the bundled trainer"
        raise UserError("--flops is for own programs", why, "leave one out")
    if memory is None:
        why = "which machines can hold it depends on the GiB that all chips together have to have"
        raise UserError("--flops needs --memory", why, f"--flops {flops:g} --memory 320")
    return OwnProgram(flops=flops, memory_gib=memory)


def _read_like(run_id: str, tokens: float | None) -> OwnProgram:
    """Return the work of a run, or so many tokens of it, with the share of the peak that it reached.

    Raises:
        UserError: Its metrics say too little.
    """
    from orchestrator.client.choose import open_documents
    from orchestrator.engine.training.work import OwnProgram

    least, most = _OTHER_MACHINES
    with open_documents() as documents:
        found = documents.measure_run(run_id)
        share = found["utilisation"]
        return OwnProgram(
            flops=(tokens or found["tokens"]) * found["flops_per_token"],
            memory_gib=found["memory_gib"],
            utilisation=(least * share, min(most * share, _MOST_UTILISATION)),
            source=f"measured: {run_id} reached {100 * share:.0f} % of the peak on {found['machines']}",
        )


def _refuse_others(ctx: click.Context, table: str) -> None:
    """Raise UserError for options that a table of records does not take."""
    given = [
        param.opts[-1] if isinstance(param, click.Option) else "KEY=VALUE"
        for param in ctx.command.params
        if param.name not in (table, "output")
        and ctx.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
    ]
    if given:
        why = "it shows what is on record, and no offers"
        raise UserError(f"--{table} does not take {given[0]}", why, f"orch offers --{table}   or leave --{table} out")


def _read_capacity() -> dict[CapacityKey, CapacityFigures]:
    """Return what own requests say of capacity; nothing where the records cannot be read: offers need none."""
    from orchestrator.client.choose import open_documents
    from orchestrator.documents.capacity import capacity_from_json

    try:
        with open_documents() as documents:
            return capacity_from_json(documents.read_capacity())
    except OrchError:
        return {}


def _read_location(text: str) -> str:
    """Return the location of a bucket. Raises UserError for a word that is none."""
    from orchestrator.catalog.buckets import is_location

    location = text.strip().lower()
    if location and not is_location(location):
        raise UserError(f"`--bucket-in {text[:60]}` is not a location", "", "--bucket-in us-east-1, us-central1 or US")
    return location


def _read_deadline(text: str | None) -> float | None:
    """Return the seconds until a deadline. Raises UserError for one that is not a time, or is over."""
    if text is None:
        return None
    now = time.time()
    try:
        left = parse_deadline(text, now) - now
    except ValueError:
        raise UserError(f"`--by {text}` is not a time", "", "--by 36h, --by 5d, or --by 2026-12-24") from None
    if left <= 0:
        raise UserError(f"`--by {text}` is over", "", "--by 36h, or a later date")
    return left


def _refuse_unfit(found: tuple[Offer, ...], shown: tuple[Offer, ...], request: OfferRequest) -> None:
    """Raise UserError where nothing runs this, or nothing keeps budget and deadline."""
    from orchestrator.offers.refusals import refuse_late_or_dear

    if not found:
        why = "it fits on none of them, or none of them is known by these words and hosts"
        raise UserError("no machine with a known price runs this", why, "more --max-hosts, other --only, less --batch")
    refuse_late_or_dear(found, shown, request)


def _write(shown: tuple[Offer, ...], work: Training | OwnProgram, request: OfferRequest) -> None:
    from orchestrator.catalog.refreshed import describe_problems
    from orchestrator.engine.training.work import Training
    from orchestrator.offers.estimates import SPOT_ASSUMPTION
    from orchestrator.offers.offer_table import (
        SPEED_FROM,
        describe_costs,
        describe_prices,
        describe_speeds,
        list_cells,
        list_titles,
    )

    rows = [("", *list_titles(request))]
    rows += [(str(number), *list_cells(one, request)) for number, one in enumerate(shown, start=1)]
    write_stdout(*draw_table(rows, sys.stdout, optional=("$/H", "CHIPS", SPEED_FROM), whole=True), "")
    write_stdout(
        *draw_list(
            [(str(number), _command(one, work, request.bucket)) for number, one in enumerate(shown, 1)], sys.stdout
        )
    )
    dates = sorted(one.price_note.rpartition(", ")[2] for one in shown)
    notes = [
        *describe_prices(shown),
        *describe_costs(shown, request.bucket),
        *_describe_foreign_buckets(shown, request.bucket),
        f"prices are of {dates[0]}" + (f" to {dates[-1]}" if dates[-1] != dates[0] else ""),
    ]
    notes += [
        f"{number}: {one.capacity}; by our records of 84 days" for number, one in enumerate(shown, 1) if one.capacity
    ]
    if any(str(one.market) == "spot" and not (one.capacity and one.capacity.losses_per_hour) for one in shown):
        notes.append(SPOT_ASSUMPTION)
    if isinstance(work, Training) and not work.has_data:
        notes.append("the commands train on the trainer's default text, in bytes, until data= is given")
    notes += describe_problems(dict.fromkeys(one.machine.provider for one in shown), time.time())
    notes += describe_speeds(shown)
    write_stderr(*notes)


def _command(offer: Offer, work: Training | OwnProgram, location: str) -> str:
    """Return the command that launches an offer; the bucket is the user's own, of the cloud that has its location."""
    from orchestrator.engine.training.work import Training
    from orchestrator.slices import Spot

    market = ["--use-spot"] if isinstance(offer.market, Spot) else []
    nodes = ["--num-nodes", str(offer.nodes)] if offer.nodes > 1 else []
    if not isinstance(work, Training):
        return shlex.join(["orch", "launch", "task.yaml", "--accelerators", offer.machine.name, *nodes, *market])
    bucket = _name_bucket(offer, location)
    added = [*work.settings, *offer.settings, f"steps={offer.steps}", f"checkpoint.every={offer.save_every}"]
    return shlex.join(["orch", "train", offer.machine.name, *nodes, *market, "--bucket", bucket, *added])


def _name_bucket(offer: Offer, location: str) -> str:
    from orchestrator.catalog.buckets import BucketPlace, find_scheme
    from orchestrator.drivers import get_driver

    scheme = find_scheme(BucketPlace(location)) if location else get_driver(offer.machine.provider).bucket_scheme
    return f"{scheme or 's3'}://NAME"


def _describe_foreign_buckets(shown: tuple[Offer, ...], location: str) -> list[str]:
    """Return which offers need credentials for the bucket of another cloud, and how they are given."""
    from orchestrator.engine.preparation.foreign_buckets import foreign_bucket_reason

    groups: dict[str, list[str]] = {}
    for number, one in enumerate(shown, 1):
        error = foreign_bucket_reason(one.machine.provider, [_name_bucket(one, location)], (), ())
        if error is not None:
            groups.setdefault(f"{error}; {error.next_step}", []).append(str(number))
    return [f"{', '.join(numbers)}: {reason}" for reason, numbers in groups.items()]


def _as_json(offer: Offer, work: Training | OwnProgram, request: OfferRequest) -> dict[str, Any]:
    return {
        "machine": offer.machine.name,
        "provider": offer.machine.provider,
        "nodes": offer.nodes,
        "hosts": offer.nodes * offer.machine.hosts,
        "chips": offer.chips,
        "chip": offer.machine.chip,
        "market": "spot" if str(offer.market) == "spot" else "on-demand",
        "price_per_hour": {
            "low": offer.price_per_hour[0],
            "high": offer.price_per_hour[1],
            "note": offer.price_note,
            "doubt": offer.price_doubt or None,
        },
        "seconds": _estimate(offer.seconds),
        "dollars": _estimate(offer.dollars),
        "parts": {part: None if found is None else _estimate(found) for part, found in offer.parts},
        "checkpoint_bytes": offer.other.sizes.checkpoint_bytes,
        "data_bytes": offer.other.sizes.data_bytes,
        "chance_in_time": offer.chance_in_time(request),
        "settings": list(offer.settings),
        "speed_source": offer.speed_source,
        "speed_origin": offer.speed_origin,
        "capacity": None
        if offer.capacity is None
        else {
            "requests": offer.capacity.requests,
            "got": offer.capacity.got,
            "median_wait": offer.capacity.median_wait,
            "losses_per_hour": offer.capacity.losses_per_hour,
        },
        "command": _command(offer, work, request.bucket),
    }


def _estimate(found: Estimate) -> dict[str, float]:
    return {"low": found.low, "typical": found.typical, "high": found.high}
