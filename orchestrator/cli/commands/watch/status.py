"""`orch status`: clusters, jobs and prices, read from the store alone unless --refresh is given."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.status_text import draw_cluster, draw_clusters, draw_limit_notes
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.execution.served_commands import refuse_option
from orchestrator.cli.parameters.clusters import CLUSTER
from orchestrator.cli.parameters.scope import make_scope, scope_options
from orchestrator.client.choose import open_documents
from orchestrator.documents.queries import ClustersQuery, Scope


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
    scope = Scope() if cluster else make_scope(owner, all_projects=all_projects)
    query = ClustersQuery(scope=scope, cluster=cluster or "")
    with open_documents() as documents:
        if refresh:
            _refresh(documents.read_status(query))
        document = documents.read_status(query)
        if output == "json":
            write_stdout(json.dumps(document, indent=2))
        else:
            _draw(document, alone=bool(cluster), with_project=all_projects)
        if refusal := document["refusal"]:
            write_stderr(f"this store is only read, and nothing is changed: {refusal}; orch store   shows what to type")


def _draw(document: Mapping[str, Any], *, alone: bool, with_project: bool) -> None:
    if alone:
        write_stdout(*draw_cluster(document))
    elif document["clusters"]:
        write_stdout(*draw_clusters(document, with_project=with_project))
    else:
        write_stderr("no clusters; orch launch --help shows how to create one")
    write_stderr(*draw_limit_notes(document))


def _refresh(document: Mapping[str, Any]) -> None:
    from orchestrator.cli.drawing.narrator import TerminalNarrator
    from orchestrator.engine.operations.refresh import refresh_cluster

    with TerminalNarrator(sys.stderr) as narrator:
        for item in document["clusters"]:
            refresh_cluster(item["name"], narrator, item["project"])
