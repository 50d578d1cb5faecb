"""`orch train`: the bundled trainer on new or living hosts, without a task file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.act import Manner, carry_out
from orchestrator.cli.clusters import CLUSTER
from orchestrator.cli.command import OrchCommand
from orchestrator.cli.options import acting, proving
from orchestrator.cli.proof import Proof
from orchestrator.cli.task_options import overrides, task_options
from orchestrator.errors import UserError

if TYPE_CHECKING:
    from orchestrator.engine.ready import Ready
    from orchestrator.spec.task import Task

_TASK = "train: {}\n"


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch train local:4 --bucket file:///tmp/runs model=tiny steps=100", "on 4 hosts of this computer"),
        ("orch train v5litepod-16 --use-spot --bucket gs://mine model=300m --dry-run", "the plan for a TPU slice"),
        ("orch train v6e-8 --compile --bucket gs://mine model=1b", "compile the step first; rent only if it fits"),
        (
            "orch train H100:8 --smoke --bucket s3://mine model=1b data=s3://mine/books steps=5000",
            "test first, then train",
        ),
        ("orch resume train", "go on from the last checkpoint"),
    ],
)
@click.argument("infra_argument", metavar="WHERE")
@click.argument("settings", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("-c", "--cluster", type=CLUSTER, help="Name of the cluster, new or living; default: train.")
@click.option(
    "--backend",
    type=click.Choice(["auto", "cpu", "cuda", "tpu", "xla", "neuron", "jax"]),
    help="What drives the chips; tpu: TorchTPU, xla: torch_xla. Default: the engine that serves them best.",
)
@task_options
@click.option("--down", is_flag=True, help="End the hosts when the training has ended, well or badly.")
@proving
@acting(detachable=True)
@click.pass_context
def train(
    ctx: click.Context,
    /,
    infra_argument: str,
    settings: tuple[str, ...],
    cluster: str | None,
    backend: str | None,
    down: bool,
    proof: Proof,
    manner: Manner,
    **given: Any,
) -> None:
    """Train the bundled model at WHERE: a place such as local:4, or an accelerator such as v5e-16.

    KEY=VALUE are settings of the trainer: python -m trainer --help.
    """
    if "=" in infra_argument:
        raise UserError(
            f"'{infra_argument}' is a setting; the first word says where to train",
            next_step=f"orch train local:2 {infra_argument}",
        )
    given["infra"], given["accelerators"] = _place(infra_argument, given["infra"], given["accelerators"])
    ready, task = _ready(settings, cluster, backend, down, given)
    if proof.asked:
        from orchestrator.cli.proving import prove

        ctx.exit(prove(ready, task, manner, proof))
    ctx.exit(carry_out(ready, manner))


def _place(argument: str, infra: str | None, accelerators: str | None) -> tuple[str | None, str | None]:
    """Where and on what: the first word is a place, or the name of what can be rented."""
    from orchestrator.spec.errors import FormError
    from orchestrator.spec.infra import parse_infra

    try:
        parse_infra(argument)
    except FormError as error:
        if not _is_rented(argument):
            raise UserError(error.what, error.why, f"{error.next_step}; or an accelerator such as v5e-16") from error
        if accelerators is not None and accelerators != argument:
            what = f"two things to train on: {argument} and --accelerators {accelerators}"
            raise UserError(what, next_step="name one") from None
        return infra, argument
    if infra is not None and infra != argument:
        raise UserError(f"two places to train: {argument} and --infra {infra}", next_step="name one")
    return argument, accelerators


def _is_rented(word: str) -> bool:
    """Raises UserError for a size that an accelerator does not come in."""
    from orchestrator.catalog import ec2, tpu

    return tpu.find_slice(word) is not None or ec2.find_instance(word) is not None


def _ready(
    settings: tuple[str, ...], cluster: str | None, backend: str | None, down: bool, given: dict[str, Any]
) -> tuple[Ready, Task]:
    from dataclasses import replace

    from orchestrator.engine.advice import with_advice
    from orchestrator.engine.prepare import launch as prepare
    from orchestrator.plan.desired import After
    from orchestrator.spec.config import load_config
    from orchestrator.spec.parse import parse_task

    flags = overrides(given, backend=backend, train_args=tuple(map(_setting, settings)))
    file = parse_task(_TASK, file="orch train", env=os.environ, flags=flags, config=load_config(os.environ))
    ready = prepare(file.only, cluster=cluster, after=After.DOWN if down else After.KEEP)
    ready = with_advice(replace(ready, notes=tuple(dict.fromkeys((*file.notes, *ready.notes)))), file.only)
    return ready, file.only


def _setting(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals or not key:
        raise UserError(f"'{word}' is no setting", "settings of the trainer are written key=value", "orch train --help")
    return key, value
