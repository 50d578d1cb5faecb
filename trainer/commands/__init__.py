"""The commands of `python -m trainer NAME ...`, each in a module of its own that is loaded when it is called.

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
        "prepare": "prepare",
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
    SUMMARY: str

    def run(self, words: Sequence[str]) -> int: ...


def split(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The command's name, and its own words. Raises ConfigError for a name that is none."""
    if not words or "=" in words[0] or words[0].startswith("-"):
        return "train", words
    name = words[0]
    if name not in COMMANDS:
        from trainer.options import ALIASES, keys

        near = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(COMMANDS)}"
        if name in (*ALIASES, "model", *(key.name for key in keys())):
            hint = f"write {name}=VALUE"
        raise ConfigError(f"{name!r} is neither a command nor key=value; {hint}")
    return name, words[1:]


def summary(name: str) -> str:
    """The SUMMARY of a command, read from its text: listing all commands must not load what they work with."""
    text = (Path(__file__).parent / f"{COMMANDS[name]}.py").read_text(encoding="utf-8")
    for statement in ast.parse(text).body:
        target, value = getattr(statement, "targets", None), getattr(statement, "value", None)
        if target and isinstance(target[0], ast.Name) and target[0].id == "SUMMARY" and isinstance(value, ast.Constant):
            return str(value.value)
    raise LookupError(f"trainer/commands/{COMMANDS[name]}.py has no SUMMARY")


def load(name: str) -> Command:
    """name: of COMMANDS."""
    return cast("Command", import_module(f"trainer.commands.{COMMANDS[name]}"))
