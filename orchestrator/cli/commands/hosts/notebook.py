"""`orch notebook`: Jupyter on a host, in the browser of this computer."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.parameters.clusters import CLUSTER
from orchestrator.service_address import find_server

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

    The notebook is a command of the cluster: it stays after Ctrl-C, and `orch cancel` ends it. Through a service no job
    is recorded, so a notebook that is started ends with this command. The URL has its token.
    """
    from orchestrator.cli.execution.end_signals import interrupt_on_end_signals
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
    found, end = None, ""
    try:
        with interrupt_on_end_signals(), _open(cluster, rank) as (found, end):
            # After the start: the server on a local host takes a port of this computer.
            here = port or find_free_port(FIRST_PORT)
            what = Forward(cluster=cluster, rank=rank, local=here, remote=found.port, again=again)
            shown = found
            forward_until_interrupted(what, lambda host: _show(cluster, host.label, here, shown, end))
    except KeyboardInterrupt:
        if found is not None:
            left = f"the notebook continues; come back: orch notebook {cluster}{host}   end it: {end}"
            write_stderr(left if end else "the notebook has ended")
        ctx.exit(130)


@contextmanager
def _open(cluster: str, rank: int) -> Generator[tuple[Notebook, str]]:
    """Give the notebook and the command that ends it; "" for one that ends with the block."""
    from orchestrator.cli.drawing.narrator import TerminalNarrator
    from orchestrator.cli.execution.host_ssh import prepare_ssh
    from orchestrator.client.host_records import host_record_source
    from orchestrator.engine.operations.notebook import hold_notebook, open_notebook

    address, _ = prepare_ssh(cluster, rank)
    if not find_server(os.environ):
        with TerminalNarrator(sys.stderr) as narrator:
            found = open_notebook(cluster, rank, narrator)
        yield found, _name_end(cluster, rank, found)
        return
    with (
        host_record_source(cluster) as open_records,
        TerminalNarrator(sys.stderr) as narrator,
        hold_notebook(cluster, address, open_records, narrator) as found,
    ):
        yield found, "" if found.started else _name_end(cluster, rank, found)


def _show(cluster: str, label: str, port: int, found: Notebook, end: str) -> None:
    state = "was started" if found.started else "runs"
    after = f"Ctrl-C leaves it there   end it: {end}" if end else "Ctrl-C ends it"
    write_stderr(f"the notebook {state} on {label} of '{cluster}'; {after}")
    write_stdout(f"http://127.0.0.1:{port}/?token={found.token}")
    sys.stdout.flush()


def _name_end(cluster: str, rank: int, found: Notebook) -> str:
    if found.job is not None:
        return f"orch cancel {cluster} {found.job}"
    return f"orch exec {cluster} --host {rank} -- kill {found.process or 'PID'}"
