"""`orch queue`: jobs in the order in which they run, and pipelines with their stages."""

from __future__ import annotations

import json

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.queue_text import draw_queue
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.parameters.clusters import CLUSTER, open_store_reader, read_record_time
from orchestrator.cli.parameters.scope import make_scope, scope_options
from orchestrator.documents.queries import QueueQuery
from orchestrator.documents.queue import read_queue


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
    with open_store_reader() as store:
        scope = make_scope(store, owner, all_projects=all_projects)
        query = QueueQuery(scope=scope, cluster=cluster or "", ended=everything)
        document = read_queue(store, read_record_time(), query)
    if output == "json":
        write_stdout(json.dumps(document, indent=2))
        return
    lines = draw_queue(document, with_project=all_projects)
    if lines:
        write_stdout(*lines)
    else:
        write_stderr("no job is running or queued" + ("" if everything else "; orch queue --all shows ended jobs"))
