"""The shell scripts that run on a host: static files of templates/remote, sent as one argument of `sh -c`.

A line `. ./NAME` of a script is replaced by the text of that file. Every script that a login shell starts begins with
host.sh.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterator
from pathlib import Path

from orchestrator.distribution import install_command
from orchestrator.errors import OrchError

_PACKAGE = Path(__file__).resolve().parent.parent
_INCLUDE = ". ./"


def shell_command(script: str, *arguments: str) -> str:
    """Return the command line that runs templates/remote/`script`, whatever the login shell is."""
    return shell_text_command(shell_source(script), *arguments)


def shell_text_command(text: str, *arguments: str) -> str:
    """Return the command line that runs `text` by `sh`, with ORCH_HOST_DIR set, whatever the login shell is."""
    return shlex.join(["exec", "/bin/sh", "-c", f"{shell_source('host.sh')}\n{text}", "orch", *arguments])


def _code_lines(text: str) -> Iterator[str]:
    """Yield the lines without comments and indentation, and those of the files that are included."""
    for line in text.splitlines():
        if line.startswith(_INCLUDE):
            yield shell_source(line.removeprefix(_INCLUDE))
        elif line.strip() and not line.lstrip().startswith("#"):
            yield line.strip()


@functools.cache
def shell_source(name: str) -> str:
    """Return the text of templates/remote/`name` with what it includes, without comment lines."""
    for folder in (_PACKAGE / "_templates", _PACKAGE.parent / "templates"):  # a wheel, a checkout
        path = folder / "remote" / name
        if path.is_file():
            return "\n".join(_code_lines(path.read_text("utf-8")))
    raise OrchError(
        f"the script {name} is missing from this installation", next_step=install_command("", "--force-reinstall")
    )
