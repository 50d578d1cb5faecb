"""`orch reap`: find orphans with our label from the cloud's side, and end them."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.places import describe_places, exit_status_of, places_as_json
from orchestrator.cli.drawing.tables import draw_table
from orchestrator.cli.drawing.terminal import can_ask, write_stderr, write_stdout
from orchestrator.errors import OrchError, UserError
from orchestrator.exits import Exit
from orchestrator.formatting import format_age
from orchestrator.messages import count_noun

if TYPE_CHECKING:
    from orchestrator.engine.operations.sweep import PlaceFindings, ReapResult
    from orchestrator.plan.sweep import SweptSlice
    from orchestrator.providers.registry import Rented


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch reap --dry-run", "list what carries a label of orch everywhere, and which would be ended"),
        ("orch reap", "the same, then ask, then end the orphans"),
        ("orch reap --yes", "without asking, for a timer"),
    ],
)
@click.option("--dry-run", is_flag=True, help="List and judge; end nothing.")
@click.option("-y", "--yes", is_flag=True, help="Skip the question before the orphans are ended.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def reap(ctx: click.Context, dry_run: bool, yes: bool, output: str) -> None:
    """Find orphaned machines, and end them.

    Asks every cloud that was used from here, or has credentials on this computer. Orphans are machines whose record
    here is closed: for instance, of a create that took effect after we had given up. Machines without a record here,
    and those of other installations, are shown and never ended: `orch recover` is for them. The exit status is 0 only
    if every place answered and nothing is there that may be ours without a record.
    """
    from orchestrator.cli.drawing.narrator import TerminalNarrator
    from orchestrator.engine.operations.sweep import (
        end_orphans,
        find_configured_places,
        find_rented_providers,
        judge_owned_slices,
    )
    from orchestrator.engine.services import real_services
    from orchestrator.engine.state.opening import open_store
    from orchestrator.paths import load_paths

    where = load_paths()
    world = real_services(where)
    with open_store(where, world) as store, TerminalNarrator(sys.stderr) as narrator:
        rented = find_rented_providers(store, where)
        included = [one.provider for one in rented if one.included]
        findings = judge_owned_slices(store, world, included, find_configured_places(), narrator=narrator)
        orphans = [one for finding in findings for one in finding.judged if one.orphan]
        if output == "text":
            write_stdout(*_table(findings))
        reaped: tuple[ReapResult, ...] = ()
        if orphans and not dry_run and _confirm(orphans, yes):
            reaped = end_orphans(store, world, narrator, findings)
    if output == "json":
        write_stdout(json.dumps(_as_json(findings, rented, reaped), indent=2))
    write_stderr(*describe_places(findings, rented), *_describe_abandoned(findings))
    ctx.exit(_print_summary(findings, orphans, reaped, dry_run))


def _describe_abandoned(findings: tuple[PlaceFindings, ...]) -> list[str]:
    """Return what to do about machines on record whose command ended before it used them: no orphans, but billed."""
    from orchestrator.client.local import open_own_reader
    from orchestrator.documents.clusters import describe_abandoned_job, summarize_cluster
    from orchestrator.plan.sweep import SweepVerdict

    judged = [one for finding in findings for one in finding.judged]
    used = {one.slice.cluster for one in judged if one.verdict is SweepVerdict.TRACKED}
    lines: list[str] = []
    with open_own_reader() as reader:
        for record in reader.clusters():
            job = summarize_cluster(reader, record).abandoned if record.name in used else None
            if job is not None:
                lines += [f"'{record.name}' is on record, but no command works on it:"]
                lines += [f"  {line}" for line in describe_abandoned_job(record.name, job.id)]
    return lines


def _confirm(orphans: list[SweptSlice], yes: bool) -> bool:
    if yes:
        return True
    if not can_ask():
        text = f"{count_noun(len(orphans), 'orphan')} would be ended, and there is no terminal to ask on"
        raise UserError(text, next_step="add --yes to agree, or --dry-run to list them only")
    if not click.confirm(f"end {count_noun(len(orphans), 'orphan')}?", default=False, err=True):
        raise OrchError("you declined", "nothing was ended")
    return True


def _table(findings: tuple[PlaceFindings, ...]) -> list[str]:
    """Return the table, and below it the reasons: they are sentences, which a column of 80 would wrap word by word."""
    rows = [("SLICE", "CLUSTER", "PROJECT", "MEMBER", "WHERE", "STATE", "CREATED", "VERDICT")]
    now = time.time()
    judged = [one for finding in findings for one in finding.judged]
    for one in judged:
        found = one.slice
        made = format_age(found.created, now) if found.created else "-"
        whose = (found.project or "-", found.member or "-")
        rows.append((found.name, found.cluster, *whose, found.where, str(found.state), made, str(one.verdict)))
    if not judged:
        return []
    table = draw_table(rows, sys.stdout, optional=("PROJECT", "MEMBER", "CLUSTER"), whole=True)
    return [*table, "", *(f"{one.slice.name}: {one.why}" for one in judged)]


def _print_summary(
    findings: tuple[PlaceFindings, ...], orphans: list[SweptSlice], reaped: tuple[ReapResult, ...], dry_run: bool
) -> int:
    """Print the result, and return the exit status.

    A place that did not answer, an orphan that remains, and a slice that may be ours without a record are failures.
    """
    status = exit_status_of(findings)
    for one in reaped:
        if one.problem is not None:
            write_stderr(*one.problem.lines())
            status = status or int(one.problem.exit_status)
    if orphans and dry_run:
        write_stderr(f"{count_noun(len(orphans), 'orphan')} would be ended; to do it: orch reap")
    elif orphans:
        ended = sum(one.problem is None for one in reaped)
        write_stderr(f"{ended} of {count_noun(len(orphans), 'orphan')} ended")
    elif any(one.lost for finding in findings for one in finding.judged):
        write_stderr("nothing was ended")
    elif exit_status_of(findings):
        write_stderr("no orphans in the places that answered; the others may have some")
    else:
        write_stderr("no orphans")
    return status or _print_others([one for finding in findings for one in finding.judged])


def _print_others(judged: list[SweptSlice]) -> int:
    """Print how many slices only `orch recover` may end; return a failure if some may be ours."""
    from orchestrator.plan.sweep import SweepVerdict

    counts = Counter(one.verdict for one in judged)
    lost = counts[SweepVerdict.UNKNOWN], counts[SweepVerdict.EARLIER]
    texts = (
        "with the label of this store, and no record here",
        "of another store, made before this one: of a store that was lost, or in use by a colleague",
        "of other installations",
    )
    for count, text in zip((*lost, counts[SweepVerdict.FOREIGN]), texts, strict=True):
        if count:
            write_stderr(f"{count_noun(count, 'slice')} {text}: left as {'it is' if count == 1 else 'they are'}")
    if any(lost) or counts[SweepVerdict.FOREIGN]:
        write_stderr("next: orch recover   lists them with owner, age and price; it ends or takes over what you name")
    return Exit.FAILURE if any(lost) else Exit.OK


def _as_json(
    findings: tuple[PlaceFindings, ...], rented: tuple[Rented, ...], reaped: tuple[ReapResult, ...]
) -> dict[str, object]:
    """Return the findings as in data/reap.schema.json."""
    ended = {(one.orphan.slice.name, one.orphan.slice.intent) for one in reaped if one.problem is None}
    slices = [
        [
            {
                "name": one.slice.name,
                "cluster": one.slice.cluster,
                "project": one.slice.project or None,
                "member": one.slice.member or None,
                "installation": one.slice.installation,
                "intent": one.slice.intent,
                "where": one.slice.where,
                "state": str(one.slice.state),
                "standing": str(one.verdict),
                "why": one.why,
                "ended": (one.slice.name, one.slice.intent) in ended,
            }
            for one in finding.judged
        ]
        for finding in findings
    ]
    places = places_as_json(findings, rented)
    slices += [[] for _ in places[len(findings) :]]
    return {
        "version": 1,
        "kind": "reap",
        "places": [place | {"slices": mine} for place, mine in zip(places, slices, strict=True)],
    }
