"""Commands that install orch from a checkout. The distribution has another name than the command."""

from __future__ import annotations

# pyproject.toml says the same. No project of that name is on the package index, and `orch` there is another project
# (looked up 2026-11-26): an install by name would run what someone else puts there.
DISTRIBUTION = "orch-train"
_WHERE = "   in a clone of orch"


def install_command(extra: str = "", *options: str) -> str:
    """Return the pip command for a checkout with an extra of pyproject.toml, or with options such as `--upgrade`."""
    place = f"'.[{extra}]'" if extra else "."
    return " ".join(("pip install", *options, place)) + _WHERE
