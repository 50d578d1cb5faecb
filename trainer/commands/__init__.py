"""The commands of `python -m trainer NAME ...`, each in its own module, which is loaded when the command is called.

A module has SUMMARY, one line, and run(words), which returns an exit status. It may have HELP, its own help text.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, cast

from trainer.errors import ConfigError

COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "train": "train",
        "devices": "devices",
        "check": "check",
        "smoke": "smoke",
        "network": "network",
        "prepare": "prepare",
        "eval": "evaluate",
        "export": "export",
        "import": "import_",
        "advise": "advise",
        "compile": "compile",
        "rehearse-world": "rehearse_world",
        "keys": "keys",
    }
)
"""Name -> module in this folder. `train` is what is meant when no name is given."""


class Command(Protocol):
    """The module of one command."""

    SUMMARY: str

    def run(self, words: Sequence[str]) -> int: ...


def split_command(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the command's name and its words.

    Raises:
        ConfigError: There is no such command.
    """
    if not words or "=" in words[0] or words[0].startswith("-"):
        return "train", words
    name = words[0]
    if name not in COMMANDS:
        from trainer.options import ALIASES, list_keys

        near = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(COMMANDS)}"
        if name in (*ALIASES, "model", *(key.name for key in list_keys())):
            hint = f"write {name}=VALUE"
        raise ConfigError(f"{name!r} is neither a command nor key=value; {hint}")
    return name, words[1:]


def read_summary(name: str) -> str:
    """Return the SUMMARY of a command from the module's text: listing all commands must not load their libraries."""
    text = (Path(__file__).parent / f"{COMMANDS[name]}.py").read_text(encoding="utf-8")
    for statement in ast.parse(text).body:
        target, value = getattr(statement, "targets", None), getattr(statement, "value", None)
        if target and isinstance(target[0], ast.Name) and target[0].id == "SUMMARY" and isinstance(value, ast.Constant):
            return str(value.value)
    raise LookupError(f"trainer/commands/{COMMANDS[name]}.py has no SUMMARY")


def load_command(name: str) -> Command:
    """Load the module of a command of COMMANDS."""
    return cast("Command", import_module(f"trainer.commands.{COMMANDS[name]}"))
