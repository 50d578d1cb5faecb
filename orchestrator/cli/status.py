"""`orch status`: what is there, what it does, what it costs. Reads the store alone unless asked to look again."""

from __future__ import annotations

import json
import sys
import time

import click

from orchestrator.cli.clusters import CLUSTER, find, reader
from orchestrator.cli.command import OrchCommand
from orchestrator.cli.human import ago, clock, columns, duration, iso, plural, price
from orchestrator.cli.standing import Standing, job_words, stand
from orchestrator.cli.terminal import Style, look_at, put, say
from orchestrator.plan.observed import FINAL
from orchestrator.plan.ranks import rank_ranges
from orchestrator.store.records import EventRecord, JobRecord


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch status", "all clusters, from the store on this computer"),
        ("orch status mine --refresh", "one cluster in full, after asking its provider"),
        ("orch status -o json | jq '.clusters[].state'", ""),
    ],
)
@click.argument("cluster", type=CLUSTER, required=False)
@click.option("--refresh", is_flag=True, help="Ask the providers first; without it, the last known state is shown.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def status(cluster: str | None, refresh: bool, output: str) -> None:
    """What is there, what it does, what it costs.

    Shows the last known state and when it was seen. The price is the list price of the machines alone.
    """
    with reader() as store:
        names = [cluster] if cluster else [record.name for record in store.clusters()]
    if refresh:
        _refresh(names)
    with reader() as store:
        records = [find(store, cluster)] if cluster else list(store.clusters())
        standings = [stand(store, record) for record in records]
        recent = store.events(cluster, limit=5) if cluster else ()
    if output == "json":
        put(json.dumps(as_json(standings), indent=2))
    elif cluster:
        put(*_in_full(standings[0], recent))
    elif standings:
        put(*_table(standings))
    else:
        say("nothing is there; orch launch --help shows how to begin")


def _refresh(names: list[str]) -> None:
    from orchestrator.cli.narrator import TerminalNarrator
    from orchestrator.engine.look import refresh

    with TerminalNarrator(sys.stderr) as narrator:
        for name in names:
            refresh(name, narrator)


def _table(standings: list[Standing]) -> list[str]:
    terminal = look_at(sys.stdout)
    now = time.time()
    rows = [("NAME", "STATE", "SEEN", "HOSTS", "MACHINES", "WHERE", "MARKET", "JOB", "PRICE")]
    for item in standings:
        intent = item.current
        rows.append(
            (
                item.cluster.name,
                item.state,
                ago(item.state_at, now),
                str(intent.candidate.hosts) if intent else "0",
                intent.candidate.accelerator if intent else "-",
                intent.candidate.where if intent else "-",
                str(intent.candidate.market) if intent else "-",
                job_words(item.last_job),
                price(item.price_per_hour),
            )
        )
    head, *rest = columns(rows, terminal.width)
    return [terminal.paint(head, Style.BOLD), *rest]


def _in_full(item: Standing, recent: tuple[EventRecord, ...]) -> list[str]:
    now = time.time()
    intent = item.current
    facts = [("cluster", f"{item.cluster.name}   {item.cluster.summary}".rstrip())]
    facts.append(("state", f"{item.state}, {'since' if item.state_at > now else 'seen'} {ago(item.state_at, now)}"))
    if item.working:
        facts.append(("at work", item.working))
    if intent is not None:
        machine = intent.candidate
        chips = f", {plural(machine.chips_per_host, 'chip')} each" if machine.chips_per_host else ""
        words = f"{plural(machine.hosts, 'host')} of {machine.accelerator}{chips} on {machine.where}, {machine.market}"
        note = f" ({machine.price_note})" if machine.price_note else ""
        facts += [("machines", words), ("price", price(machine.price_per_hour) + note)]
    facts.append(("made", f"{clock(item.cluster.created)}, {ago(item.cluster.created, now)}"))
    lines = columns(facts)
    if item.cluster.hosts:
        rows = [("RANK", "HOST", "ADDRESS", "INTERNAL")]
        rows += [(str(h.rank), h.label, f"{h.user}@{h.host}:{h.port}", h.internal_ip) for h in item.cluster.hosts]
        lines += ["", *columns(rows)]
    if item.jobs:
        lines += ["", *columns([("JOB", "KIND", "STATE", "HOSTS", "RUN", "TOOK", "RESULT"), *map(_job_row, item.jobs)])]
    lines += [f"  attempt {past.attempt} ended ({past.cause}): {past.why}" for past in item.ended]
    gone = [past for past in item.slices if past.state in FINAL]
    if gone:
        lines += ["", "EARLIER MACHINES", *(f"  {past.name}: {past.state} {past.why}".rstrip() for past in gone)]
    if recent:
        lines += ["", f"LAST EVENTS   (all: orch events {item.cluster.name})"]
        lines += [f"  {clock(event.at)}  {event.what}" for event in recent]
    return lines


def _job_row(job: JobRecord) -> tuple[str, ...]:
    took = duration((job.ended or time.time()) - job.created)
    state = job.state + (f", attempt {job.attempt}" if job.attempt > 1 else "")
    hosts = "all" if job.ranks is None else rank_ranges(job.ranks)
    result = f"exit {job.status}: {job.what}" if job.state == "ended" else ""
    return (str(job.id), job.kind, state, hosts, job.run_id, took, result)


def as_json(standings: list[Standing]) -> dict[str, object]:
    """See data/status.schema.json."""
    return {"version": 1, "kind": "status", "clusters": [_cluster_json(item) for item in standings]}


def _cluster_json(item: Standing) -> dict[str, object]:
    intent = item.current
    return {
        "name": item.cluster.name,
        "created": iso(item.cluster.created),
        "summary": item.cluster.summary,
        "wanted": item.cluster.wanted,
        "state": item.state,
        "state_at": iso(item.state_at),
        "working": item.working or None,
        "machines": None
        if intent is None
        else {
            "slice": intent.name,
            "provider": intent.candidate.provider,
            "region": intent.candidate.region or None,
            "zone": intent.candidate.zone or None,
            "accelerator": intent.candidate.accelerator,
            "hosts": intent.candidate.hosts,
            "chips_per_host": intent.candidate.chips_per_host,
            "market": str(intent.candidate.market),
            "price_per_hour": intent.candidate.price_per_hour,
        },
        "hosts": [
            {
                "rank": h.rank,
                "label": h.label,
                "host": h.host,
                "port": h.port,
                "user": h.user,
                "internal_ip": h.internal_ip,
            }
            for h in item.cluster.hosts
        ],
        "jobs": [_job_json(job) for job in item.jobs],
    }


def _job_json(job: JobRecord) -> dict[str, object]:
    return {
        "id": job.id,
        "kind": job.kind,
        "run_id": job.run_id,
        "state": job.state,
        "attempt": job.attempt,
        "hosts": list(job.ranks) if job.ranks is not None else None,
        "created": iso(job.created),
        "ended": iso(job.ended) if job.ended is not None else None,
        "status": job.status,
        "what": job.what or None,
        "why": job.why or None,
        "bucket": job.bucket or None,
    }
