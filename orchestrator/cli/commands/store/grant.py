"""`orch store grant`: let a login of PostgreSQL use the team's store."""

from __future__ import annotations

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import write_stdout


@click.command(
    "grant",
    cls=OrchCommand,
    examples=[
        ("orch store grant ann --dry-run", "print the SQL; change nothing"),
        ("orch store grant ann", "the login ann may use the store from now on"),
        ("orch store grant ann --revoke", "and no longer"),
    ],
)
@click.argument("login")
@click.option("--revoke", is_flag=True, help="Take the rights back; the login itself stays.")
@click.option("--dry-run", is_flag=True, help="Print the SQL; change nothing.")
def grant(login: str, revoke: bool, dry_run: bool) -> None:
    """Give an existing LOGIN of PostgreSQL what a member of the team needs, and no more.

    A member reads everything and changes rows only by a function of the server, which records the event with the
    member's login as its actor. Only the login that made the store may grant. Repeat it after an upgrade of the tables.
    """
    from orchestrator.engine.services import real_services
    from orchestrator.engine.state.opening import open_store
    from orchestrator.paths import load_paths

    where = load_paths()
    with open_store(where, real_services(where), "store grant") as store:
        if dry_run:
            statements = store.list_member_statements(login, revoke=revoke)
            write_stdout("".join(f"{statement};\n" for statement in statements))
            return
        store.change_member(login, revoke=revoke)
    write_stdout(f"{login} {'may not use the store any more' if revoke else 'may use the store'}\n")
