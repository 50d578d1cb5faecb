"""`orch watch`: follow a job to its end and keep it alive: lost hosts are replaced, as in the command that began it."""

from __future__ import annotations

import click

from orchestrator.cli.act import Manner, carry_out
from orchestrator.cli.clusters import CLUSTER
from orchestrator.cli.command import OrchCommand
from orchestrator.cli.options import acting


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch watch mine", "the job that runs or waits: follow it, replace lost hosts, until it is over"),
        ("orch watch mine --detach", "leave that to an unattended engine on this computer"),
        ("orch logs -f mine", "only look, change nothing"),
    ],
)
@click.argument("cluster", type=CLUSTER)
@click.argument("job", type=click.IntRange(min=1), required=False)
@acting(detachable=True)
@click.pass_context
def watch(ctx: click.Context, cluster: str, job: int | None, manner: Manner) -> None:
    """Go on with a job that was left alone, from its record: the task file is not needed.

    The exit status is the job's own. Ctrl-C stops watching; the program goes on.
    """
    from dataclasses import replace

    from orchestrator.cli.clusters import reader
    from orchestrator.engine.prepare import watch as prepare

    ready = prepare(cluster, job)
    with reader() as store:
        record = store.cluster(cluster)
    if record is not None:
        ready = replace(ready, of=record.uid)
    ctx.exit(carry_out(ready, manner))
