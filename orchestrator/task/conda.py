"""Find out whether a script needs conda on the host, or brings it along."""

from __future__ import annotations

import re

# `conda` and a subcommand where a command begins; not in a path, a comment or an argument.
_COMMAND = re.compile(
    r"(?:^|[;&|(`]|\$\()[ \t]*(?:(?:if|then|else|do|while|!|sudo|time|eval)[ \t]+)*"
    r"(?:\"?\$\()?(?:conda|mamba)[ \t]+"
    r"(?:activate|create|install|env|run|init|info|update|config|shell\.bash|list)\b",
    re.MULTILINE,
)
_INSTALL = re.compile(r"mini(?:conda|forge|mamba)|anaconda|mambaforge|micromamba|conda/etc/profile\.d", re.IGNORECASE)


def find_conda_command(script: str) -> str:
    """Return the first command of conda in a script, "" for none."""
    found = _COMMAND.search(script)
    return found[0].strip(" \t;&|(`$") if found else ""


def find_conda_install(script: str) -> str:
    """Return the name of the distribution of conda that a script installs or expects, "" for none."""
    found = _INSTALL.search(script)
    return found[0] if found else ""
