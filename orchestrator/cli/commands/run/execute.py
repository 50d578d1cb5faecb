"""`orch exec`: run one command on the hosts of a cluster."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import write_stderr
from orchestrator.cli.execution.act import ActMode, carry_out_order
from orchestrator.cli.parameters.clusters import CLUSTER
from orchestrator.cli.parameters.shared import (
    ACCEPT_HOST_KEY,
    FORCE,
    HOSTS,
    IDENTITY,
    action_options,
    choose_hosts,
    split_pairs,
)
from orchestrator.cli.parameters.task_argument import join_command, names_task_file
from orchestrator.client.choose import open_orders
from orchestrator.client.orders import HostCommand, Order
from orchestrator.errors import UserError
from orchestrator.messages import join_words

if TYPE_CHECKING:
    from orchestrator.values import Text

Pairs: TypeAlias = tuple[tuple[str, str | None], ...]


@click.command(
    "exec",
    cls=OrchCommand,
    examples=[
        ("orch exec mine -- nvidia-smi", "on all hosts; each line begins with its host"),
        ("orch exec mine --host 0,3-5 -- 'df -h / | tail -1'", "a single word is a line for the shell"),
        ("orch exec mine --head --workdir . -- python check.py", "send this folder first"),
        ("orch exec mine task.yaml", "`run` of a task file, with its envs, secrets and workdir"),
        ("orch exec mine --devices", "the accelerators of every host, in one table"),
    ],
)
@click.argument("cluster", type=CLUSTER)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--host", "--worker", "ranks", type=HOSTS, help="Ranks such as 0,3-5; default: all.")
@click.option("--head", is_flag=True, help="Only the head, host 0.")
@click.option(
    "--devices", is_flag=True, help="Print a table of the devices, found without opening them; takes no command."
)
@click.option(
    "--workdir", type=click.Path(path_type=Path), metavar="DIR", help="Send this folder first, and run in it."
)
@click.option(
    "--env", multiple=True, metavar="NAME[=VALUE]", help="Environment variable; NAME alone takes the shell's value."
)
@click.option("--secret", multiple=True, metavar="NAME[=VALUE]", help="Like --env, but never shown, stored or logged.")
@click.option("--env-file", multiple=True, metavar="FILE", help="A line NAME=VALUE for each --env; --env wins.")
@click.option("--secret-file", multiple=True, metavar="FILE", help="Like --env-file, for --secret.")
@FORCE
@ACCEPT_HOST_KEY
@IDENTITY
@action_options(detachable=True, shows_output=True, skips="")
@click.pass_context
def execute(
    ctx: click.Context,
    cluster: str,
    command: tuple[str, ...],
    ranks: tuple[int, ...] | None,
    head: bool,
    devices: bool,
    workdir: Path | None,
    env: tuple[str, ...],
    secret: tuple[str, ...],
    env_file: tuple[str, ...],
    secret_file: tuple[str, ...],
    force: bool,
    accept_host_keys: bool,
    identity: str,
    mode: ActMode,
) -> None:
    """Run one command on the hosts of CLUSTER. Nothing is provisioned or set up.

    The name of a task file stands for its `run`, with its envs, secrets and workdir; its other sections are not used.

    The exit status is 0 when it was 0 on every host, else that of the host that failed first.
    """
    from orchestrator.cli.parameters.variable_files import read_variable_files
    from orchestrator.engine.operations.devices import COMMAND

    plain = (*read_variable_files(env_file, os.environ), *split_pairs(env))
    hidden = (*read_variable_files(secret_file, os.environ), *split_pairs(secret))
    if devices and (command or workdir is not None):
        raise UserError("--devices takes no command and no --workdir", "", f"orch exec {cluster} --devices")
    if not devices and not command:
        raise UserError("no command is given", "", f"orch exec {cluster} -- COMMAND   or: --devices")
    if len(command) == 1 and names_task_file(command):
        line, workdir, given = _read_task(command[0], workdir, plain, hidden)
    else:
        line, given = join_command(command), _environment(plain, hidden)
    chosen = HostCommand(
        line=COMMAND if devices else line,
        hosts=choose_hosts(ranks, head),
        workdir=workdir,
        env=given,
        devices=devices,
        identity=identity,
    )
    order = Order(
        verb="exec",
        cluster=cluster,
        command=chosen,
        force=force,
        accept_host_keys=accept_host_keys,
        here_only={"--accept-host-key": accept_host_keys, "--identity": identity},
    )
    with open_orders() as orders:
        planned = orders.plan(order)
        if devices:
            from orchestrator.cli.commands.run.devices import show_devices

            ctx.exit(show_devices(orders, planned, mode))
        ctx.exit(carry_out_order(orders, planned, mode))


def _read_task(
    path: str, workdir: Path | None, plain: Pairs, hidden: Pairs
) -> tuple[str, Path | None, tuple[tuple[str, Text], ...]]:
    """Return `run`, the folder to send and the environment of a task file.

    Raises:
        UserError: It has no `run`, or gets its workdir from a repository.
    """
    from orchestrator.setup_guide.clouds import choose_machines_here
    from orchestrator.task.config import load_config
    from orchestrator.task.layers import Overrides
    from orchestrator.task.parse import load_task_file

    flags = Overrides(env=plain, secrets=hidden, workdir=None if workdir is None else str(workdir))
    config = load_config(os.environ)
    task = load_task_file(path, env=os.environ, flags=flags, config=config, choose_machines=choose_machines_here).only
    if not task.run:
        raise UserError(f"{path} has no `run`, which exec runs", "", f"orch launch {shlex.quote(path)}")
    if task.workdir is not None and not isinstance(task.workdir, str):
        step = "orch launch, which checks it out, or: --workdir DIR"
        raise UserError(f"the workdir of {path} is a repository", "exec sends folders only", step)
    unused = [name for name in ("setup", "file_mounts", "train") if getattr(task, name)]
    if unused:
        write_stderr(f"note: exec does not use {join_words([f'`{name}`' for name in unused])} of {path}")
    secrets = tuple((secret.name, secret.value) for secret in task.secrets)
    folder = Path(os.path.expanduser(task.workdir)) if task.workdir is not None else None  # noqa: PTH111  # `~` alone, as the shell does
    return task.run, folder, _environment(task.envs, secrets)


def _environment(plain: Pairs, hidden: Pairs) -> tuple[tuple[str, Text], ...]:
    from orchestrator.task.likely_secrets import hide_likely_secret
    from orchestrator.values import Secret, to_text

    shown = {name: hide_likely_secret(name, _value(name, value)) for name, value in plain}
    return tuple((shown | {name: to_text(Secret(name, _value(name, value))) for name, value in hidden}).items())


def _value(name: str, value: str | None) -> str:
    found = os.environ.get(name) if value is None else value
    if found is None:
        raise UserError(f"{name} has no value in this shell", next_step=f"export {name}, or write {name}=VALUE")
    return found
