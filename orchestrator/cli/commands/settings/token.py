"""`orch token`: tokens with which members and their programs call the service."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.tables import draw_table
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.lazy_group import LazyCommand, LazyGroup, Section
from orchestrator.cli.parameters.clusters import open_store_reader
from orchestrator.errors import UserError
from orchestrator.formatting import format_age, format_utc

if TYPE_CHECKING:
    from orchestrator.store.token_records import TokenRecord

_HERE = "orchestrator.cli.commands.settings.token"
_DAY = 86_400.0


@click.group(
    "token",
    cls=LazyGroup,
    invoke_without_command=True,
    sections=[
        Section(
            "Commands",
            (
                LazyCommand("create", f"{_HERE}:create_command", "Make a token, and print it once."),
                LazyCommand("revoke", f"{_HERE}:revoke_command", "Take a token back; its sessions end."),
            ),
        )
    ],
    examples=[
        ("orch token create ada-laptop --member ada --role member", "printed once"),
        ("orch token", "all tokens, without their secrets"),
        ("orch token revoke ada-laptop", "its sessions and streams end, too"),
    ],
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def token(ctx: click.Context, output: str) -> None:
    """List the tokens of members, with which they call the service and open its page."""
    if ctx.invoked_subcommand is not None:
        return
    with open_store_reader() as store:
        found = store.tokens()
    now = time.time()
    if output == "json":
        shown = [_token_json(one, now) for one in found]
        write_stdout(json.dumps({"version": 1, "kind": "tokens", "tokens": shown}, indent=2))
        return
    if not found:
        write_stderr("no tokens; orch token create NAME --member MEMBER makes one (docs/service.md)")
        return
    rows: list[tuple[str, ...]] = [("NAME", "MEMBER", "ROLE", "STATE", "CREATED")]
    rows += [(one.name, one.member, one.role, _describe(one, now), format_age(one.created, now)) for one in found]
    write_stdout(*draw_table(rows, sys.stdout))


def _describe(one: TokenRecord, now: float) -> str:
    if one.revoked is not None:
        return "revoked"
    days = (one.expires - now) / _DAY
    return "expired" if days <= 0 else f"expires in {days:.0f} days" if days >= 2 else "expires soon"


def _token_json(one: TokenRecord, now: float) -> dict[str, object]:
    return {
        "name": one.name,
        "member": one.member,
        "role": one.role,
        "created": format_utc(one.created),
        "expires": format_utc(one.expires),
        "revoked": None if one.revoked is None else format_utc(one.revoked),
        "counts": one.counts_at(now),
    }


@click.command(
    "create",
    cls=OrchCommand,
    examples=[
        ("orch token create ada-laptop --member ada", "reads, and launches and ends clusters of ada"),
        ("orch token create wall --member team --role viewer --days 365", "for a screen on the wall"),
        ("orch token create ada-laptop --member ada > token && orch login https://orch.example.org < token", ""),
    ],
)
@click.argument("name")
@click.option("--member", required=True, help="For whom it acts, as events and owners of clusters name them.")
@click.option("--role", type=click.Choice(["viewer", "member", "owner"]), default="member", show_default=True,
              help="viewer: reads; member: changes its own clusters; owner: changes all.")  # fmt: skip
@click.option("--days", type=click.IntRange(1, 366), default=90, show_default=True, help="Until it expires.")
def create_command(name: str, member: str, role: str, days: int) -> None:
    """Make a token and print it, once: only its digest is kept.

    Who has it acts as its member. Roles are promised only to members that cannot open the store themselves.
    """
    from orchestrator.engine.services import real_services
    from orchestrator.engine.state.opening import open_store
    from orchestrator.paths import load_paths
    from orchestrator.store.token_records import TokenRecord, digest_token, make_token

    for word, text in (("name", name), ("member", member)):
        if not text.strip() or len(text) > 60 or not text.isprintable():
            raise UserError(f"that {word} is not possible", "it has 1 to 60 characters", f"{word}: ada-laptop")
    secret, now = make_token(), time.time()
    where = load_paths()
    with open_store(where, real_services(where), "orch token create") as store:
        store.add_token(
            TokenRecord(
                digest=digest_token(secret),
                name=name,
                member=member,
                role=role,
                created=now,
                expires=now + days * _DAY,
            )
        )
    write_stdout(secret)
    write_stderr(
        f"the token of {member} ({role}) for {days} days; it is not shown again",
        "  with it: orch login URL   on the member's computer",
    )


@click.command("revoke", cls=OrchCommand, examples=[("orch token revoke ada-laptop", "at the next request")])
@click.argument("name")
def revoke_command(name: str) -> None:
    """Take a token back. Sessions that it opened end with it; what its member launched continues."""
    from orchestrator.engine.services import real_services
    from orchestrator.engine.state.opening import open_store
    from orchestrator.paths import load_paths

    where = load_paths()
    with open_store(where, real_services(where), "orch token revoke") as store:
        revoked = store.revoke_token(name)
    write_stderr(f"token '{name}' of {revoked.member} is revoked")
