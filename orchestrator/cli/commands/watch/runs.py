"""`orch runs`: every run on record, also after its cluster was taken down."""

from __future__ import annotations

import json
import sys

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.commands.watch.run_comparison import write_comparison
from orchestrator.cli.drawing.tables import draw_list, draw_table
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.parameters.clusters import CLUSTER, open_store_reader, read_record_time
from orchestrator.cli.parameters.scope import make_scope, scope_options
from orchestrator.documents.output_progress import add_output
from orchestrator.documents.runs import RunsQuery, RunSummary, find_runs, format_commit, format_run_cost, runs_as_json
from orchestrator.formatting import format_duration, format_local_time


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
    with open_store_reader() as store:
        scope = make_scope(store, owner, all_projects=all_projects)
        query = RunsQuery(
            project=scope.project, owner=scope.owner, cluster=cluster or "", run_id=run_id or "", limit=limit
        )
        found = add_output(store, find_runs(store, read_record_time(), query))
    if output == "json":
        write_stdout(json.dumps(runs_as_json(found), indent=2))
    elif run_id is not None:
        write_stdout(*_detail_lines(found[0]))
    elif found:
        write_stdout(*_table(found, with_project=all_projects))
    else:
        whose = f" of cluster '{cluster}'" if cluster is not None else ""
        write_stderr(f"no run{whose} is on record; orch launch --help shows how to begin")


def _table(found: list[RunSummary], *, with_project: bool) -> list[str]:
    output = ["FROM OUTPUT"] if any(run.output is not None for run in found) else []
    project = ["PROJECT"] if with_project else []
    commit = ["COMMIT"] if any("commit" in run.git for run in found) else []
    head = ("RUN", "CLUSTER", *project, "OWNER", *commit, "STARTED", "TOOK", "COST", *output, "RESULT")
    rows: list[tuple[str, ...]] = [head]
    for run in found:
        started = format_local_time(run.jobs[0].created)[5:16]
        whose = (*([run.project] if project else []), run.owner or "-", *([format_commit(run)] if commit else []))
        said = [str(run.output or "-")] if output else []
        cost = (started, format_duration(run.seconds), format_run_cost(run))
        rows.append((run.run_id, run.cluster.name, *whose, *cost, *said, run.result))
    optional = ("CLUSTER", "COMMIT", "OWNER", "TOOK", "FROM OUTPUT")
    return draw_table(rows, sys.stdout, optional=optional, least={"RESULT": 24})


def _describe_commit(run: RunSummary) -> str:
    git = run.git
    if "commit" not in git:
        return "the workdir is of none"
    branch = f" of {git['branch']}" if "branch" in git else ""
    changed = f", with changes since (SHA-256 {git['changes'][:9]})" if "changes" in git else ""
    return f"{git['commit']}{branch}{changed}"


def _detail_lines(run: RunSummary) -> list[str]:
    facts = [
        ("run", run.run_id),
        ("cluster", run.cluster.name),
        ("owner", run.owner or "not on record"),
        ("started", format_local_time(run.jobs[0].created)),
        ("took", format_duration(run.seconds)),
        ("cost", f"{format_run_cost(run)} by list price, without disks and buckets"),
        ("result", run.result),
        ("commit", _describe_commit(run)),
        ("bucket", f"{run.last.bucket}/{run.run_id}/" if run.last.bucket else "none"),
    ]
    if run.output is not None:
        facts.append(("progress", f"{run.output}   from output, {run.output.form}"))
    if run.last.why:
        facts.append(("reason", run.last.why))
    if run.last.bucket:
        facts.append(("resume", f"orch resume {run.run_id} --bucket {run.last.bucket}"))
    rows = [("JOB", "KIND", "STATE", "ATTEMPTS", "STARTED", "RESULT")]
    rows += [
        (
            str(job.id),
            job.kind,
            job.state,
            str(job.attempt),
            format_local_time(job.created),
            f"exit {job.status}" if job.status is not None else "",
        )
        for job in run.jobs
    ]
    return [*draw_list(facts, sys.stdout), "", *draw_table(rows, sys.stdout)]
