"""A page of documentation as a list of what to do: files to write, commands to run, in the order of the page.

The convention, which is plain Markdown:
- a block marked `bash` holds commands, one on each line, or on several that end in a backslash;
- `# exit status N` behind a command is what it is to end with; without it, 0;
- a block marked `yaml` whose first line is `# NAME.yaml` is that file;
- all other blocks (`text`) are shown, not run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

_BLOCK = re.compile(r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)`(orch [^`]+)`(?!`)")
_STATUS = re.compile(r"\s+# exit status (\d+)$")
_NAME = re.compile(r"# (\S+\.yaml)")
KINDS = frozenset({"bash", "yaml", "text"})


@dataclass(frozen=True)
class File:
    name: str
    content: str
    line: int


@dataclass(frozen=True)
class Command:
    """text: as it stands on the page. line: where, from 1. status: what it is to end with."""

    text: str
    line: int
    status: int = 0


Item: TypeAlias = File | Command


def read_page(path: Path) -> tuple[Item, ...]:
    """Raises ValueError for a block that says neither what it is nor how to read it."""
    return tuple(_items(path.read_text(encoding="utf-8")))


def read_prose(path: Path) -> tuple[Command, ...]:
    """Return the commands of orch in the text around the blocks, once each, in their order."""
    page = path.read_text(encoding="utf-8")
    text = _BLOCK.sub(lambda block: "\n" * block[0].count("\n"), page)
    found: dict[str, Command] = {}
    for span in _SPAN.finditer(text):
        words = " ".join(span[1].split())
        found.setdefault(words, Command(words, text.count("\n", 0, span.start()) + 1))
    return tuple(found.values())


def to_try(command: Command) -> Command:
    """Return the command of a sentence as it can be tried.

    A mere name is asked for its help, a rental for its plan, and a setting goes to a separate file.
    """
    words = command.text.split()
    match words[1:]:
        case [_]:
            text = f"{command.text} --help"
        case ["launch" | "train" | "resume" | "acceptance", *_]:
            text = f"{command.text} --dry-run"
        case ["config", "set", *_]:
            text = f"HOME=$(mktemp -d) ORCH_HOME= {command.text}"
        case _:
            text = command.text
    return replace(command, text=text)


def _items(page: str) -> Iterator[Item]:
    for block in _BLOCK.finditer(page):
        kind, text, line = block["kind"], block["text"], page.count("\n", 0, block.start()) + 2
        if kind not in KINDS:
            raise ValueError(f"line {line}: a block is marked '{kind}', not one of {', '.join(sorted(KINDS))}")
        if kind == "yaml":
            yield _file(text, line)
        elif kind == "bash":
            yield from _commands(text, line)


def _file(text: str, line: int) -> File:
    named = _NAME.fullmatch(text.partition("\n")[0])
    if named is None:
        raise ValueError(f"line {line}: a yaml block begins with its name, such as # task.yaml")
    return File(named[1], text, line)


def _commands(text: str, line: int) -> Iterator[Command]:
    words = ""
    begin = line
    for number, part in enumerate(text.splitlines(), line):
        begin = begin if words else number
        words += part
        if words.endswith("\\"):
            words = words[:-1]
        elif words.strip() and not words.startswith("#"):
            status = _STATUS.search(words)
            yield Command(_STATUS.sub("", words), begin, int(status[1]) if status else 0)
            words = ""
        else:
            words = ""
