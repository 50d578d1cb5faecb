"""`orch status`: clusters, jobs and prices, read from the store alone unless --refresh is given."""

from __future__ import annotations

import json
import os
import sys

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.tables import draw_list, draw_table
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.execution.served_commands import refuse_option
from orchestrator.cli.parameters.clusters import CLUSTER, open_store_reader, read_record_time
from orchestrator.cli.parameters.scope import make_scope, scope_options
from orchestrator.documents.clusters import (
    ClusterSummary,
    clusters_as_json,
    describe_abandoned_job,
    describe_job,
    find_passed_limit,
    sum_prices,
    summarize_cluster,
)
from orchestrator.documents.output_progress import add_cluster_output
from orchestrator.formatting import format_age, format_duration, format_local_time, format_price
from orchestrator.messages import count_noun
from orchestrator.plan.observed import FINAL_STATES
from orchestrator.plan.ranks import format_ranks
from orchestrator.project import DEFAULT_PROJECT
from orchestrator.slices import SliceState
from orchestrator.store.lookup import find_cluster
from orchestrator.store.other_state import find_file_refusal
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord, EventRecord, JobRecord

# Machines that a limit, or another program, has ended: auxiliary resources stay until `down`.
_LEFT_OVER: dict[str, str] = {
    SliceState.ENDING: "removes what the machines leave behind; they are deleted, or are being deleted",
    SliceState.FAILED: "ends what is left of the machines, and removes what they leave behind",
}
STOPPED_PRICE = "machines are not billed while stopped; their disks are, at a price that is not known here"


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch status", "all clusters, from the store on this computer"),
        ("orch status mine --refresh", "one cluster in detail, after asking its provider"),
        ("orch status --all --owner me", "your clusters in all projects of the store"),
        ("orch status -o json | jq '.clusters[].state'", ""),
    ],
)
@click.argument("cluster", type=CLUSTER, required=False)
@scope_options("--all")
@click.option("--refresh", is_flag=True, help="Ask the providers first; default: show the last known state.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def status(cluster: str | None, all_projects: bool, owner: str, refresh: bool, output: str) -> None:
    """Show clusters, what they run and what they cost.

    Shows the last known state and when it was observed. The price is the list price of the machines alone.
    """
    if refresh:
        refuse_option("status", "--refresh", "the service observes its machines itself", os.environ)
        with open_store_reader() as store:
            known = _select(store, cluster, owner, all_projects=all_projects)
        _refresh(known)
    with open_store_reader() as store:
        records = _select(store, cluster, owner, all_projects=all_projects)
        standings = add_cluster_output(store, [summarize_cluster(store, record) for record in records])
        recent = store.events(records[0].qualified_name, limit=5) if cluster else ()
        names = [record.qualified_name for record in records] if output == "json" else []
        actors, member = store.last_actors("cluster", names), store.member
        refusal = find_file_refusal(store)
    if output == "json":
        write_stdout(json.dumps(clusters_as_json(standings, actors, sum_prices(standings)), indent=2))
    elif cluster:
        write_stdout(*_detail_lines(standings[0], recent))
    elif standings:
        write_stdout(*_table(standings, member, with_project=all_projects))
    else:
        write_stderr("no clusters; orch launch --help shows how to create one")
    if output == "text":
        write_stderr(*_limit_notes(standings))
    if refusal:
        write_stderr(f"this store is only read, and nothing is changed: {refusal}; orch store   shows what to type")


def _limit_notes(standings: list[ClusterSummary]) -> list[str]:
    """Return a line for each cluster whose machines may have ended by themselves since they were seen."""
    now = read_record_time()
    passed = [(item.cluster.name, find_passed_limit(item, now)) for item in standings]
    return [
        f"'{name}' has reached its limit of {limit} since it was seen, and may have ended: orch status {name} --refresh"
        for name, limit in passed
        if limit
    ]


def _select(store: Reader, cluster: str | None, owner: str, *, all_projects: bool) -> list[ClusterRecord]:
    """Return the cluster of this name, or all that the options choose."""
    if cluster:
        return [find_cluster(store, cluster)]
    scope = make_scope(store, owner, all_projects=all_projects)
    return [record for record in store.clusters() if scope.includes(record.project, record.owner)]


def _refresh(records: list[ClusterRecord]) -> None:
    from orchestrator.cli.drawing.narrator import TerminalNarrator
    from orchestrator.engine.operations.refresh import refresh_cluster

    with TerminalNarrator(sys.stderr) as narrator:
        for record in records:
            refresh_cluster(record.name, narrator, record.project)


def _table(standings: list[ClusterSummary], member: str, *, with_project: bool) -> list[str]:
    now = read_record_time()
    owned = bool({item.cluster.owner for item in standings} - {"", member})  # by others
    whose = [*(["PROJECT"] if with_project else []), *(["OWNER"] if owned else [])]
    output = ["FROM OUTPUT"] if any(item.output is not None for item in standings) else []
    columns = ("STATE", "SEEN", "HOSTS", "MACHINES", "WHERE", "MARKET", "JOB", *output, "PRICE")
    rows: list[tuple[str, ...]] = [("NAME", *whose, *columns)]
    for item in standings:
        intent = item.current
        rows.append(
            (
                item.cluster.name,
                *([item.cluster.project] if with_project else []),
                *([item.cluster.owner or "-"] if owned else []),
                item.state,
                format_age(item.state_at, now),
                str(intent.candidate.hosts) if intent else "0",
                intent.candidate.accelerator if intent else "-",
                intent.candidate.where if intent else "-",
                str(intent.candidate.market) if intent else "-",
                describe_job(item.current_job),
                *([str(item.output or "-")] if output else []),
                "disks only" if item.stopped else format_price(item.price_per_hour),
            )
        )
    lines = draw_table(rows, sys.stdout, optional=("MARKET", "WHERE", "SEEN"), whole=bool(output))
    paid = sum_prices(standings)
    return [*lines, f"in all {paid} now"] if paid.dollars or paid.unknown else lines


def _detail_lines(item: ClusterSummary, recent: tuple[EventRecord, ...]) -> list[str]:
    now = read_record_time()
    intent = item.current
    facts = [("cluster", f"{item.cluster.name}   {item.cluster.summary}".rstrip())]
    facts.append(
        ("state", f"{item.state}, {'since' if item.state_at > now else 'seen'} {format_age(item.state_at, now)}")
    )
    if item.busy_with:
        facts.append(("in use by", item.busy_with))
    elif item.abandoned is not None:
        continued, ended = describe_abandoned_job(item.cluster.name, item.abandoned)
        facts += [("next", continued), ("or", ended)]
    elif item.state in _LEFT_OVER and not item.has_open_job:
        facts.append(("next", f"orch down {item.cluster.name}   {_LEFT_OVER[item.state]}"))
    if intent is not None:
        machine = intent.candidate
        chips = f", {count_noun(machine.chips_per_host, 'chip')} each" if machine.chips_per_host else ""
        text = (
            f"{count_noun(machine.hosts, 'host')} of {machine.accelerator}{chips} on {machine.where}, {machine.market}"
        )
        note = f" ({machine.price_note})" if machine.price_note else ""
        facts += [("machines", text), ("price", format_price(machine.price_per_hour) + note)]
    if item.output is not None:
        facts.append(("progress", f"{item.output}   from output, {item.output.form}"))
    if item.cluster.project != DEFAULT_PROJECT:
        facts.append(("project", item.cluster.project))
    if item.cluster.owner:
        facts.append(("owner", item.cluster.owner))
    facts.append(("created", f"{format_local_time(item.cluster.created)}, {format_age(item.cluster.created, now)}"))
    lines = draw_list(facts, sys.stdout)
    if item.cluster.hosts:
        rows = [("RANK", "HOST", "ADDRESS", "INTERNAL")]
        rows += [(str(h.rank), h.label, f"{h.user}@{h.host}:{h.port}", h.internal_ip) for h in item.cluster.hosts]
        lines += ["", *draw_table(rows, sys.stdout)]
    if item.jobs:
        head = ("JOB", "KIND", "STATE", "HOSTS", "RUN", "TOOK", "RESULT")
        lines += ["", *draw_table([head, *map(_job_row, item.jobs)], sys.stdout, optional=("TOOK", "HOSTS"))]
    lines += [f"  attempt {past.attempt} ended ({past.cause}): {past.why}" for past in item.ended]
    deleted = [past for past in item.slices if past.state in FINAL_STATES]
    if deleted:
        lines += ["", "EARLIER MACHINES", *(_past_line(past.name, past.state, past.why) for past in deleted)]
    if recent:
        lines += ["", f"LAST EVENTS   (all: orch events {item.cluster.name})"]
        lines += [f"  {format_local_time(event.at)}  {event.what}" for event in recent]
    return lines


def _past_line(name: str, state: str, why: str) -> str:
    return f"  {name}: {state}" + (f" ({why})" if why else "")


def _job_row(job: JobRecord) -> tuple[str, ...]:
    took = format_duration((job.ended or read_record_time()) - job.created)
    state = job.state + (f", attempt {job.attempt}" if job.attempt > 1 else "")
    hosts = "all" if job.ranks is None else format_ranks(job.ranks)
    result = f"exit {job.status}: {job.what}" if job.state == "ended" else ""
    return (str(job.id), job.kind, state, hosts, job.run_id, took, result)
