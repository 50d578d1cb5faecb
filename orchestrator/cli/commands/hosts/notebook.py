"""`orch notebook`: Jupyter on a host, in the browser of this computer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.parameters.clusters import CLUSTER
from orchestrator.client.choose import open_orders
from orchestrator.client.orders import HostCommand, Order
from orchestrator.errors import SetupError

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
    found: Notebook | None = None
    try:
        with interrupt_on_end_signals():
            shown = found = _open(cluster, rank)
            # After the start: the server on a local host takes a port of this computer.
            here = port or find_free_port(FIRST_PORT)
            what = Forward(cluster=cluster, rank=rank, local=here, remote=found.port, again=again)
            forward_until_interrupted(what, lambda host: _show(cluster, host.label, here, shown))
    except KeyboardInterrupt:
        if found is not None:
            end = _name_end(cluster, found)
            write_stderr(f"the notebook continues; come back: orch notebook {cluster}{host}   end it: {end}")
        ctx.exit(130)


def _open(cluster: str, rank: int) -> Notebook:
    from orchestrator.cli.drawing.narrator import TerminalNarrator
    from orchestrator.cli.execution.host_ssh import prepare_ssh
    from orchestrator.client.host_records import open_host_records
    from orchestrator.engine.operations.notebook import COMMAND, open_notebook
    from orchestrator.store.lookup import find_cluster

    address, _ = prepare_ssh(cluster, rank)
    with open_host_records(cluster) as store:
        uid = find_cluster(store, cluster).uid
    order = Order(verb="exec", cluster=cluster, command=HostCommand(line=COMMAND, hosts=(rank,)))
    with open_orders() as orders, TerminalNarrator(sys.stderr) as narrator:

        def start() -> int:
            planned = orders.plan(order)
            if (refusal := planned.refusal) is not None:
                raise refusal
            ending = orders.carry_out(planned, narrator, follow=False)
            if ending.job_id is None:
                raise SetupError(f"the notebook on '{cluster}' was not started", "", f"orch queue {cluster} --all")
            return ending.job_id

        try:
            return open_notebook(cluster, uid, address, start, narrator)
        except SetupError:
            orders.record_ends(cluster, narrator)
            raise


def _show(cluster: str, label: str, port: int, found: Notebook) -> None:
    state = "was started" if found.started else "runs"
    end = _name_end(cluster, found)
    write_stderr(f"the notebook {state} on {label} of '{cluster}'; Ctrl-C leaves it there   end it: {end}")
    write_stdout(f"http://127.0.0.1:{port}/?token={found.token}")
    sys.stdout.flush()


def _name_end(cluster: str, found: Notebook) -> str:
    if found.job is not None:
        return f"orch cancel {cluster} {found.job}"
    return f"orch exec {cluster} -- kill {found.process or 'PID'}"
