"""How people install orch. The distribution has another name than the command: `orch` on PyPI is another project."""

from __future__ import annotations

DISTRIBUTION = "orch-train"  # no project of this name is on PyPI (looked up 2026-11-26); pyproject.toml says the same


def install_command(extra: str = "", *options: str) -> str:
    """Return the pip command for orch with an extra of pyproject.toml, or with options such as `--upgrade`."""
    name = f"'{DISTRIBUTION}[{extra}]'" if extra else DISTRIBUTION
    return " ".join(("pip install", *options, name))
