"""`orch schema`: the JSON Schemas of what commands print with -o json, and of task files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import write_stdout
from orchestrator.errors import NotFoundError

_PACKAGE = Path(__file__).parents[3]
_SUFFIX = ".schema.json"


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch schema", "the names of all schemas"),
        ("orch schema status", "what `orch status -o json` prints"),
        ("orch schema error", "what every command with -o json prints when it fails"),
        ("orch schema task > task.schema.json", "task files, for an editor"),
    ],
)
@click.argument("name", required=False)
def schema(name: str | None) -> None:
    """Print the JSON Schema called NAME, or the names of all schemas."""
    files = schema_files()
    if name is None:
        write_stdout(*files)
        return
    if name not in files:
        raise NotFoundError(f"there is no schema '{name}'", _suggest(name, files), "orch schema   (lists them)")
    write_stdout(files[name].read_text(encoding="utf-8").rstrip("\n"))


def schema_files() -> Mapping[str, Path]:
    """Return the files of all schemas by their names, in alphabetical order."""
    folders = [_PACKAGE / part / "data" for part in ("cli", "notifications", "plan", "documents", "task")]
    files = [file for folder in folders for file in folder.glob(f"*{_SUFFIX}")]
    return {file.name.removesuffix(_SUFFIX): file for file in sorted(files, key=lambda file: file.name)}


def _suggest(name: str, known: Mapping[str, Path]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else ""
