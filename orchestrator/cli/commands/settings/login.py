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
    from orchestrator.client import Client

_UNAUTHORIZED = 401


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch login https://orch.example.org", "shows a code; you let this computer in on the page of the service"),
        ("orch login https://orch.example.org < token", "with a token; prints a link to the page"),
        ("orch login https://orch.example.org --token", "asks for the token, without showing it"),
        ("export ORCH_TOKEN=$(orch login https://orch.example.org --ci)", "in a job of CI, by its own token"),
        ("orch login", "another link to the page of the service that was logged in to last"),
    ],
)
@click.argument("url", required=False)
@click.option("--token", "ask_token", is_flag=True, help="Ask for a token, also on a terminal.")
@click.option("--name", default="", help="How this computer calls itself, and its token; without it, its host name.")
@click.option("--ci", "by_job", is_flag=True, help="Print a short token for this job of CI; nothing is kept.")
@click.option("--id-token-variable", default="ORCH_ID_TOKEN", show_default=True, metavar="NAME",
              help="With --ci: the variable with the token of the job.")  # fmt: skip
@click.option("--id-token-file", type=click.Path(path_type=Path), help="With --ci: a file with it.")
@click.option("--ca", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Certificate of the authority behind it, as PEM.")  # fmt: skip
def login(
    url: str | None, ca: Path | None, name: str, id_token_variable: str, id_token_file: Path | None, *,
    ask_token: bool, by_job: bool,
) -> None:  # fmt: skip
    """Log in to a service of your team, and keep its token for this user alone.

    On a terminal you let this computer in on the page of the service, where you are signed in. Elsewhere a token comes
    by standard input, from `orch token create`.

    With --ci a job is let in by the token that its CI gives to it, where a rule is for it (`orch token trust`). Jobs of
    GitHub Actions need no login: with ORCH_SERVER each command takes its own token.
    """
    from orchestrator.client import Client
    from orchestrator.client_logins import keep_login

    if by_job:
        _print_token_of_job(url, str(ca.absolute()) if ca else "", id_token_variable, id_token_file)
        return
    if url is None:
        with Client.connect() as client:
            write_stdout(client.make_link())
        return
    authority = str(ca.absolute()) if ca else ""
    by_page = sys.stdin.isatty() and not ask_token
    if by_page:
        with Client(url, "", ca=authority) as client:
            token = _ask_a_person(client, name or os.uname().nodename)
    else:
        token = _read_token()
    with Client(url, token, ca=authority) as client:
        member = _show_member(client)
        keep_login(client.url, token, authority)
        if not by_page:
            write_stdout(client.make_link())
    about = "" if by_page else "; the link above opens the page once"
    write_stderr(f"you are {member['member']} ({member['role']}) at {client.url}{about}")


def _print_token_of_job(url: str | None, ca: str, variable: str, file: Path | None) -> None:
    from orchestrator.client import Client
    from orchestrator.client_ci import read_id_token
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
    from orchestrator.client_transport import ServiceError

    try:
        return client.show_member()
    except ServiceError as error:
        if error.http_status != _UNAUTHORIZED:
            raise
        raise AccessError(
            f"{client.url} does not accept this token; nothing is kept",
            "it is mistyped, of another service, expired, or taken back",
            f"orch login {client.url}   on a terminal, or: orch token create   on the service's computer",
        ) from error


def _ask_a_person(client: Client, name: str) -> str:
    """Return the token that a person gives to this computer on the page of the service."""
    from orchestrator.client_transport import ServiceError

    try:
        codes = client.request_device_code(name[:60])
    except ServiceError as error:
        if error.http_status not in (404, 405):
            raise
        raise UserError("this service is older, and needs a token", "", f"orch login {client.url} --token") from error
    write_stderr(
        f"open {codes['verification_uri_complete']}",
        f"and let this computer in, if the page shows the code {codes['user_code']}",
        f"waiting for {codes['expires_in'] // 60} minutes at most (Ctrl-C ends it) ...",
    )
    return client.wait_for_device_token(codes)


def _read_token() -> str:
    line = click.prompt("token", hide_input=True, err=True) if sys.stdin.isatty() else sys.stdin.readline(1000)
    if not (token := str(line).strip()) or not token.isascii():
        raise UserError("no token is given", "it comes by standard input", "orch login URL < FILE")
    return token
