"""`orch launch` and `orch plan`: a task file, done or shown."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.act import Manner, Show, carry_out
from orchestrator.cli.clusters import CLUSTER
from orchestrator.cli.command import OrchCommand
from orchestrator.cli.options import acting, form_of, proving
from orchestrator.cli.proof import Proof
from orchestrator.cli.task_options import overrides, task_options

if TYPE_CHECKING:
    from orchestrator.engine.ready import Ready
    from orchestrator.spec.parse import TaskFile

_CLUSTER_HELP = "Name of the cluster, new or living; default: the task's name."
_DOWN_HELP = "End the hosts when the program has ended, well or badly."
_FORCE_SETUP_HELP = "Run setup again, also where it has passed."
_WRITE_HELP = "Save a task for TPU Nodes, which Google ended, as one for TPU VMs; do nothing else."


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch launch examples/train-local.yaml", "provision, set up, run, follow"),
        ("orch launch task.yaml -c mine --accelerators v5litepod-16 --use-spot --dry-run", "all that would be done"),
        ("orch launch task.yaml -c mine --env LR=0.1 --secret HF_TOKEN --detach", "leave it to an unattended engine"),
    ],
)
@click.argument("task", metavar="TASK.yaml", type=click.Path())
@click.option("-c", "--cluster", type=CLUSTER, help=_CLUSTER_HELP)
@task_options
@click.option("--down", is_flag=True, help=_DOWN_HELP)
@click.option("--force-setup", is_flag=True, help=_FORCE_SETUP_HELP)
@click.option("--write", is_flag=True, help=_WRITE_HELP)
@proving
@acting(detachable=True)
@click.pass_context
def launch(
    ctx: click.Context,
    /,
    task: str,
    cluster: str | None,
    down: bool,
    force_setup: bool,
    write: bool,
    proof: Proof,
    manner: Manner,
    **given: Any,
) -> None:
    """Provision hosts for a task file, set them up, run its program on all of them.

    On a living cluster only what changed is sent, and setup runs again only when it changed. The same command again,
    after this one was cut off, goes on where it ended. Several tasks in one file run one after the other.
    """
    ctx.exit(_carry_out(task, cluster, down, force_setup, given, manner, write=write, proof=proof))


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch plan task.yaml", "every request, script, file and price, in order"),
        ("orch plan task.yaml -o json", "the same for programs; schema: orchestrator/plan/data/plan.schema.json"),
        ("orch plan task.yaml -o sh > by-hand.sh", "the same as a script to read"),
        ("orch plan task.yaml --compile", "does the training step fit the TPU slice? Its own compiler answers"),
    ],
)
@click.argument("task", metavar="TASK.yaml", type=click.Path())
@click.option("-c", "--cluster", type=CLUSTER, help=_CLUSTER_HELP)
@task_options
@click.option("--down", is_flag=True, help=_DOWN_HELP)
@click.option("--force-setup", is_flag=True, help=_FORCE_SETUP_HELP)
@click.option("--write", is_flag=True, help=_WRITE_HELP)
@proving
@click.option("-o", "--output", type=click.Choice(["text", "json", "sh"]), default="text", show_default=True)
@click.option("-v", "--verbose", is_flag=True, help="Show long lists and texts whole.")
@click.pass_context
def plan(
    ctx: click.Context,
    /,
    task: str,
    cluster: str | None,
    down: bool,
    force_setup: bool,
    write: bool,
    output: str,
    verbose: bool,
    proof: Proof,
    **given: Any,
) -> None:
    """Show all that a launch would do. Needs no network and no credentials; nothing is done."""
    manner = Show(form_of(output), verbose)
    ctx.exit(_carry_out(task, cluster, down, force_setup, given, manner, write=write, proof=proof))


def _carry_out(
    path: str,
    cluster: str | None,
    down: bool,
    force_setup: bool,
    given: dict[str, Any],
    manner: Manner,
    *,
    write: bool,
    proof: Proof,
) -> int:
    from orchestrator.spec.config import load_config
    from orchestrator.spec.errors import TpuNodeError
    from orchestrator.spec.parse import load_task_file

    try:
        file = load_task_file(path, env=os.environ, flags=overrides(given), config=load_config(os.environ))
    except TpuNodeError as error:
        from orchestrator.cli.rewriting import answer

        return answer(error, write=write, quiet=_for_a_program(manner))
    if write:
        from orchestrator.cli.rewriting import nothing_to_write

        raise nothing_to_write(path)
    if proof.asked:
        from orchestrator.cli.proving import prove

        return prove(_ready(file, cluster, down, force_setup), file.only, manner, proof)
    if len(file.tasks) > 1:
        from orchestrator.cli.pipeline import carry_out_all, wanted

        return carry_out_all(wanted(file, cluster, down), manner)
    return carry_out(_ready(file, cluster, down, force_setup), manner)


def _for_a_program(manner: Manner) -> bool:
    """Whether stdout is not for people."""
    return manner.form != "text" if isinstance(manner, Show) else manner.as_json


def _ready(file: TaskFile, cluster: str | None, down: bool, force_setup: bool) -> Ready:
    from dataclasses import replace

    from orchestrator.engine.advice import with_advice
    from orchestrator.engine.prepare import launch as prepare
    from orchestrator.plan.desired import After

    ready = prepare(file.only, cluster=cluster, after=After.DOWN if down else After.KEEP, force_setup=force_setup)
    return with_advice(replace(ready, notes=tuple(dict.fromkeys((*file.notes, *ready.notes)))), file.only)
