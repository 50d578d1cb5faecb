"""`orch token`: tokens with which members and their programs call the service."""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime
from typing import Any

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.tables import draw_table
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.lazy_group import LazyCommand, LazyGroup, Section
from orchestrator.client.choose import open_documents, open_team
from orchestrator.errors import UserError
from orchestrator.formatting import format_age, format_local_time, parse_duration

_HERE = "orchestrator.cli.commands.settings.token"
_DAY = 86_400.0
_MOST_SECONDS = 30 * _DAY  # of an invitation


@click.group(
    "token",
    cls=LazyGroup,
    invoke_without_command=True,
    sections=[
        Section(
            "Commands",
            (
                LazyCommand("create", f"{_HERE}:create_command", "Make a token, and print it once."),
                LazyCommand("invite", f"{_HERE}:invite_command", "Print a link that lets one person in."),
                LazyCommand(
                    "trust",
                    "orchestrator.cli.commands.settings.token_trust:trust_command",
                    "Let jobs of a CI in by its own tokens.",
                ),
                LazyCommand("revoke", f"{_HERE}:revoke_command", "Take back a token, rule, invitation or sign-in."),
            ),
        )
    ],
    examples=[
        ("orch token create ada-laptop --member ada --role member", "printed once"),
        ("orch token invite ada-laptop --member ada", "a link that ada opens in a browser"),
        ("orch token trust release --issuer github --claim repository=org/name --claim ref=refs/heads/main", "CI"),
        ("orch token", "everything that lets someone in, without its secrets"),
        ("orch token revoke ada-laptop", "its sessions and streams end, too"),
    ],
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def token(ctx: click.Context, output: str) -> None:
    """List what lets members into the service: tokens, invitations, sign-ins of an identity provider, rules for CI.

    Tokens that a rule has given are shown while they count.
    """
    if ctx.invoked_subcommand is not None:
        return
    with open_documents() as documents:
        found = documents.list_tokens()
        if output == "json":
            write_stdout(json.dumps(found, indent=2))
        elif found["tokens"]:
            write_stdout(*draw_table(_list_rows(found), sys.stdout))
        else:
            write_stderr("no tokens; orch token create NAME --member MEMBER makes one (docs/service.md)")


def _list_rows(found: dict[str, Any]) -> list[tuple[str, ...]]:
    now = _parse_utc(found["now"])
    rows: list[tuple[str, ...]] = [("NAME", "KIND", "MEMBER", "ROLE", "PROJECT", "STATE", "CREATED")]
    rows += [
        (one["name"], one["kind"], one["member"], one["role"] or "-", one["project"] or "all",
         _describe_state(one, now), format_age(_parse_utc(one["created"]), now))
        for one in found["tokens"]
    ]  # fmt: skip
    return rows


def _parse_utc(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _describe_state(one: dict[str, Any], now: float) -> str:
    if not one["counts"]:
        if one["revoked"] or one["used"]:
            return "revoked" if one["revoked"] else "used"
        return "expired" if one["expires"] and _parse_utc(one["expires"]) <= now else "ended with its parent"
    if one["expires"] is None:
        return "counts"
    days = (_parse_utc(one["expires"]) - now) / _DAY
    return f"expires in {days:.0f} days" if days >= 2 else "expires soon"


@click.command(
    "create",
    cls=OrchCommand,
    examples=[
        ("orch token create ada-laptop --member ada", "reads, and launches and ends clusters of ada"),
        ("orch token create wall --member team --role viewer --days 365", "for a screen on the wall"),
        ("orch token create ada-laptop --member ada > token", "for: orch login URL --token-stdin < token"),
    ],
)
@click.argument("name")
@click.option(
    "--member", default="", help="For whom it acts, as events and clusters name them; yourself, by a service."
)
@click.option("--role", type=click.Choice(["viewer", "member", "owner"]), default="member", show_default=True,
              help="viewer: reads; member: changes its own clusters; owner: changes all.")  # fmt: skip
@click.option("--project", default="", help="The only project that it sees and changes; without it, every project.")
@click.option("--days", type=click.IntRange(1, 366), default=90, show_default=True, help="Until it expires.")
def create_command(name: str, member: str, role: str, project: str, days: int) -> None:
    """Make a token and print it, once: only its digest is kept.

    Who has it acts as its member. Roles are promised only to members that cannot open the store themselves.
    """
    from orchestrator.store.token_records import check_entry_names, digest_token, make_token

    check_entry_names(name, member or "yourself", project)
    secret = make_token()
    with open_team() as team:
        made = team.create_token(digest_token(secret), name, member=member, role=role, project=project, days=days)
        member, own = made["member"], team.is_me(made["member"])
    is_shorter = _parse_utc(made["expires"]) < time.time() + days * _DAY - 60
    write_stdout(secret)
    duration = "as long as the token that makes it" if is_shorter else f"for {days} days"
    write_stderr(
        f"the token of {member} ({role}) {duration}; it is not shown again",
        *(["  it ends with the token that this computer has, if that ends before"] if own else []),
        "  with it: orch login URL   on the member's computer",
    )


@click.command(
    "invite",
    cls=OrchCommand,
    examples=[
        ("orch token invite ada-laptop --member ada", "prints a link to send to ada"),
        ("orch token invite ada-laptop --member ada --role owner --expires 1d", "the link counts for a day"),
        ("orch token invite ada-laptop --member ada --url https://orch.example.org", "the service is elsewhere"),
        ("orch token revoke ada-laptop", "takes the invitation back, or the token that it became"),
    ],
)
@click.argument("name")
@click.option("--member", required=True, help="Who is invited, as events and owners of clusters name them.")
@click.option("--role", type=click.Choice(["viewer", "member", "owner"]), default="member", show_default=True,
              help="viewer: reads; member: changes its own clusters; owner: changes all.")  # fmt: skip
@click.option("--project", default="", help="The only project that they see and change; without it, every project.")
@click.option("--expires", default="7d", show_default=True, help="How long the link counts, such as 24h; at most 30d.")
@click.option("--days", type=click.IntRange(1, 366), default=90, show_default=True, help="Until the token expires.")
@click.option("--url", default="", help="Address of the service; without it, that of the service on this computer.")
def invite_command(name: str, member: str, role: str, project: str, expires: str, days: int, url: str) -> None:
    """Invite a person by a link that works once: whoever opens it first enters as its member.

    Send it by a way that only they read. It opens a page with one button, then a session, and shows a token for
    `orch login`. No identity provider is needed.
    """
    import secrets

    from orchestrator.store.token_records import check_entry_names, digest_token

    check_entry_names(name, member, project)
    seconds, secret = _parse_life(expires), secrets.token_urlsafe(32)
    with open_team() as team:
        address = url.rstrip("/") or team.address or _find_url()
        team.create_invitation(
            digest_token(secret), name, member, role=role, project=project, days=days, seconds=seconds
        )
    write_stdout(f"{address}/join#{secret}")
    write_stderr(
        f"whoever opens this link first, until {format_local_time(time.time() + seconds)}, enters as {member} ({role})",
        f"  take it back: orch token revoke {name}",
    )


def _parse_life(text: str) -> int:
    try:
        seconds = parse_duration(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds <= _MOST_SECONDS:
        raise UserError(f"`--expires {text[:20]}` is not taken", "a link counts for at most 30 days", "--expires 7d")
    return seconds


def _find_url() -> str:
    from orchestrator.paths import load_paths
    from orchestrator.service.address import find_service_url

    return find_service_url(load_paths())


@click.command(
    "revoke",
    cls=OrchCommand,
    examples=[
        ("orch token revoke ada-laptop", "a token, a rule, an invitation or a sign-in, at the next request"),
        ("orch token revoke --member ada", "everything with which ada enters"),
    ],
)
@click.argument("name", required=False)
@click.option("--member", default="", help="Take back all tokens, rules, invitations and sign-ins of a member.")
def revoke_command(name: str | None, member: str) -> None:
    """Take back what lets someone in. What it let in ends with it: sessions, and tokens of computers and of CI.

    What was launched continues.
    """
    if (name is None) == (not member):
        raise UserError("a name is needed, or a member", "", "orch token revoke NAME   or: --member MEMBER")
    with open_team() as team:
        taken = team.revoke_tokens(name=name or "", member=member)["tokens"]
    what = " and ".join(map(_describe_entry, taken))
    write_stderr(f"{what} is revoked" if name else f"nothing lets {member} in any more ({len(taken)} revoked)")


def _describe_entry(one: dict[str, Any]) -> str:
    """Return what an entry is."""
    known = f"{one['kind']} '{one['name']}'" if one["kind"] != "sign-in" else "the sign-in"
    return f"{known} of {one['member']}"
