"""What orch itself installs on hosts, with exact versions and SHA-256 digests: data/installs.toml."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.catalog.tables import Row, read_rows


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

    @property
    def rows(self) -> tuple[tuple[str, str, str], ...]:
        """Machine, URL and digest of each file, for a template."""
        return tuple((file.machine, file.url, file.sha256) for file in self.files)


def host_tool(name: str) -> HostTool:
    """Return the pinned version of a tool, with one file for each machine."""
    rows = [row for row in read_rows("installs", "tool") if row.text("name") == name]
    files = tuple(ToolFile(row.text("machine"), row.text("url"), row.text("sha256")) for row in rows)
    return HostTool(name, rows[0].text("version"), files)


@dataclass(frozen=True, slots=True)
class PythonStack:
    """What pip installs on hosts for the bundled trainer with one framework.

    Attributes:
        framework: Requirements of the framework; () where the image has it.
        libraries: Requirements of the trainer.
        locked: All packages that these need, as lines of a requirements file with the digests of their wheels.
    """

    framework: tuple[str, ...]
    libraries: tuple[str, ...]
    locked: tuple[str, ...]


def python_stack(name: str) -> PythonStack:
    """Return a stack of data/installs.toml by its name."""
    stack = next(row for row in read_rows("installs", "stack") if row.text("name") == name)
    packages = (row for row in read_rows("installs", "package") if name in row.texts("stacks"))
    return PythonStack(stack.texts("framework"), stack.texts("libraries"), tuple(map(_requirement, packages)))


def _requirement(package: Row) -> str:
    """Return a package as pip reads it with --require-hashes."""
    marker = f" ; {package.text('marker')}" if package.text("marker") else ""
    digests = "".join(f" --hash=sha256:{digest}" for digest in package.texts("sha256"))
    return f"{package.text('name')}=={package.text('version')}{marker}{digests}"
