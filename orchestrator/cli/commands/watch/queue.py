"""`orch queue`: jobs in the order in which they run, and pipelines with their stages."""

from __future__ import annotations

import json

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.queue_text import draw_queue
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.parameters.clusters import CLUSTER
from orchestrator.cli.parameters.scope import make_scope, scope_options
from orchestrator.client.choose import open_documents
from orchestrator.documents.queries import QueueQuery


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch queue", "running and queued jobs, on all clusters"),
        ("orch launch next.yaml -c mine --detach", "queue a job behind the running one on 'mine'"),
        ("orch cancel mine 3", "take job 3 out of the queue"),
    ],
)
@click.argument("cluster", type=CLUSTER, required=False)
@scope_options("--all-projects")
@click.option("-a", "--all", "everything", is_flag=True, help="Also jobs and pipelines that have ended.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def queue(cluster: str | None, all_projects: bool, owner: str, everything: bool, output: str) -> None:
    """Show jobs, which run one after the other on each cluster, and the current stage of pipelines."""
    scope = make_scope(owner, all_projects=all_projects)
    with open_documents() as documents:
        document = documents.read_queue(QueueQuery(scope=scope, cluster=cluster or "", ended=everything))
        text = draw_queue(document, with_project=all_projects)
        lines = [json.dumps(document, indent=2)] if output == "json" else text
        write_stdout(*lines)
    if not lines:
        write_stderr("no job is running or queued" + ("" if everything else "; orch queue --all shows ended jobs"))
