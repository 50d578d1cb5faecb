"""The shell scripts that run on a host: static files of templates/remote, sent as one argument of `sh -c`.

A line `. ./NAME` of a script is replaced by the text of that file.
"""

from __future__ import annotations

import functools
import shlex
from pathlib import Path

from orchestrator.distribution import install_command
from orchestrator.errors import OrchError

_PACKAGE = Path(__file__).resolve().parent.parent
_INCLUDE = ". ./"


def shell_command(script: str, *arguments: str) -> str:
    """Return the command line that runs templates/remote/`script`, whatever the login shell is."""
    return shlex.join(["exec", "/bin/sh", "-c", shell_source(script), "orch", *arguments])


@functools.cache
def shell_source(name: str) -> str:
    """Return the text of templates/remote/`name` with what it includes, without comment lines."""
    for folder in (_PACKAGE / "_templates", _PACKAGE.parent / "templates"):  # a wheel, a checkout
        path = folder / "remote" / name
        if path.is_file():
            lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
            kept = [line for line in lines if line and not line.startswith("#")]
            return "\n".join(
                shell_source(line.removeprefix(_INCLUDE)) if line.startswith(_INCLUDE) else line for line in kept
            )
    raise OrchError(
        f"the script {name} is missing from this installation", next_step=install_command("", "--force-reinstall")
    )
