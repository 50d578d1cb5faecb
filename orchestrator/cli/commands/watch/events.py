"""`orch events`: what orch did, in order; followed live by polling the store."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.execution.served_commands import refuse_option
from orchestrator.cli.parameters.clusters import CLUSTER
from orchestrator.cli.parameters.scope import make_scope, scope_options
from orchestrator.client.base import DocumentReads
from orchestrator.client.choose import open_documents
from orchestrator.documents.queries import EventsQuery
from orchestrator.errors import OrchError, UserError
from orchestrator.formatting import format_local_time, parse_utc
from orchestrator.messages import escape_controls
from orchestrator.project import qualify_name

_NEWER = 2**31  # events that are read together while they are followed: after a pause there may be many


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch events mine", "everything that was done to one cluster, also after it was deleted"),
        ("orch events -f", "all clusters, as it happens"),
        ("orch events mine -o jsonl | jq -r .what", "one JSON object per line"),
        ("orch events --verify", "whether the store was changed from outside: replays all events against the records"),
    ],
)
@click.argument("cluster", type=CLUSTER, required=False)
@scope_options("--all")
@click.option("-f", "--follow", is_flag=True, help="Follow new events until Ctrl-C.")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=1000, show_default=True, help="Newest events shown.")
@click.option("--after", type=click.IntRange(min=0), default=0, help="Only events past this sequence number.")
@click.option("--verify", is_flag=True, help="Check the chain of all events, and the records against it.")
@click.option("-o", "--output", type=click.Choice(["text", "json", "jsonl"]), default="text", show_default=True)
def events(
    cluster: str | None,
    all_projects: bool,
    owner: str,
    follow: bool,
    limit: int,
    after: int,
    verify: bool,
    output: str,
) -> None:
    """Show what orch did, in order: each change with its actor and cause (-o json: also before and after).

    --owner shows what one member did, to whomever's clusters.
    """
    if verify:
        refuse_option("events", "--verify", "the chain is checked in the store itself", os.environ)
        _verify()
        return
    if follow and output == "json":
        raise UserError("-f cannot write one JSON document", "it would never be complete", "orch events -f -o jsonl")
    scope = make_scope(owner, all_projects=all_projects)
    query = EventsQuery(scope=scope, cluster=cluster or "", after=after, limit=limit)
    with open_documents() as documents:
        document = documents.read_events(query)
        if output == "json":
            write_stdout(json.dumps(document, indent=2))
            return
        for event in document["events"]:
            _show(event, output)
        if follow:
            sys.stdout.flush()
            for event in _poll_newer(documents, replace(query, after=document["until"], limit=_NEWER)):
                _show(event, output)
                sys.stdout.flush()


def _verify() -> None:
    """Check the chain of events, and the records against it.

    Raises:
        OrchError: The store differs from its events.
    """
    from orchestrator.paths import load_paths
    from orchestrator.store.integrity import find_store_faults
    from orchestrator.store.location import store_location

    found = find_store_faults(store_location(os.environ, load_paths()))
    for first in found:
        more = f"; and {len(found) - 1} more" if len(found) > 1 else ""
        raise OrchError("the store differs from its events", first + more, "see docs/store.md")
    write_stderr("all events are unchanged, and all records match them")


def _poll_newer(documents: DocumentReads, query: EventsQuery) -> Iterator[dict[str, Any]]:
    seen = query.after

    def read_newer() -> dict[str, Any]:
        return documents.read_events(replace(query, after=seen))

    while True:
        document = documents.ask_again(read_newer, write_stderr, "orch events -f")
        seen = document["until"]
        yield from document["events"]


def _show(event: dict[str, Any], output: str) -> None:
    if output == "jsonl":
        write_stdout(json.dumps(event))
    else:
        write_stdout(draw_event(event))


def draw_event(event: dict[str, Any]) -> str:
    """Return the line of one event of a document."""
    cluster = qualify_name(event["project"], event["cluster"]) if event["cluster"] else ""
    at, what = format_local_time(parse_utc(event["at"])), escape_controls(event["what"])
    return f"{at}  {cluster:<16}  {event['kind']:<8}  {what}"
