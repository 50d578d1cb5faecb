"""`orch recover`: find machines of orch whose record is lost, take them over, or end them."""

from __future__ import annotations

import json
import re
import sys
import time
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.commands.stop.recover_actions import RecoverAction, act_on_lost_slice
from orchestrator.cli.drawing.places import describe_places, exit_status_of, places_as_json
from orchestrator.cli.drawing.tables import draw_table
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.errors import NotFoundError, UserError
from orchestrator.formatting import format_age
from orchestrator.messages import count_noun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.engine.operations.sweep import PlaceFindings
    from orchestrator.plan.sweep import SweptSlice
    from orchestrator.providers.registry import Rented
    from orchestrator.slices import OwnedSlice

_RECORDS = {"tracked": "open", "left over": "closed"}


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch recover", "what carries a label of orch and has no open record here, in all accounts and projects"),
        ("orch recover --all", "also what has one, and what is deleted already"),
        ("orch recover p5 --take-over", "asks, then puts p5 on record here; the computer that has it is refused"),
        ("orch recover p5 --end", "asks, then ends the slice of p5 that is not on record here"),
    ],
)
@click.argument("cluster", default="", metavar="[CLUSTER]")
@click.option("--all", "everything", is_flag=True, help="List also what has an open record here, or is deleted.")
@click.option("--take-over", is_flag=True, help="Put the slice of CLUSTER on record here, and own it from now on.")
@click.option("--as", "name", default="", metavar="NAME", help="With --take-over: the cluster's name here.")
@click.option("--end", is_flag=True, help="End the slice of CLUSTER that is not on record here.")
@click.option("--intent", default="", metavar="INTENT", help="Only the slice with this intent label.")
@click.option("--dry-run", is_flag=True, help="Show what --take-over or --end would do; change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Skip the question before the slice is taken over or ended.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def recover(
    ctx: click.Context,
    /,
    cluster: str,
    everything: bool,
    take_over: bool,
    name: str,
    end: bool,
    intent: str,
    dry_run: bool,
    yes: bool,
    output: str,
) -> None:
    """Find machines of orch whose record is lost; take them over, or end them.

    For a store or a computer that was lost. Lists what carries a label of orch, of this and of other installations, in
    every AWS profile and every Google project that this computer's configuration names, with age and list price. Places
    that could not be asked are named, and make the exit status other than 0.

    --take-over makes this installation the owner: the machines can be listed, priced, ended and, if they admit a key of
    this computer, entered from here. The owner before is refused by hosts and cloud from then on.
    """
    _check_options(cluster, take_over=take_over, end=end, name=name, dry_run=dry_run)
    from orchestrator.cli.drawing.narrator import TerminalNarrator
    from orchestrator.engine.operations.recover import find_own_lost
    from orchestrator.engine.operations.sweep import find_configured_places, find_rented_providers, judge_owned_slices
    from orchestrator.engine.services import real_services
    from orchestrator.engine.state.opening import open_store
    from orchestrator.paths import load_paths

    where = load_paths()
    world = real_services(where)
    with open_store(where, world) as store, TerminalNarrator(sys.stderr) as narrator:
        rented = find_rented_providers(store, where)
        included = [one.provider for one in rented if one.included]
        findings = judge_owned_slices(store, world, included, find_configured_places(), named=True, narrator=narrator)
        if end or take_over:
            action = RecoverAction(
                cluster=cluster,
                intent=intent,
                take_over=take_over,
                name=name,
                dry_run=dry_run,
                yes=yes,
                as_json=output == "json",
            )
            act_on_lost_slice(action, store, world, where, narrator, findings)
            return
        shown = _choose_shown(findings, cluster, intent, everything=everything)
        if cluster and not shown:
            write_stderr(*describe_places(findings, rented))
            raise NotFoundError(f"no slice '{cluster}' in the places that answered", "", "orch recover   lists all")
        if output == "json":
            write_stdout(json.dumps(_as_json(findings, rented, shown, store.installation), indent=2))
        else:
            write_stdout(*_table(findings, shown, store.installation))
        own = find_own_lost(store, _select(findings, shown))
    write_stderr(*describe_places(findings, rented))
    _print_next_step(findings, _select(findings, shown), own)
    ctx.exit(exit_status_of(findings))


def _check_options(cluster: str, *, take_over: bool, end: bool, name: str, dry_run: bool) -> None:
    option = "--take-over" if take_over else "--end"
    if take_over and end:
        raise UserError("--take-over and --end exclude each other", "", "orch recover --help")
    if (take_over or end) and not cluster:
        raise UserError(
            f"{option} needs a cluster", "", f"orch recover   lists them, then: orch recover CLUSTER {option}"
        )
    if dry_run and not (take_over or end):
        raise UserError("--dry-run is for --take-over and --end", "a listing changes nothing", "orch recover")
    if name and not take_over:
        raise UserError("--as is for --take-over", "", "orch recover CLUSTER --take-over --as NAME")
    if name and re.fullmatch(r"[a-z][a-z0-9-]*", name) is None:
        raise UserError(f"'{name}' cannot be a cluster's name", "lower-case letters, digits and dashes", "--as NAME")


def _choose_shown(findings: Sequence[PlaceFindings], cluster: str, intent: str, *, everything: bool) -> set[int] | None:
    """Return the slices to list: those of this name, else those without an open record here, or None for all."""
    from orchestrator.engine.operations.recover import select_named

    if cluster:
        return {id(one.swept) for one in select_named(findings, cluster, intent)}
    if everything:
        return None
    hidden = ("tracked", "leaving")
    return {id(one) for finding in findings for one in finding.judged if one.verdict not in hidden}


def _select(findings: Sequence[PlaceFindings], shown: set[int] | None) -> list[SweptSlice]:
    return [one for finding in findings for one in finding.judged if shown is None or id(one) in shown]


def _table(findings: Sequence[PlaceFindings], shown: set[int] | None, installation: str) -> list[str]:
    rows = [
        (
            "CLUSTER",
            "PROJECT",
            "MEMBER",
            "SLICE",
            "PLACE",
            "STATE",
            "CREATED",
            "$/H",
            "RECORD",
            "INSTALLATION",
            "INTENT",
        )
    ]
    now = time.time()
    for finding in findings:
        for one in _select([finding], shown):
            found, price = one.slice, _price(one)
            rows.append(
                (
                    found.cluster,
                    found.project or "-",
                    found.member or "-",
                    found.name,
                    f"{found.where} ({finding.place})" if finding.place else found.where,
                    str(found.state),
                    format_age(found.created, now) if found.created else "-",
                    "-" if price is None else f"{price:,.2f}",
                    _RECORDS.get(one.verdict, "none"),
                    "this one" if found.installation == installation else found.installation,
                    found.intent,
                )
            )
    return draw_table(rows, sys.stdout, optional=("SLICE", "PROJECT")) if len(rows) > 1 else []


def _price(one: SweptSlice) -> float | None:
    from orchestrator.engine.operations.recover import find_price_per_hour

    return find_price_per_hour(one.slice)


def _print_next_step(findings: Sequence[PlaceFindings], found: Sequence[SweptSlice], own: OwnedSlice | None) -> None:
    """Print what is not shown, and the commands for lost slices: by name only for one of this person (`own`)."""
    everything = _select(findings, None)
    open_records = sum(_RECORDS.get(one.verdict) == "open" for one in everything)
    write_stderr(f"{count_noun(len(everything), 'slice')}, {open_records} of them with an open record here")
    if hidden := len(everything) - len(found):
        write_stderr(f"{count_noun(hidden, 'slice')} not shown: orch recover --all")
    if own is not None:
        name = own.cluster or own.name
        write_stderr(
            f"next: orch recover {name} --take-over   puts '{name}' on record here",
            f"or:   orch recover {name} --end   ends the machines of '{name}'",
        )
    elif any(one.lost for one in found):
        write_stderr(
            "these are of another store, and perhaps in use by a colleague: ask before you act",
            "next: orch recover NAME --take-over   puts a cluster on record here, and refuses the owner before",
            "or:   orch recover NAME --end   ends its machines",
        )


def _as_json(
    findings: Sequence[PlaceFindings], rented: Sequence[Rented], shown: set[int] | None, installation: str
) -> dict[str, object]:
    """Return the findings as in data/recover.schema.json."""
    slices = [[_slice_as_json(one, installation) for one in _select([finding], shown)] for finding in findings]
    places = places_as_json(findings, rented)
    slices += [[] for _ in places[len(findings) :]]
    return {
        "version": 1,
        "kind": "recover",
        "places": [place | {"slices": mine} for place, mine in zip(places, slices, strict=True)],
    }


def _slice_as_json(one: SweptSlice, installation: str) -> dict[str, object]:
    found = one.slice
    return {
        "name": found.name,
        "cluster": found.cluster,
        "project": found.project or None,
        "member": found.member or None,
        "installation": found.installation,
        "ours": found.installation == installation,
        "intent": found.intent,
        "where": found.where,
        "state": str(found.state),
        "created": found.created or None,
        "machine": found.machine,
        "count": found.count,
        "spot": found.spot,
        "price_per_hour": _price(one),
        "record": _RECORDS.get(one.verdict, "none"),
    }
