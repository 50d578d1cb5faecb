"""`orch login`: keep a token for a service, and open its page."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.errors import UserError


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch login https://orch.example.org < token", "keep the token, and print a link to the page"),
        ("orch login https://orch.example.org", "asks for the token, without showing it"),
        ("orch login", "another link to the page of the service that was logged in to last"),
    ],
)
@click.argument("url", required=False)
@click.option("--ca", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Certificate of the authority behind it, as PEM.")  # fmt: skip
def login(url: str | None, ca: Path | None) -> None:
    """Keep a token for a service of your team, and print a link that opens its page once.

    The token comes from `orch token create` on the service's computer. It is kept in the state folder, readable by you
    alone, for `orchestrator.Client`.
    """
    from orchestrator.client import Client, keep_login

    if url is None:
        with Client.connect() as client:
            write_stdout(client.make_link())
        return
    token = _read_token()
    with Client(url, token, ca=str(ca.absolute()) if ca else "") as client:
        member = client.show_member()
        keep_login(client.url, token, str(ca.absolute()) if ca else "")
        write_stdout(client.make_link())
    write_stderr(f"you are {member['member']} ({member['role']}) at {client.url}; the link above opens the page once")


def _read_token() -> str:
    line = click.prompt("token", hide_input=True, err=True) if sys.stdin.isatty() else sys.stdin.readline(1000)
    if not (token := str(line).strip()) or not token.isascii():
        raise UserError("no token is given", "it comes by standard input", "orch login URL < FILE")
    return token
