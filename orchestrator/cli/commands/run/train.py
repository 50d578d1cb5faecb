"""`orch train`: run the bundled trainer on new or existing hosts, without a task file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.execution.act import ActMode
from orchestrator.cli.execution.local_checks import carry_out_checked
from orchestrator.cli.parameters.clusters import CLUSTER
from orchestrator.cli.parameters.shared import ACCEPT_HOST_KEY, LocalChecks, action_options, local_check_options
from orchestrator.cli.parameters.task import make_overrides, task_options
from orchestrator.client.choose import open_orders
from orchestrator.client.orders import Order
from orchestrator.errors import UserError

if TYPE_CHECKING:
    from orchestrator.task.parse import TaskFile

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
        (
            "orch train auto --budget 2000 --by 5d --only gcp,spot --bucket gs://mine model=1b tokens=20B",
            "on what is cheapest, within budget and time",
        ),
        ("orch resume train", "resume from the last checkpoint"),
    ],
)
@click.argument("infra_argument", metavar="WHERE")
@click.argument("settings", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("-c", "--cluster", type=CLUSTER, help="Name of the cluster, new or existing; default: train.")
@click.option(
    "--backend",
    type=click.Choice(["auto", "cpu", "cuda", "tpu", "xla", "neuron", "jax"]),
    help="Framework backend; tpu: TorchTPU, xla: torch_xla. Default: the best one for the accelerator.",
)
@task_options
@click.option("--down", is_flag=True, help="Delete the hosts when the training has ended, successfully or not.")
@ACCEPT_HOST_KEY
@local_check_options
@action_options(detachable=True, shows_output=True)
@click.pass_context
def train(
    ctx: click.Context,
    /,
    infra_argument: str,
    settings: tuple[str, ...],
    cluster: str | None,
    backend: str | None,
    down: bool,
    accept_host_keys: bool,
    local_checks: LocalChecks,
    mode: ActMode,
    **given: Any,
) -> None:
    """Train the bundled model at WHERE: a place such as local:4, or an accelerator such as v5e-16.

    WHERE is auto where orch chooses the machines, as `orch offers` does.

    KEY=VALUE are settings of the trainer: python -m trainer --help. With auto also tokens=20B, of the whole run.
    """
    if "=" in infra_argument:
        raise UserError(
            f"'{infra_argument}' is a setting; the first argument is where to train",
            next_step=f"orch train local:2 {infra_argument}",
        )
    options = given["infra"], given["accelerators"]
    given["infra"], given["accelerators"] = _place(infra_argument, *options)
    by_argument = (
        "infra" if given["infra"] != options[0] else "accelerators" if given["accelerators"] != options[1] else ""
    )
    with open_orders() as orders:
        order = Order(
            verb="launch",
            cluster=cluster or "",
            down=down,
            file=_read_task(settings, backend, given, by_argument, elsewhere=orders.elsewhere),
            options=given,
            accept_host_keys=accept_host_keys,
            here_only={**local_checks.options, "--accept-host-key": accept_host_keys},
        )
        ctx.exit(carry_out_checked(orders, orders.plan(order), mode, local_checks))


def _place(argument: str, infra: str | None, accelerators: str | None) -> tuple[str | None, str | None]:
    """Return place and accelerator: the first argument is either of them."""
    from orchestrator.task.errors import InvalidValueError
    from orchestrator.task.infra import parse_infra

    if argument == "auto" and accelerators is None:
        return infra, argument
    try:
        parse_infra(argument)
    except InvalidValueError as error:
        if not _is_rented(argument):
            raise UserError(error.what, error.why, f"{error.next_step}; or an accelerator such as v5e-16") from error
        if accelerators is not None and accelerators != argument:
            what = f"two accelerators: {argument} and --accelerators {accelerators}"
            raise UserError(what, next_step="name one") from None
        return infra, argument
    if infra is not None and infra != argument:
        raise UserError(f"two places to train: {argument} and --infra {infra}", next_step="name one")
    return argument, accelerators


def _is_rented(word: str) -> bool:
    """Return whether the word names an accelerator.

    Raises:
        UserError: The accelerator does not exist in this size.
    """
    from orchestrator.catalog.accelerators import is_rented

    return is_rented(word)


def _read_task(
    settings: tuple[str, ...],
    backend: str | None,
    given: dict[str, Any],
    by_argument: str,
    *,
    elsewhere: bool,
) -> TaskFile:
    from orchestrator.setup_guide.clouds import choose_machines_elsewhere, choose_machines_here
    from orchestrator.task.config import load_config
    from orchestrator.task.parse import parse_task

    pairs = dict(map(_setting, settings))
    tokens = pairs.pop("tokens", None) if given["accelerators"] == "auto" else None
    flags = make_overrides(
        given, backend=backend, train_args=tuple(pairs.items()), tokens=tokens, by_argument=by_argument
    )
    config = load_config(os.environ)
    return parse_task(
        _TASK,
        file="orch train",
        env=os.environ,
        flags=flags,
        config=config.without_clouds() if elsewhere else config,
        secrets_elsewhere=elsewhere,
        choose_machines=choose_machines_elsewhere if elsewhere else choose_machines_here,
    )


def _setting(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals or not key:
        raise UserError(
            f"'{word}' is not a setting", "settings of the trainer are written key=value", "orch train --help"
        )
    return key, value
