"""`orch stop`, `start`, `down` and `cancel`: the end of hosts and jobs, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from orchestrator.cli.act import Manner, carry_out
from orchestrator.cli.clusters import CLUSTER
from orchestrator.cli.command import OrchCommand
from orchestrator.cli.failures import explain
from orchestrator.cli.options import acting
from orchestrator.cli.terminal import say
from orchestrator.errors import OrchError

if TYPE_CHECKING:
    from orchestrator.engine.ready import Ready


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch down mine", "end its hosts; done when the provider says that they are gone"),
        ("orch down mine other", "several, one after the other"),
        ("orch down mine --dry-run", "what would be ended"),
    ],
)
@click.argument("clusters", metavar="CLUSTER...", type=CLUSTER, nargs=-1, required=True)
@acting()
@click.pass_context
def down(ctx: click.Context, clusters: tuple[str, ...], manner: Manner) -> None:
    """End the hosts of clusters for good: their disks are gone, nothing is billed any more. The bucket stays."""
    from orchestrator.cli.adopt import ask_before_deleting
    from orchestrator.engine.prepare import down as prepare

    ask_before_deleting(clusters, manner)
    ctx.exit(_each(clusters, prepare, manner))


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch stop mine", "hosts are stopped, their disks stay and are billed"),
        ("orch stop mine --dry-run", ""),
    ],
)
@click.argument("clusters", metavar="CLUSTER...", type=CLUSTER, nargs=-1, required=True)
@acting()
@click.pass_context
def stop(ctx: click.Context, clusters: tuple[str, ...], manner: Manner) -> None:
    """Stop the hosts of clusters; programs on them end. `orch start` brings them back."""
    from orchestrator.engine.prepare import stop as prepare

    ctx.exit(_each(clusters, prepare, manner))


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch start mine", "hosts that were stopped"),
        ("orch start mine --yes", "without asking about the price"),
    ],
)
@click.argument("clusters", metavar="CLUSTER...", type=CLUSTER, nargs=-1, required=True)
@acting()
@click.pass_context
def start(ctx: click.Context, clusters: tuple[str, ...], manner: Manner) -> None:
    """Start stopped hosts again. Their programs are not started: `orch resume` does that."""
    from orchestrator.cli.act import Perform
    from orchestrator.engine.background import start_engine_for
    from orchestrator.engine.prepare import start as prepare

    status = _each(clusters, prepare, manner)
    if isinstance(manner, Perform) and start_engine_for(clusters):
        say("an unattended engine goes on with what is queued; see: orch queue")
    ctx.exit(status)


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch cancel mine", "the job that runs: TERM, time to save, then KILL"),
        ("orch cancel mine 3", "job 3"),
        ("orch cancel mine --dry-run", ""),
    ],
)
@click.argument("cluster", type=CLUSTER)
@click.argument("job", type=click.IntRange(min=1), required=False)
@acting()
@click.pass_context
def cancel(ctx: click.Context, cluster: str, job: int | None, manner: Manner) -> None:
    """End a job's program on all hosts, the newest running one by default; the hosts stay."""
    from orchestrator.engine.prepare import cancel as prepare

    ctx.exit(carry_out(prepare(cluster, job), manner))


def _each(clusters: tuple[str, ...], prepare: Callable[[str], Ready], manner: Manner) -> int:
    """One after the other; a failure does not keep the rest from being done. The first failure's status."""
    worst = 0
    for cluster in dict.fromkeys(clusters):
        try:
            status = carry_out(prepare(cluster), manner)
        except OrchError as error:
            if len(clusters) == 1:
                raise
            status = explain(error, debug=False)
        worst = worst or status
    return worst
