"""`orch train`: the bundled trainer on new or living hosts, without a task file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.act import Manner, carry_out
from orchestrator.cli.clusters import CLUSTER
from orchestrator.cli.command import OrchCommand
from orchestrator.cli.options import acting
from orchestrator.cli.task_options import overrides, task_options
from orchestrator.errors import UserError

if TYPE_CHECKING:
    from orchestrator.engine.ready import Ready

_TASK = "train: {}\n"


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch train local:4 --bucket file:///tmp/runs model=tiny steps=100", "on 4 hosts of this computer"),
        ("orch train gcp --accelerators v5litepod-16 --use-spot --bucket gs://mine model=small --dry-run", "the plan"),
        ("orch resume train", "go on from the last checkpoint"),
    ],
)
@click.argument("infra_argument", metavar="INFRA")
@click.argument("settings", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("-c", "--cluster", type=CLUSTER, help="Name of the cluster, new or living; default: train.")
@click.option("--backend", type=click.Choice(["auto", "cpu", "cuda", "xla", "neuron"]), help="What drives the chips.")
@task_options
@click.option("--down", is_flag=True, help="End the hosts when the training has ended, well or badly.")
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
    manner: Manner,
    **given: Any,
) -> None:
    """Train the bundled model on hosts at INFRA. KEY=VALUE are settings of the trainer: python -m trainer --help."""
    if "=" in infra_argument:
        raise UserError(
            f"'{infra_argument}' is a setting; the first word says where to train",
            next_step=f"orch train local:2 {infra_argument}",
        )
    given["infra"] = _one_infra(infra_argument, given["infra"])
    ctx.exit(carry_out(_ready(settings, cluster, backend, down, given), manner))


def _one_infra(argument: str, option: str | None) -> str:
    if option is not None and option != argument:
        raise UserError(f"two places to train: {argument} and --infra {option}", next_step="name one")
    return argument


def _ready(
    settings: tuple[str, ...], cluster: str | None, backend: str | None, down: bool, given: dict[str, Any]
) -> Ready:
    from dataclasses import replace

    from orchestrator.engine.prepare import launch as prepare
    from orchestrator.plan.desired import After
    from orchestrator.spec.config import load_config
    from orchestrator.spec.parse import parse_task

    flags = overrides(given, backend=backend, train_args=tuple(map(_setting, settings)))
    file = parse_task(_TASK, file="orch train", env=os.environ, flags=flags, config=load_config(os.environ))
    ready = prepare(file.only, cluster=cluster, after=After.DOWN if down else After.KEEP)
    return replace(ready, notes=tuple(dict.fromkeys((*file.notes, *ready.notes))))


def _setting(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals or not key:
        raise UserError(f"'{word}' is no setting", "settings of the trainer are written key=value", "orch train --help")
    return key, value
