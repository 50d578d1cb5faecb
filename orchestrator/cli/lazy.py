"""A command group that knows its commands by name and imports one only when it is called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from orchestrator.cli.command import write_examples


@dataclass(frozen=True, slots=True)
class Verb:
    """target: `module:attribute` of a click command. summary: its line in the group's help."""

    name: str
    target: str
    summary: str


@dataclass(frozen=True, slots=True)
class Section:
    """Verbs that serve one purpose, under the words a person would look for."""

    title: str
    verbs: tuple[Verb, ...]


class LazyGroup(click.Group):
    def __init__(
        self, *args: Any, sections: Sequence[Section], examples: Sequence[tuple[str, str]], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.sections = tuple(sections)
        self.examples = tuple(examples)
        self._verbs = {verb.name: verb for section in self.sections for verb in section.verbs}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = self._verbs.get(cmd_name)
        if verb is None:
            return None
        module, _, attribute = verb.target.partition(":")
        command = getattr(import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{verb.target} is no command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if not word.startswith("-") and word not in self._verbs:
            raise click.UsageError(f"no command '{word}'{self._near(word)}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """From the table: the group's own way would import every verb."""
        found = [
            CompletionItem(verb.name, help=verb.summary)
            for verb in self._verbs.values()
            if verb.name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)
        super().format_help(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(len(name) for name in self._verbs)
        for section in self.sections:
            with formatter.section(section.title):
                formatter.write_dl([(f"{verb.name:<{width}}", verb.summary) for verb in section.verbs])

    def _near(self, word: str) -> str:
        from difflib import get_close_matches

        close = get_close_matches(word, list(self._verbs), n=3, cutoff=0.5)
        return f"; did you mean {' or '.join(close)}?" if close else ""
