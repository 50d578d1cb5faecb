"""`orch store`: the store itself."""

from __future__ import annotations

import click

from orchestrator.cli.lazy_group import LazyCommand, LazyGroup, Section

_HERE = "orchestrator.cli.commands.settings"


@click.group(
    "store",
    cls=LazyGroup,
    sections=[
        Section(
            "Commands",
            (LazyCommand("grant", f"{_HERE}.store_grant:grant", "Let a login of PostgreSQL use the store."),),
        )
    ],
    examples=[("orch store grant ann --dry-run", "the SQL that makes the login ann a member")],
)
def store() -> None:
    """Manage the store: a file of this user, or a PostgreSQL database of a team."""
