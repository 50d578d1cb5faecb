"""`orch stop`, `start`, `down` and `cancel`: end and restart hosts and jobs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import click

from orchestrator.cli.command import OrchCommand, current_session
from orchestrator.cli.drawing.terminal import can_ask, write_stderr
from orchestrator.cli.execution.act import ActMode, PerformMode, carry_out_order
from orchestrator.cli.execution.confirm_all import confirm_deletion_of_all
from orchestrator.cli.failures import report_error
from orchestrator.cli.parameters.clusters import CLUSTER
from orchestrator.cli.parameters.shared import FORCE, action_options
from orchestrator.client.choose import open_documents, open_orders
from orchestrator.client.orders import Order, OrderCalls
from orchestrator.documents.queries import ME, ClustersQuery, QueueQuery, Scope
from orchestrator.errors import OrchError, UserError


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch down mine", "delete its hosts; returns when the provider reports them deleted"),
        ("orch down mine other", "several, one after the other"),
        ("orch down pipe", "the pipeline of this name, with the hosts of its stage"),
        ("orch down mine --dry-run", "what would be deleted"),
        ("orch down --all", "all of your clusters in this project, after a question"),
    ],
)
@click.argument("clusters", metavar="CLUSTER...", type=CLUSTER, nargs=-1)
@click.option("--all", "every", is_flag=True, help="All of your clusters in this project; asks first.")
@click.option("--abandon", is_flag=True,
              help="Own machines: give up those that do not answer. Rented machines whose account is not on record: "
              "close the record. The program may still run there.")  # fmt: skip
@FORCE
@action_options(skips="the question about running jobs")
@click.pass_context
def down(ctx: click.Context, clusters: tuple[str, ...], every: bool, abandon: bool, force: bool, mode: ActMode) -> None:
    """Delete the hosts of clusters with their disks; billing ends. The bucket stays.

    Asks first, on a terminal, when a job is running. Logs that are not on this computer yet are downloaded first, for
    20 s at most.
    """
    if every and clusters:
        raise UserError("--all and names of clusters exclude each other", "", f"orch down {' '.join(clusters)}")
    if not every and not clusters:
        raise UserError("CLUSTER is missing", "", "orch down CLUSTER...   or all of yours: orch down --all")
    names = confirm_deletion_of_all(_list_own_clusters(), mode) if every else clusters
    orders = [Order(verb="down", cluster=name, abandon=abandon, force=force) for name in dict.fromkeys(names)]
    ctx.exit(_carry_out_each(orders, mode, "end it and delete the hosts?"))


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch stop mine", "hosts are stopped, their disks stay and are billed"),
        ("orch stop mine --dry-run", ""),
    ],
)
@click.argument("clusters", metavar="CLUSTER...", type=CLUSTER, nargs=-1, required=True)
@FORCE
@action_options(skips="the question about running jobs")
@click.pass_context
def stop(ctx: click.Context, clusters: tuple[str, ...], force: bool, mode: ActMode) -> None:
    """Stop the hosts of clusters; programs on them end. `orch start` starts the hosts again.

    Asks first, on a terminal, when a job is running. Logs that are not on this computer yet are downloaded first, for
    20 s at most.
    """
    orders = [Order(verb="stop", cluster=name, force=force) for name in dict.fromkeys(clusters)]
    ctx.exit(_carry_out_each(orders, mode, "end it and stop the hosts?"))


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch start mine", "hosts that were stopped"),
        ("orch start mine --yes", "without asking about the price"),
    ],
)
@click.argument("clusters", metavar="CLUSTER...", type=CLUSTER, nargs=-1, required=True)
@FORCE
@action_options()
@click.pass_context
def start(ctx: click.Context, clusters: tuple[str, ...], force: bool, mode: ActMode) -> None:
    """Start stopped hosts again. Their programs are not started: `orch resume` does that."""
    ctx.exit(
        _carry_out_each([Order(verb="start", cluster=name, force=force) for name in dict.fromkeys(clusters)], mode)
    )


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch cancel mine", "the running job: TERM, time to save, then KILL"),
        ("orch cancel mine 3", "job 3"),
        ("orch cancel pipe", "the pipeline of this name: its stage ends, and no other one starts"),
        ("orch cancel mine --all", "the running job, and those that wait"),
        ("orch cancel mine --dry-run", ""),
    ],
)
@click.argument("cluster", type=CLUSTER)
@click.argument("job", type=click.IntRange(min=1), required=False)
@click.option("--all", "every", is_flag=True, help="All jobs of the cluster that run or wait.")
@FORCE
@action_options(skips="")
@click.pass_context
def cancel(ctx: click.Context, cluster: str, job: int | None, every: bool, force: bool, mode: ActMode) -> None:
    """End a job's program on all hosts, the newest running one by default; the hosts stay.

    CLUSTER is also the name of a pipeline, or the cluster of its current stage. A cluster of that stage alone is
    deleted after it.
    """
    if every and job is not None:
        raise UserError("--all and the number of a job exclude each other", "", f"orch cancel {cluster} --all")
    jobs = _list_open_jobs(cluster) if every else [job]
    with open_orders() as orders:
        statuses = [
            carry_out_order(orders, orders.plan(Order(verb="cancel", cluster=cluster, job=one, force=force)), mode)
            for one in jobs
        ]
    ctx.exit(max(statuses, default=0))


def _list_own_clusters() -> list[tuple[str, str]]:
    """Return name and summary of the user's clusters in this project."""
    with open_documents() as documents:
        mine = documents.read_status(ClustersQuery(scope=Scope(project=None, owner=ME)))["clusters"]
        return [(one["name"], one["summary"]) for one in mine]


def _list_open_jobs(cluster: str) -> list[int]:
    """Return the jobs that run or wait, the last one first: none of them starts when the one before it ends."""
    with open_documents() as documents:
        jobs = [one["id"] for one in documents.read_queue(QueueQuery(cluster=cluster))["jobs"]]
    if not jobs:
        write_stderr(f"no job of '{cluster}' runs or waits")
    return sorted(jobs, reverse=True)


def _carry_out_each(changes: Sequence[Order], mode: ActMode, question: str = "") -> int:
    """Carry out one order after the other, and return the exit status of the first failure.

    A failure does not keep the others from being done.

    Args:
        changes: The orders.
        mode: Whether to show their plans or to perform them.
        question: What a person at a terminal is asked before running jobs are ended; "" for an order that ends none.

    Raises:
        OrchError: The only one was not begun, or the user declined.
    """
    worst = 0
    with open_orders() as orders:
        if question and isinstance(mode, PerformMode) and not mode.consent and can_ask():
            _confirm_running_jobs(orders, changes, question)
        for change in changes:
            try:
                status = carry_out_order(orders, orders.plan(change), mode)
            except OrchError as error:
                if len(changes) == 1:
                    raise
                status = report_error(error, current_session())
            worst = worst or status
    return worst


def _confirm_running_jobs(orders: OrderCalls, changes: Sequence[Order], question: str) -> None:
    """Ask before running jobs are ended.

    Raises:
        OrchError: The user declined.
    """
    ends: list[str] = []
    for change in changes:
        with suppress(OrchError):  # it is reported when its turn comes
            ends += orders.plan(change).ends
    if not ends:
        return
    write_stderr(*ends)
    if not click.confirm(question, default=False, err=True):
        raise OrchError("you declined", "nothing was done", f"orch logs -f {changes[0].cluster}   follows the job")
