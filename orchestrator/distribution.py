"""How people install orch. The distribution has another name than the command: `orch` on PyPI is another project."""

from __future__ import annotations

DISTRIBUTION = "orch-train"  # pyproject.toml says the same
_SOURCE: str = "."  # a clone: no project of that name is on PyPI (looked up 2026-11-26); DISTRIBUTION once there is


def install_command(extra: str = "", *options: str) -> str:
    """Return the pip command for orch with an extra of pyproject.toml, or with options such as `--upgrade`."""
    name = f"'{_SOURCE}[{extra}]'" if extra else _SOURCE
    place = "" if _SOURCE == DISTRIBUTION else "   in a clone of orch"
    return " ".join(("pip install", *options, name)) + place
