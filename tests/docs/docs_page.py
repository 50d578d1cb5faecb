"""A page of documentation as a list of what to do: files to write, commands to run, in the order of the page.

The convention, which is plain Markdown: every block is fenced, and its first line says what it holds and how that is
tested (`HOW`). A block of `bash` holds commands, one on each line, or on several that end in a backslash;
`# exit status N` behind a command is what it is to end with, without it 0. The first line `# NAME` of a block is the
name of its file.

- `bash run`: typed on this computer. `bash gcp`, `bash aws`: typed in the simulated cloud.
- `bash plan`: what would rent is planned, the rest is parsed. `bash parse`: parsed.
- `yaml plan`, `gcp`, `aws`: a task file, which has a plan. `yaml parse`: YAML of other programs.
- `python`, `json`: read by their parsers. `toml`: a scenario. `text`: shown, with no command in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

_BLOCK = re.compile(r"^```(?P<kind>\w*)(?: (?P<how>\w+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)`(orch [^`]+)`(?!`)")
_STATUS = re.compile(r"\s+# exit status (\d+)$")
_NAME = re.compile(r"# (\S+\.(?:yaml|py))\n")
HOW = {
    "bash": {"run", "gcp", "aws", "plan", "parse"},
    "yaml": {"plan", "gcp", "aws", "parse"},
    "python": {""}, "json": {""}, "toml": {""}, "text": {""},
}  # fmt: skip


@dataclass(frozen=True)
class Block:
    """kind, how: as in `HOW`. line: of its first line of text, from 1."""

    kind: str
    how: str
    text: str
    line: int

    @property
    def file_name(self) -> str:
        """The name of the file that it is, or ""."""
        named = _NAME.match(self.text)
        return named[1] if named else ""


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


def read_blocks(path: Path) -> tuple[Block, ...]:
    """Raises ValueError for a block that does not say what it is and how it is tested."""
    page = path.read_text(encoding="utf-8")
    blocks = tuple(
        Block(found["kind"], found["how"] or "", found["text"], page.count("\n", 0, found.start()) + 2)
        for found in _BLOCK.finditer(page)
    )
    for block in blocks:
        if block.how not in HOW.get(block.kind, set()):
            raise ValueError(f"{path.name}:{block.line}: no block is marked '{block.kind} {block.how}': see {__name__}")
        if block.kind == "yaml" and block.how in ("gcp", "aws") and not block.file_name:
            raise ValueError(f"{path.name}:{block.line}: a file that commands name begins with its name: # task.yaml")
    return blocks


def read_page(path: Path, *how: str) -> tuple[Item, ...]:
    """Return the items of the blocks that are tested in one of these ways. Raises ValueError as `read_blocks`."""
    return tuple(item for block in read_blocks(path) if block.how in how for item in list_items(block))


def list_items(block: Block) -> Iterator[Item]:
    """Yield the file that a block is, or its commands."""
    if block.kind == "bash":
        yield from _commands(block.text, block.line)
    elif block.file_name:
        yield File(block.file_name, block.text, block.line)


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
