"""Whose clusters a listing shows: those of the current project, or of all; of one member, or of all."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:  # the help of a command needs it not
    from orchestrator.documents.queries import Scope

_Command = TypeVar("_Command", bound=Callable[..., Any])


def scope_options(*flags: str) -> Callable[[_Command], _Command]:
    """Add the options of a listing, as parameters `all_projects` and `owner`.

    Args:
        flags: Names of the option that shows all projects.
    """

    def add(command: _Command) -> _Command:
        whose = click.option("--owner", metavar="NAME", default="", help="Only those of one member; `me` is you.")
        every = click.option(*flags, "all_projects", is_flag=True, help="Those of all projects, not only of this one.")
        return every(whose(command))

    return add


def make_scope(owner: str, *, all_projects: bool) -> Scope:
    """Return the scope of a listing by its options."""
    from orchestrator.documents.queries import Scope

    return Scope(project="" if all_projects else None, owner=owner)
