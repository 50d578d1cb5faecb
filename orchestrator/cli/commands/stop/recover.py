"""`orch recover`: find machines of orch whose record is lost, and end them."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.formatting import format_age
from orchestrator.cli.drawing.places import describe_places, exit_status_of, places_as_json
from orchestrator.cli.drawing.tables import draw_table
from orchestrator.cli.drawing.terminal import can_ask, write_stderr, write_stdout
from orchestrator.errors import NotFoundError, OrchError, UserError
from orchestrator.messages import count_noun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.engine.operations.recover import LostSlice
    from orchestrator.engine.operations.sweep import PlaceFindings
    from orchestrator.plan.sweep import SweptSlice
    from orchestrator.providers.registry import Rented

_RECORDS = {"tracked": "open", "left over": "closed"}


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch recover", "everything with a label of orch, of every installation, in all accounts and projects"),
        ("orch recover p5", "the slices of cluster p5"),
        ("orch recover p5 --end", "asks, then ends the one that is not on record here"),
    ],
)
@click.argument("cluster", default="", metavar="[CLUSTER]")
@click.option("--end", is_flag=True, help="End the slice of CLUSTER that is not on record here.")
@click.option("--intent", default="", metavar="INTENT", help="Only the slice with this intent label.")
@click.option("-y", "--yes", is_flag=True, help="Skip the question before the slice is ended.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def recover(ctx: click.Context, /, cluster: str, end: bool, intent: str, yes: bool, output: str) -> None:
    """Find machines of orch whose record is lost, and end them.

    For a store that was lost, damaged, or restored from an old copy. Lists everything with a label of orch: of this
    and of other installations, in every AWS profile and every Google project that this computer's configuration names,
    with age and list price. Places that could not be asked are named, and make the exit status other than 0.
    """
    if end and not cluster:
        raise UserError("--end needs a cluster", "", "orch recover   lists them, then: orch recover CLUSTER --end")
    from orchestrator.cli.drawing.narrator import TerminalNarrator
    from orchestrator.engine.operations.recover import choose_lost_slice, end_lost_slice, select_named
    from orchestrator.engine.operations.sweep import find_configured_places, find_rented_providers, judge_owned_slices
    from orchestrator.engine.services import real_services
    from orchestrator.engine.state.opening import open_store
    from orchestrator.paths import load_paths

    where = load_paths()
    world = real_services(where)
    with open_store(where, world) as store, TerminalNarrator(sys.stderr) as narrator:
        rented = find_rented_providers(store, where)
        included = [one.provider for one in rented if one.included]
        findings = judge_owned_slices(store, world, included, find_configured_places(), named=True)
        if end:
            lost = choose_lost_slice(findings, cluster, intent)
            _confirm(lost, store.installation, yes)
            end_lost_slice(store, world, narrator, lost)
            write_stderr(f"'{lost.slice.name}' is deleted: {lost.finding.described} does not list it any more")
            return
        shown = {id(one.swept) for one in select_named(findings, cluster, intent)} if cluster else None
        if output == "json":
            write_stdout(json.dumps(_as_json(findings, rented, shown, store.installation), indent=2))
        else:
            write_stdout(*_table(findings, shown, store.installation))
    write_stderr(*describe_places(findings, rented))
    _print_next_step(_select(findings, shown))
    if shown is not None and not shown:
        raise NotFoundError(f"no slice '{cluster}' in the places that answered", "", "orch recover   lists all")
    ctx.exit(exit_status_of(findings))


def _confirm(lost: LostSlice, installation: str, yes: bool) -> None:
    if yes:
        return
    found = lost.slice
    made = format_age(found.created) if found.created else "at an unknown time"
    text = f"'{found.name}' ({found.intent}) in {found.where}, made {made}, is {found.state}"
    if found.installation != installation:
        text += f"; it carries the label of another installation, {found.installation}, and may be in use there"
    if not can_ask():
        raise UserError(text, "there is no terminal to ask on", "add --yes to end it")
    write_stderr(text)
    if not click.confirm("end it with its disks?", default=False, err=True):
        raise OrchError("you declined", "nothing was ended")


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


def _print_next_step(found: Sequence[SweptSlice]) -> None:
    open_records = sum(_RECORDS.get(one.verdict) == "open" for one in found)
    write_stderr(f"{count_noun(len(found), 'slice')}, {open_records} of them with an open record here")
    if lost := [one for one in found if one.lost]:
        name = lost[0].slice.cluster or lost[0].slice.name
        write_stderr(f"next: orch recover {name} --end   ends the machines of '{name}'")


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
