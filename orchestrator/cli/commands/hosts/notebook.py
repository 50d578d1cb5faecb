"""`orch notebook`: Jupyter on a host, in the browser of this computer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.parameters.clusters import CLUSTER

if TYPE_CHECKING:
    from orchestrator.engine.operations.notebook import Notebook

FIRST_PORT = 8888


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch notebook mine", "JupyterLab on the head of 'mine', in the work folder"),
        ("orch notebook mine --host 2 --port 9000", "on host 2, at port 9000 of this computer"),
    ],
)
@click.argument("cluster", type=CLUSTER)
@click.option("--host", "--worker", "rank", type=click.IntRange(min=0), default=0, help="Rank; default: the head.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help=f"Port of this computer; default: the first free one from {FIRST_PORT} on.",
)
@click.pass_context
def notebook(ctx: click.Context, cluster: str, rank: int, port: int | None) -> None:
    """Open Jupyter on a host of CLUSTER, started there where it does not run, and forward its port until Ctrl-C.

    The notebook is a command of the cluster: it stays after Ctrl-C, and `orch cancel` ends it. The URL has its token.
    """
    from orchestrator.cli.execution.host_ssh import prepare_ssh
    from orchestrator.cli.execution.port_forward import (
        Forward,
        find_free_port,
        forward_until_interrupted,
        refuse_taken_port,
    )

    host = f" --host {rank}" if rank else ""
    again = f"orch notebook {cluster}{host} --port PORT"
    if port is not None:
        refuse_taken_port(Forward(cluster=cluster, rank=rank, local=port, remote=port, again=again))
    prepare_ssh(cluster, rank)
    found = _open(cluster, rank)
    here = port or find_free_port(
        FIRST_PORT
    )  # after the start: the server on a local host takes a port of this computer
    what = Forward(cluster=cluster, rank=rank, local=here, remote=found.port, again=again)
    try:
        forward_until_interrupted(what, lambda host: _show(cluster, host.label, here, found))
    except KeyboardInterrupt:
        write_stderr(
            f"the notebook continues; come back: orch notebook {cluster}{host}   {_describe_end(cluster, found)}"
        )
        ctx.exit(130)


def _open(cluster: str, rank: int) -> Notebook:
    from orchestrator.cli.drawing.narrator import TerminalNarrator
    from orchestrator.engine.operations.notebook import open_notebook

    with TerminalNarrator(sys.stderr) as narrator:
        return open_notebook(cluster, rank, narrator)


def _show(cluster: str, label: str, port: int, found: Notebook) -> None:
    state = "was started" if found.started else "runs"
    write_stderr(
        f"the notebook {state} on {label} of '{cluster}'; Ctrl-C leaves it there   {_describe_end(cluster, found)}"
    )
    write_stdout(f"http://127.0.0.1:{port}/?token={found.token}")
    sys.stdout.flush()


def _describe_end(cluster: str, found: Notebook) -> str:
    return f"end it: orch cancel {cluster} {found.job}" if found.job is not None else f"its job: orch queue {cluster}"
