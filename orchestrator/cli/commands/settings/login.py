"""`orch login`: keep a token for a service, and open its page."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.errors import AccessError, UserError

if TYPE_CHECKING:
    from orchestrator.client.http import Client

_UNAUTHORIZED = 401


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch login https://orch.example.org", "asks for a token, which you make on the page of the service"),
        ("orch login https://orch.example.org --token-stdin < token", "reads it from a file or a pipe"),
        ("export ORCH_TOKEN=$(orch login https://orch.example.org --ci)", "in a job of CI, by its own token"),
        ("orch login", "another link to the page of the service that was logged in to last"),
    ],
)
@click.argument("url", required=False)
@click.option("--token-stdin", is_flag=True, help="Read the token from standard input.")
@click.option("--ci", "by_job", is_flag=True, help="Print a short token for this job of CI; nothing is kept.")
@click.option("--id-token-variable", default="ORCH_ID_TOKEN", show_default=True, metavar="NAME",
              help="With --ci: the variable with the token of the job.")  # fmt: skip
@click.option("--id-token-file", type=click.Path(path_type=Path), help="With --ci: a file with it.")
@click.option("--ca", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Certificate of the authority behind it, as PEM.")  # fmt: skip
def login(
    url: str | None, ca: Path | None, id_token_variable: str, id_token_file: Path | None, *,
    token_stdin: bool, by_job: bool,
) -> None:  # fmt: skip
    """Log in to a service of your team, and keep its token for this user alone.

    You make the token on the page of the service, where you are signed in, or by `orch token create`. A terminal asks
    for it without showing it.

    With --ci a job is let in by the token that its CI gives to it, where a rule is for it (`orch token trust`). Jobs of
    GitHub Actions need no login: with ORCH_SERVER each command takes its own token.
    """
    from orchestrator.client.http import Client
    from orchestrator.client.logins import keep_login

    if by_job:
        _print_token_of_job(url, str(ca.absolute()) if ca else "", id_token_variable, id_token_file)
        return
    if url is None:
        with Client.connect() as client:
            write_stdout(client.make_link())
        return
    authority = str(ca.absolute()) if ca else ""
    token = _read_token(url, token_stdin=token_stdin)
    with Client(url, token, ca=authority) as client:
        member = _show_member(client)
        keep_login(client.url, token, authority)
        write_stdout(client.make_link())
    write_stderr(f"you are {member['member']} ({member['role']}) at {client.url}; the link above opens the page once")


def _print_token_of_job(url: str | None, ca: str, variable: str, file: Path | None) -> None:
    from orchestrator.client.ci import read_id_token
    from orchestrator.client.http import Client
    from orchestrator.service_address import find_server

    address = url or find_server(os.environ)
    if not address:
        raise UserError("the address of the service is missing", "", "orch login https://orch.example.org --ci")
    with Client(address, "", ca=ca) as client:
        given = client.exchange_token(read_id_token(os.environ, client.url, variable, file))
    write_stdout(given["access_token"])
    scope = f" in the project {given['project']}" if given["project"] else ""
    write_stderr(
        f"you are {given['member']} ({given['role']}){scope} at {client.url} for {given['expires_in'] // 60} minutes",
        "  with ORCH_SERVER and this token in ORCH_TOKEN, commands work through the service",
    )


def _show_member(client: Client) -> dict[str, object]:
    """Return for whom the token acts. Raises AccessError for one that the service does not accept."""
    from orchestrator.client.transport import ServiceError

    try:
        return client.show_member()
    except ServiceError as error:
        if error.http_status != _UNAUTHORIZED:
            raise
        raise AccessError(
            f"{client.url} does not accept this token; nothing is kept",
            "it is mistyped, of another service, expired, or taken back",
            f"make one at {client.url}/token, or by: orch token create",
        ) from error


def _read_token(url: str, *, token_stdin: bool) -> str:
    if token_stdin:
        line = sys.stdin.readline(1000)
    elif sys.stdin.isatty():
        write_stderr(f"make a token at {url.rstrip('/')}/token, and paste it here")
        line = click.prompt("token", hide_input=True, err=True)
    else:
        why, step = "there is no terminal to ask on", f"orch login {url} --token-stdin < FILE"
        raise UserError("the token is missing", why, step)
    if not (token := str(line).strip()) or not token.isascii():
        raise UserError("no token is given", "", f"orch login {url} --token-stdin < FILE")
    return token
