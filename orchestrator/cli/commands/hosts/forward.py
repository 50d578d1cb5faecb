"""`orch forward`: a port of a host, on this computer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.parameters.clusters import CLUSTER
from orchestrator.cli.parameters.shared import IDENTITY

if TYPE_CHECKING:
    from orchestrator.hosts import HostAddress

HIGHEST_PORT = 65535


class PortPair(click.ParamType["tuple[int, int]"]):
    """`8080`, or `8080:80` for port 8080 of this computer and port 80 of the host."""

    name = "port[:hostport]"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        local, colon, remote = str(value).partition(":")
        ports = [
            int(text) if text.isascii() and text.isdecimal() else 0 for text in (local, remote if colon else local)
        ]
        if not all(0 < port <= HIGHEST_PORT for port in ports):
            self.fail(f"'{value}' is not PORT or PORT:HOSTPORT with ports of 1 to {HIGHEST_PORT}", param, ctx)
        return ports[0], ports[1]


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch forward mine 6006", "TensorBoard on the head of 'mine', at http://127.0.0.1:6006"),
        ("orch forward mine 8080:80 --host 2", "port 80 of host 2, at port 8080 of this computer"),
    ],
)
@click.argument("cluster", type=CLUSTER)
@click.argument("port", metavar="PORT[:HOSTPORT]", type=PortPair())
@click.option("--host", "--worker", "rank", type=click.IntRange(min=0), default=0, help="Rank; default: the head.")
@IDENTITY
@click.pass_context
def forward(ctx: click.Context, cluster: str, port: tuple[int, int], rank: int, identity: str) -> None:
    """Forward PORT of this computer to a port of a host, through ssh, until Ctrl-C.

    Only programs on this computer reach it. A connection that drops is opened again.
    """
    from orchestrator.cli.execution.port_forward import Forward, forward_until_interrupted, refuse_taken_port

    host = f" --host {rank}" if rank else ""
    what = Forward(
        cluster=cluster,
        rank=rank,
        local=port[0],
        remote=port[1],
        again=f"orch forward {cluster} PORT:{port[1]}{host}",
        identity=identity,
    )

    def show(host: HostAddress) -> None:
        write_stderr(f"port {what.remote} of {host.label} of '{cluster}' is here until Ctrl-C:")
        write_stdout(f"http://127.0.0.1:{what.local}")
        sys.stdout.flush()

    refuse_taken_port(what)
    try:
        forward_until_interrupted(what, show)
    except KeyboardInterrupt:
        write_stderr(f"port {what.local} is closed")
        ctx.exit(130)
