"""What orch itself installs on hosts, with exact versions and SHA-256 digests: data/installs.toml."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.catalog.tables import read_rows


@dataclass(frozen=True, slots=True)
class ToolFile:
    """The download of a tool for one machine.

    Attributes:
        machine: As `uname -m` names it.
        sha256: "" when not known.
    """

    machine: str
    url: str
    sha256: str


@dataclass(frozen=True, slots=True)
class HostTool:
    """A program that hosts download when their image does not have it."""

    name: str
    version: str
    files: tuple[ToolFile, ...]


def host_tool(name: str) -> HostTool:
    """Return the pinned version of a tool, with one file for each machine."""
    rows = [row for row in read_rows("installs", "tool") if row.text("name") == name]
    files = tuple(ToolFile(row.text("machine"), row.text("url"), row.text("sha256")) for row in rows)
    return HostTool(name, rows[0].text("version"), files)
