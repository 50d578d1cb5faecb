"""`orch resume`: the same run again, from its newest complete checkpoint."""

from __future__ import annotations

import click

from orchestrator.cli.act import Manner, carry_out
from orchestrator.cli.clusters import CLUSTER
from orchestrator.cli.command import OrchCommand
from orchestrator.cli.options import acting, proving
from orchestrator.cli.proof import Proof


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch resume mine", "the last run of cluster 'mine'; lost hosts are replaced"),
        ("orch resume mine-k3x9q --bucket gs://my-runs", "a run that another computer started"),
        ("orch resume mine --dry-run", "what it would take"),
    ],
)
@click.argument("name", metavar="NAME|RUN_ID", type=CLUSTER)
@click.option("-c", "--cluster", type=CLUSTER, help="Run on this cluster instead.")
@click.option("--bucket", metavar="URI", help="Where the run is, when this computer does not know it.")
@click.option("--down", is_flag=True, help="End the hosts when the program has ended, well or badly.")
@click.option("--force", is_flag=True, help="Also when the run has ended well.")
@proving
@acting(detachable=True)
@click.pass_context
def resume(
    ctx: click.Context,
    name: str,
    cluster: str | None,
    bucket: str | None,
    down: bool,
    force: bool,
    proof: Proof,
    manner: Manner,
) -> None:
    """Go on with a run from its newest complete checkpoint in the bucket, on the same hosts or new ones."""
    from orchestrator.engine.prepare import resume as prepare
    from orchestrator.plan.desired import After

    after = After.DOWN if down else After.KEEP
    ready = prepare(name, cluster=cluster, bucket=bucket, after=after, force=force)
    if proof.asked and ready.job is not None:
        from orchestrator.cli.proving import prove
        from orchestrator.engine.advice import with_advice
        from orchestrator.spec.task import Task

        task = Task.from_json(ready.job.task)
        ctx.exit(prove(with_advice(ready, task), task, manner, proof))
    ctx.exit(carry_out(ready, manner))
