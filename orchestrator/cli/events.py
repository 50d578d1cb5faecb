"""`orch events`: what orch did, in order; followed live by polling the store."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator

import click

from orchestrator.cli.clusters import CLUSTER, find, reader
from orchestrator.cli.command import OrchCommand
from orchestrator.cli.human import clock, iso
from orchestrator.cli.terminal import put, say
from orchestrator.errors import OrchError, UserError
from orchestrator.store.records import EventRecord

POLL_SECONDS = 0.3


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch events mine", "everything that was done about one cluster, also after it is gone"),
        ("orch events -f", "all clusters, as it happens"),
        ("orch events mine -o jsonl | jq -r .what", "one JSON object per line"),
        ("orch events --verify", "was anything changed behind orch's back? Replays all events against the records"),
    ],
)
@click.argument("cluster", type=CLUSTER, required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens next, until Ctrl-C.")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=1000, show_default=True, help="Newest events shown.")
@click.option("--after", type=click.IntRange(min=0), default=0, help="Only events past this sequence number.")
@click.option("--verify", is_flag=True, help="Check the chain of all events, and the records against it.")
@click.option("-o", "--output", type=click.Choice(["text", "json", "jsonl"]), default="text", show_default=True)
def events(cluster: str | None, follow: bool, limit: int, after: int, verify: bool, output: str) -> None:
    """What orch did, in order: every change with who made it and why (-o json: also before and after)."""
    if verify:
        _verify()
        return
    if follow and output == "json":
        raise UserError("one JSON document cannot follow", "it would never be complete", "orch events -f -o jsonl")
    with reader() as store:
        found = store.events(cluster, after=after, limit=limit)
        if cluster and not found and not after:
            find(store, cluster)
    if output == "json":
        put(json.dumps(as_json(found), indent=2))
        return
    for event in found:
        _show(event, output)
    if follow:
        sys.stdout.flush()
        for event in _newer(cluster, found[-1].seq if found else after):
            _show(event, output)
            sys.stdout.flush()


def _verify() -> None:
    """Raises OrchError when the store is not what its events tell."""
    from orchestrator.paths import paths
    from orchestrator.store.check import faults
    from orchestrator.store.location import store_location

    found = faults(store_location(os.environ, paths()))
    for first in found:
        more = f"; and {len(found) - 1} more" if len(found) > 1 else ""
        raise OrchError("the store is not what its events tell", first + more, "docs/store.md   tells what to do")
    say("every event is where it was written, and every record is what they tell")


def as_json(found: tuple[EventRecord, ...]) -> dict[str, object]:
    """See data/events.schema.json; with -o jsonl each line is one item of `events`."""
    return {"version": 1, "kind": "events", "events": [_event_json(event) for event in found]}


def _newer(cluster: str | None, seen: int) -> Iterator[EventRecord]:
    while True:
        time.sleep(POLL_SECONDS)
        with reader() as store:
            for event in store.events(cluster, after=seen):
                seen = event.seq
                yield event


def _show(event: EventRecord, output: str) -> None:
    if output == "jsonl":
        put(json.dumps(_event_json(event)))
    else:
        put(f"{clock(event.at)}  {event.cluster:<16}  {event.kind:<8}  {event.what}")


def _event_json(event: EventRecord) -> dict[str, object]:
    return {
        "seq": event.seq,
        "at": iso(event.at),
        "cluster": event.cluster,
        "actor": event.actor,
        "kind": event.kind,
        "what": event.what,
        "subject": event.subject or None,
        "cause": event.cause or None,
        "before": json.loads(event.before) if event.before is not None else None,
        "after": json.loads(event.after) if event.after is not None else None,
        "hash": event.hash,
    }
