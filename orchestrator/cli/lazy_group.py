"""A command group that knows its commands by name and imports a command only when it is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any

import click
from click.shell_completion import CompletionItem

from orchestrator.cli.command import CheckedCommand, write_examples
from orchestrator.errors import UserError


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """A row in the table of a group's commands.

    Attributes:
        target: `module:attribute` of a click command.
        summary: The command's line in the group's help.
    """

    name: str
    target: str
    summary: str


@dataclass(frozen=True, slots=True)
class Section:
    """Commands that serve one purpose, under the heading a user would search for."""

    title: str
    commands: tuple[LazyCommand, ...]


class LazyGroup(click.Group, CheckedCommand):
    """A click group that imports a command only when it is called."""

    def __init__(
        self,
        *args: Any,
        sections: Sequence[Section],
        examples: Sequence[tuple[str, str]],
        removed: Mapping[str, str] = MappingProxyType({}),
        **kwargs: Any,
    ) -> None:
        """Take the table of commands, and for each one that was removed what to do instead."""
        super().__init__(*args, **kwargs)
        self._removed = removed
        self.sections = tuple(sections)
        self.examples = tuple(examples)
        self._lazy_commands = {row.name: row for section in self.sections for row in section.commands}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazy_commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command_row = self._lazy_commands.get(cmd_name)
        if command_row is None:
            return None
        module, _, attribute = command_row.target.partition(":")
        command = getattr(import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{command_row.target} is not a command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if word in self._removed:
            raise UserError(f"`{ctx.command_path} {word}` was removed", "", self._removed[word])
        if not word.startswith("-") and word not in self._lazy_commands:
            raise click.UsageError(f"no command '{word}'{self._near(word)}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete from the table: click's own completion would import every command."""
        found = [
            CompletionItem(command_row.name, help=command_row.summary)
            for command_row in self._lazy_commands.values()
            if command_row.name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)
        super().format_help(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(len(name) for name in self._lazy_commands)
        for section in self.sections:
            with formatter.section(section.title):
                formatter.write_dl(
                    [(f"{command_row.name:<{width}}", command_row.summary) for command_row in section.commands]
                )

    def _near(self, word: str) -> str:
        from difflib import get_close_matches

        close = get_close_matches(word, list(self._lazy_commands), n=3, cutoff=0.5)
        return f"; did you mean {' or '.join(close)}?" if close else ""
