#!/usr/bin/env python3
"""Write docs/cli.md, the reference of all commands, from the commands themselves.

scripts/cli_reference.py           write the page
scripts/cli_reference.py --check   exit 1 when the page is not what would be written
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
HEAD = """# Commands

Every command of `orch`, as its `--help` describes it. This page is written by `scripts/cli_reference.py`.
Exit statuses: [exit-codes.md](exit-codes.md).
"""


def render_reference(root: click.Group) -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *_contents(root), *_sections(root, "orch")]).rstrip() + "\n"


def _contents(root: click.Group) -> Iterator[str]:
    context = click.Context(root, info_name="orch")
    yield "| command | what it does |"
    yield "| --- | --- |"
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        if command is not None and not command.hidden:
            yield f"| [`{name}`](#orch-{name}) | {_cell(command.get_short_help_str(200))} |"
    yield ""


def _sections(group: click.Group, path: str) -> Iterator[str]:
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        full = f"{path} {name}"
        yield from _section(command, full)
        if isinstance(command, click.Group):
            yield from _sections(command, full)


def _section(command: click.Command, path: str) -> Iterator[str]:
    context = click.Context(command, info_name=path)
    yield f"{'#' * min(1 + path.count(' '), 4)} {path}\n"
    yield f"```text\n{path} {' '.join(command.collect_usage_pieces(context))}\n```\n"
    yield _prose(command.help or "") + "\n"
    rows = [parameter.get_help_record(context) for parameter in command.params]
    shown = [row for row in rows if row is not None and not row[0].startswith("-h,")]
    if shown:
        yield "| option | meaning |\n| --- | --- |"
        for names, text in shown:
            yield f"| `{names.replace('|', chr(92) + '|')}` | {_cell(text)} |"
        yield ""


def _prose(text: str) -> str:
    """Return help text as Markdown: what is not to be wrapped stays as it is, in a block."""
    blocks = re.split(r"\n\s*\n", inspect.cleandoc(text))
    return "\n\n".join(
        "\n".join(["```text", *block.split("\n")[1:], "```"]) if block.startswith("\b") else block
        for block in blocks
        if block.strip()
    )


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def main(arguments: list[str]) -> int:
    """Write or check the page; return the exit status."""
    from orchestrator.cli.app import app

    page = render_reference(app)
    if "--check" not in arguments:
        PAGE.write_text(page, encoding="utf-8")
        return 0
    if PAGE.read_text(encoding="utf-8") == page:
        return 0
    print(f"{PAGE.name} is not what the commands say; run scripts/cli_reference.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
