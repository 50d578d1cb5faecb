"""The script that fetches a git workdir on a host."""

from __future__ import annotations

from orchestrator.errors import UserError
from orchestrator.render.templates import render_template


def render_git_checkout(url: str, ref: str, destination: str) -> str:
    """Return the script that checks out a git repository.

    Args:
        url: the repository.
        ref: branch, tag or commit; "" for the default branch.
        destination: folder below the home directory.

    Raises:
        UserError: git would read the url or the ref as an option.
    """
    for argument in (url, ref):
        if argument.startswith("-"):
            raise UserError(
                f"cannot fetch '{argument}'", "git would read it as an option", "write the complete address"
            )
    return render_template("mount/git.sh.j2", url=url, ref=ref, destination=destination)
