"""`orch exec`: run one command on the hosts of a cluster."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.execution.act import ActMode, carry_out
from orchestrator.cli.parameters.clusters import CLUSTER
from orchestrator.cli.parameters.shared import (
    ACCEPT_HOST_KEY,
    HOSTS,
    IDENTITY,
    action_options,
    choose_hosts,
    split_pairs,
)
from orchestrator.errors import UserError

if TYPE_CHECKING:
    from orchestrator.values import Text


@click.command(
    "exec",
    cls=OrchCommand,
    examples=[
        ("orch exec mine -- nvidia-smi", "on all hosts; each line begins with its host"),
        ("orch exec mine --host 0,3-5 -- 'df -h / | tail -1'", "a single word is a line for the shell"),
        ("orch exec mine --head --workdir . -- python check.py", "send this folder first"),
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
    accept_host_keys: bool,
    identity: str,
    mode: ActMode,
) -> None:
    """Run one command on the hosts of CLUSTER. Nothing is provisioned or set up.

    The exit status is 0 when it was 0 on every host, else that of the host that failed first.
    """
    from dataclasses import replace

    from orchestrator.engine.preparation.commands import prepare_exec

    if devices:
        from orchestrator.cli.commands.run.devices import show_devices

        if command or workdir is not None:
            raise UserError("--devices takes no command and no --workdir", "", f"orch exec {cluster} --devices")
        chosen, given = choose_hosts(ranks, head), _environment(env, secret)
        ctx.exit(show_devices(cluster, chosen, mode, given, accept_host_keys=accept_host_keys))
    if not command:
        raise UserError("no command is given", "", f"orch exec {cluster} -- COMMAND   or: --devices")
    line = command[0] if len(command) == 1 else shlex.join(command)
    chosen = choose_hosts(ranks, head)
    ready = prepare_exec(cluster, line, hosts=chosen, workdir=workdir, env=_environment(env, secret))
    ctx.exit(carry_out(replace(ready, accept_host_keys=accept_host_keys, identity=identity), mode))


def _environment(env: tuple[str, ...], secret: tuple[str, ...]) -> tuple[tuple[str, Text], ...]:
    from orchestrator.task.likely_secrets import hide_likely_secret
    from orchestrator.values import Secret, to_text

    plain = [(name, hide_likely_secret(name, _value(name, value))) for name, value in split_pairs(env)]
    hidden = [(name, to_text(Secret(name, _value(name, value)))) for name, value in split_pairs(secret)]
    return (*plain, *hidden)


def _value(name: str, value: str | None) -> str:
    found = os.environ.get(name) if value is None else value
    if found is None:
        raise UserError(f"{name} has no value in this shell", next_step=f"export {name}, or write {name}=VALUE")
    return found
