"""What the folder of a person's own program holds: how its packages are installed, and task files of others."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_MOST_ENTRIES, _MOST_BYTES = 1000, 65_536
_PROGRAMS = ("train.py", "main.py", "run.py")
_PIP = "python3 -m pip install --quiet"
_INSTALLERS = (
    ("uv.lock", f"{_PIP} uv && python3 -m uv sync --frozen", "python3 -m uv run "),
    ("requirements.txt", f"{_PIP} -r requirements.txt", ""),
    ("pyproject.toml", f"{_PIP} .", ""),
)
_TASK_KEYS = re.compile(r"^(resources|run|setup|workdir|num_nodes|file_mounts|envs):", re.MULTILINE)
_OF_A_TASK = ("resources", "run")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramFolder:
    """A folder.

    Attributes:
        path: As `workdir` names it.
        program: The command that starts what is probably the program; "" where none is seen.
        setup: The commands that install its packages; "" for none.
        installed_by: The file that says so.
        tasks: Task files in it.
        holds_files: Whether anything is there to send.
    """

    path: str = "."
    program: str = ""
    setup: str = ""
    installed_by: str = ""
    tasks: tuple[str, ...] = ()
    holds_files: bool = False


def inspect_folder(folder: Path, path: str = ".") -> ProgramFolder:
    """Return what a folder holds; an unreadable one holds nothing.

    Args:
        folder: The folder.
        path: How a task file names it.
    """
    try:
        names = [entry.name for _, entry in zip(range(_MOST_ENTRIES), folder.iterdir(), strict=False)]
    except OSError:
        return ProgramFolder(path=path)
    file, setup, prefix = next((row for row in _INSTALLERS if row[0] in names), ("", "", ""))
    program = next((name for name in _PROGRAMS if name in names), "")
    return ProgramFolder(
        path=path,
        program=f"{prefix}{'python' if prefix else 'python3'} {program}" if program else "",
        setup=setup,
        installed_by=file,
        tasks=tuple(sorted(name for name in names if name.endswith((".yaml", ".yml")) and _is_task(folder / name)))[:3],
        holds_files=any(not name.startswith(".") for name in names),
    )


def _is_task(path: Path) -> bool:
    """Return whether a file has the keys of a task file at its left edge."""
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return False
    return set(_OF_A_TASK) <= set(_TASK_KEYS.findall(text))
