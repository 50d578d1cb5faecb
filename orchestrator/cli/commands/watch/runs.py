"""`orch runs`: every run on record, also after its cluster was taken down."""

from __future__ import annotations

import json

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.commands.watch.run_comparison import write_comparison
from orchestrator.cli.drawing.runs_text import draw_run, draw_runs
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.parameters.clusters import CLUSTER
from orchestrator.cli.parameters.scope import make_scope, scope_options
from orchestrator.client.choose import open_documents
from orchestrator.documents.queries import RunsQuery


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch runs", "the last 20 runs, newest first"),
        ("orch runs RUN_ID", "one run in full: jobs, bucket, how to resume it"),
        ("orch runs --cluster mine --limit 100 -o json", ""),
        ("orch runs --compare RUN_ID RUN_ID", "two to eight runs: results, costs, and the settings that differ"),
    ],
)
@click.argument("run_ids", nargs=-1, metavar="[RUN_ID]...")
@click.option("--compare", is_flag=True, help="Compare the runs: results, costs, and the settings that differ.")
@click.option("-c", "--cluster", type=CLUSTER, help="Only runs on clusters of this name.")
@scope_options("--all")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many of the newest.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def runs(
    run_ids: tuple[str, ...],
    compare: bool,
    cluster: str | None,
    all_projects: bool,
    owner: str,
    limit: int,
    output: str,
) -> None:
    """Show runs with owner, duration, cost and result, also after their machines were deleted.

    The cost is the list price of the machines while the jobs of the run were open; disks and buckets are not in it.
    """
    if compare:
        write_comparison(run_ids, output)
        return
    if len(run_ids) > 1:
        raise click.UsageError("one run is shown at a time; --compare shows several side by side")
    run_id = next(iter(run_ids), None)
    scope = make_scope(owner, all_projects=all_projects)
    with open_documents() as documents:
        document = documents.read_runs(RunsQuery(scope=scope, cluster=cluster or "", run_id=run_id or "", limit=limit))
        if output == "json":
            write_stdout(json.dumps(document, indent=2))
        elif run_id is not None:
            write_stdout(*draw_run(document))
        elif document["runs"]:
            write_stdout(*draw_runs(document, with_project=all_projects))
        else:
            whose = f" of cluster '{cluster}'" if cluster is not None else ""
            write_stderr(f"no run{whose} is on record; orch launch --help shows how to begin")
