"""Whether a filter names a member or project that is on record: an empty table would hide a name that is mistyped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.errors import UserError
from orchestrator.project import DEFAULT_PROJECT
from orchestrator.store.lookup import suggest_name

if TYPE_CHECKING:
    from orchestrator.store.read import Reader


def refuse_unknown_member(reader: Reader, member: str) -> None:
    """Raise UserError for a member of whom nothing is on record, unless it is who asks; "" is everyone."""
    if member in ("", reader.member):
        return
    known = reader.owner_names()
    if member not in known and not reader.has_acted(member):
        near = suggest_name(member, known) or f"members with clusters: {_list(known)}"
        raise UserError(f"nothing of a member '{member[:60]}' is on record", near, "leave the member out, or: me")


def refuse_unknown_project(reader: Reader, project: str, own: str) -> None:
    """Raise UserError for a project of which nothing is on record, unless it is that of who asks; "" is all."""
    if project in ("", DEFAULT_PROJECT, own):
        return
    known = tuple(one or DEFAULT_PROJECT for one in reader.project_names())
    if project not in known:
        near = suggest_name(project, known) or f"projects on record: {_list(known)}"
        raise UserError(f"nothing of a project '{project[:40]}' is on record", near, "leave the project out")


def _list(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return (", ".join(names[:10]) or "none") + more
