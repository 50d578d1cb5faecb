"""The script with which a host fetches a git workdir."""

from __future__ import annotations

from orchestrator.errors import UserError
from orchestrator.render.templates import fill


def render_git_checkout(url: str, ref: str, destination: str) -> str:
    """ref "": the default branch. destination: below the home. Raises UserError for words git would take as options."""
    for word in (url, ref):
        if word.startswith("-"):
            raise UserError(f"cannot fetch '{word}'", "git would take it as an option", "write the whole address")
    return fill("mount/git.sh.j2", url=url, ref=ref, destination=destination)
