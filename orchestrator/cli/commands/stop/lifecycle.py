"""`orch stop`, `start`, `down` and `cancel`: end and restart hosts and jobs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import OrchCommand, current_session
from orchestrator.cli.drawing.terminal import can_ask, write_stderr
from orchestrator.cli.execution.act import ActMode, PerformMode, WithoutStore, carry_out
from orchestrator.cli.execution.confirm_all import confirm_deletion_of_all
from orchestrator.cli.failures import report_error
from orchestrator.cli.parameters.clusters import CLUSTER
from orchestrator.cli.parameters.shared import action_options
from orchestrator.client.local import open_own_reader, read_record_time
from orchestrator.errors import OrchError, UserError
from orchestrator.formatting import format_duration
from orchestrator.service_address import find_server
from orchestrator.store.lookup import find_cluster

if TYPE_CHECKING:
    from orchestrator.engine.preparation.prepared import PreparedCommand
    from orchestrator.store.failures import StoreError


_force = click.option("--force", is_flag=True, help="Also a cluster that belongs to another member of the team.")


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch down mine", "delete its hosts; returns when the provider reports them deleted"),
        ("orch down mine other", "several, one after the other"),
        ("orch down mine --dry-run", "what would be deleted"),
        ("orch down --all", "all of your clusters in this project, after a question"),
    ],
)
@click.argument("clusters", metavar="CLUSTER...", type=CLUSTER, nargs=-1)
@click.option("--all", "every", is_flag=True, help="All of your clusters in this project; asks first.")
@click.option("--abandon", is_flag=True,
              help="Own machines: give up those that do not answer. Rented machines whose account is not on record: "
              "close the record. The program may still run there.")  # fmt: skip
@_force
@action_options(skips="the question about running jobs")
@click.pass_context
def down(ctx: click.Context, clusters: tuple[str, ...], every: bool, abandon: bool, force: bool, mode: ActMode) -> None:
    """Delete the hosts of clusters with their disks; billing ends. The bucket stays.

    Asks first, on a terminal, when a job is running. Logs that are not on this computer yet are downloaded first, for
    20 s at most.
    """
    from orchestrator.engine.preparation.commands import prepare_down

    if every and clusters:
        raise UserError("--all and names of clusters exclude each other", "", f"orch down {' '.join(clusters)}")
    if not every and not clusters:
        raise UserError("CLUSTER is missing", "", "orch down CLUSTER...   or all of yours: orch down --all")
    if find_server(os.environ):
        from orchestrator.cli.execution.served_lifecycle import change_served
        from orchestrator.cli.execution.served_orders import refuse_through_service

        refuse_through_service({"--abandon": abandon})
        question = "end it and delete the hosts?"
        ctx.exit(change_served("down", clusters, mode, force=force, question=question, every=every))
    if every:
        clusters = confirm_deletion_of_all(_list_own_clusters(), mode)
    _confirm_running_jobs(clusters, mode, "end it and delete the hosts?")
    ctx.exit(_carry_out_each(clusters, partial(prepare_down, abandon=abandon, force=force), mode, _end_unrecorded))


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch stop mine", "hosts are stopped, their disks stay and are billed"),
        ("orch stop mine --dry-run", ""),
    ],
)
@click.argument("clusters", metavar="CLUSTER...", type=CLUSTER, nargs=-1, required=True)
@_force
@action_options(skips="the question about running jobs")
@click.pass_context
def stop(ctx: click.Context, clusters: tuple[str, ...], force: bool, mode: ActMode) -> None:
    """Stop the hosts of clusters; programs on them end. `orch start` starts the hosts again.

    Asks first, on a terminal, when a job is running. Logs that are not on this computer yet are downloaded first, for
    20 s at most.
    """
    if find_server(os.environ):
        from orchestrator.cli.execution.served_lifecycle import change_served

        ctx.exit(change_served("stop", clusters, mode, force=force, question="end it and stop the hosts?"))
    from orchestrator.engine.preparation.commands import prepare_stop as prepare

    _confirm_running_jobs(clusters, mode, "end it and stop the hosts?")
    ctx.exit(_carry_out_each(clusters, partial(prepare, force=force), mode))


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch start mine", "hosts that were stopped"),
        ("orch start mine --yes", "without asking about the price"),
    ],
)
@click.argument("clusters", metavar="CLUSTER...", type=CLUSTER, nargs=-1, required=True)
@_force
@action_options()
@click.pass_context
def start(ctx: click.Context, clusters: tuple[str, ...], force: bool, mode: ActMode) -> None:
    """Start stopped hosts again. Their programs are not started: `orch resume` does that."""
    if find_server(os.environ):
        from orchestrator.cli.execution.served_lifecycle import change_served

        ctx.exit(change_served("start", clusters, mode, force=force))
    from orchestrator.engine.preparation.commands import prepare_start as prepare
    from orchestrator.engine.unattended.handover import start_engine_for_waiting_jobs

    status = _carry_out_each(clusters, partial(prepare, force=force), mode)
    if isinstance(mode, PerformMode) and start_engine_for_waiting_jobs(clusters):
        write_stderr("an unattended engine continues the queue; see: orch queue")
    ctx.exit(status)


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch cancel mine", "the running job: TERM, time to save, then KILL"),
        ("orch cancel mine 3", "job 3"),
        ("orch cancel mine --all", "the running job, and those that wait"),
        ("orch cancel mine --dry-run", ""),
    ],
)
@click.argument("cluster", type=CLUSTER)
@click.argument("job", type=click.IntRange(min=1), required=False)
@click.option("--all", "every", is_flag=True, help="All jobs of the cluster that run or wait.")
@_force
@action_options(skips="")
@click.pass_context
def cancel(ctx: click.Context, cluster: str, job: int | None, every: bool, force: bool, mode: ActMode) -> None:
    """End a job's program on all hosts, the newest running one by default; the hosts stay."""
    from orchestrator.engine.preparation.commands import prepare_cancel as prepare

    if every and job is not None:
        raise UserError("--all and the number of a job exclude each other", "", f"orch cancel {cluster} --all")
    if find_server(os.environ):
        from orchestrator.cli.execution.served_lifecycle import cancel_served

        ctx.exit(cancel_served(cluster, job, mode, force=force, every=every))
    if every:
        ctx.exit(max((carry_out(prepare(cluster, one, force=force), mode) for one in _open_jobs(cluster)), default=0))
    ctx.exit(carry_out(prepare(cluster, job, force=force), mode))


def _list_own_clusters() -> list[tuple[str, str]]:
    """Return name and summary of the user's clusters in this project."""
    with open_own_reader() as store:
        mine = [one for one in store.clusters() if one.project == store.project and one.owner in ("", store.member)]
    return [(one.name, one.summary) for one in mine]


def _open_jobs(cluster: str) -> list[int]:
    """Return the jobs that run or wait, the last one first: none of them starts when the one before it ends."""
    with open_own_reader() as store:
        jobs = [job.id for job in store.jobs(find_cluster(store, cluster)) if job.state != "ended"]
    if not jobs:
        write_stderr(f"no job of '{cluster}' runs or waits")
    return sorted(jobs, reverse=True)


def _end_unrecorded(cluster: str, failure: StoreError) -> OrchError:
    from orchestrator.cli.drawing.narrator import TerminalNarrator
    from orchestrator.engine.operations.end_unrecorded import end_unrecorded

    with TerminalNarrator(sys.stderr) as narrator:
        return end_unrecorded(cluster, failure, narrator)


def _carry_out_each(
    clusters: tuple[str, ...],
    prepare: Callable[[str], PreparedCommand],
    mode: ActMode,
    without_store: WithoutStore | None = None,
) -> int:
    """Carry out one cluster after the other, and return the exit status of the first failure.

    A failure does not keep the others from being done. `without_store` is what can be done for a cluster when the store
    cannot be written; it returns what is left to do.
    """
    worst = 0
    for cluster in dict.fromkeys(clusters):
        try:
            status = carry_out(prepare(cluster), mode, without_store)
        except OrchError as error:
            if len(clusters) == 1:
                raise
            status = report_error(error, current_session())
        worst = worst or status
    return worst


def _confirm_running_jobs(clusters: tuple[str, ...], mode: ActMode, question: str) -> None:
    """Ask, on a terminal, before running jobs are ended.

    Raises:
        OrchError: The user declined.
    """
    if not isinstance(mode, PerformMode) or mode.consent or not can_ask():
        return
    running: list[str] = []
    now = read_record_time()
    with open_own_reader() as store:
        for name in dict.fromkeys(clusters):
            record = store.cluster(name)
            jobs = store.jobs(record) if record is not None else ()
            running += [
                f"job {job.id} ({job.kind}, for {format_duration(now - job.created)}) is running on '{name}'"
                for job in jobs
                if job.state == "running"
            ]
    if not running:
        return
    write_stderr(*running)
    if not click.confirm(question, default=False, err=True):
        raise OrchError("you declined", "nothing was done", f"orch logs -f {clusters[0]}   follows the job")
