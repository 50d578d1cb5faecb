"""`orch watch`: follow a job to its end and replace lost hosts, as the command that launched it would."""

from __future__ import annotations

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.execution.act import ActMode, carry_out
from orchestrator.cli.parameters.clusters import CLUSTER
from orchestrator.cli.parameters.shared import action_options


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch watch mine", "the running or queued job: follow it and replace lost hosts until it ends"),
        ("orch watch pipe", "the pipeline of this name: its stage, and the stages after it"),
        ("orch watch mine --detach", "hand that to an unattended engine on this computer"),
        ("orch logs -f mine", "only follow the output, change nothing"),
    ],
)
@click.argument("cluster", type=CLUSTER)
@click.argument("job", type=click.IntRange(min=1), required=False)
@action_options(detachable=True, shows_output=True)
@click.pass_context
def watch(ctx: click.Context, cluster: str, job: int | None, mode: ActMode) -> None:
    """Watch a job or a pipeline that has no engine, from its record: the task file is not needed.

    CLUSTER is also the name of a pipeline, whose stages follow. The exit status is that of the job. Ctrl-C stops
    watching; the program continues.
    """
    from dataclasses import replace

    from orchestrator.client.local import open_own_reader
    from orchestrator.engine.preparation.commands import prepare_watch as prepare
    from orchestrator.store.lookup import find_pipeline

    with open_own_reader() as store:
        record = store.cluster(cluster)
        jobs = store.jobs(record) if record is not None else ()
        first = next((one.id for one in jobs if one.state != "ended" and one.kind != "exec"), None)
        pipeline = find_pipeline(store, cluster, job or first)
    if pipeline is not None:
        from orchestrator.cli.commands.run.pipeline import watch_pipeline

        ctx.exit(watch_pipeline(pipeline, mode))
    ready = prepare(cluster, job)
    if record is not None:
        ready = replace(ready, continued_uid=record.uid)
    ctx.exit(carry_out(ready, mode))
