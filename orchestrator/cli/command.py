"""The common form of all commands: help that begins with examples, and `--debug` on each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import click


@dataclass(slots=True)
class Session:
    """One run of the command line.

    Attributes:
        arguments: The arguments.
        debug: Show a traceback when something fails.
    """

    arguments: tuple[str, ...] = ()
    debug: bool = False

    @property
    def as_json(self) -> bool:
        """Whether the command line has `-o json`; read from the words, since errors of usage come before parsing."""
        words = self.arguments[: self.arguments.index("--")] if "--" in self.arguments else self.arguments
        pairs = pairwise(words)
        return any(word in {"-ojson", "--output=json"} for word in words) or any(
            option in {"-o", "--output"} and value == "json" for option, value in pairs
        )


def current_session() -> Session:
    """Return the session of the running command; an empty one when a test calls a function."""
    context = click.get_current_context(silent=True)
    session = context.find_object(Session) if context is not None else None
    return session if session is not None else Session()


class CheckedCommand(click.Command):
    """A command that is refused where a service is named and it would use the store of this computer.

    Its help is shown all the same: a group leaves it to the command that is called.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # click does not name the command of an option without its value
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Raises UserError for one that is refused."""
        if ctx.parent is not None and ctx.invoked_subcommand is None:
            import os

            from orchestrator.cli.execution.served_commands import refuse_without_store

            refuse_without_store(_name_command(ctx), os.environ)
        return super().invoke(ctx)


def _name_command(ctx: click.Context) -> str:
    """Return the first word after `orch`."""
    while ctx.parent is not None and ctx.parent.parent is not None:
        ctx = ctx.parent
    return str(ctx.info_name)


class OrchCommand(CheckedCommand):
    """A command whose help begins with examples.

    Attributes:
        examples: Pairs of a command line and what it does ("" when it explains itself).
    """

    def __init__(self, *args: Any, examples: Sequence[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)
        self.params.append(debug_option())

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)
        super().format_help(ctx, formatter)


def write_examples(formatter: click.HelpFormatter, examples: Sequence[tuple[str, str]]) -> None:
    """Write the examples unwrapped, so that each can be copied as it is."""
    formatter.write("Examples:\n")
    for line, meaning in examples:
        if meaning:
            formatter.write(f"  # {meaning}\n")
        formatter.write(f"  {line}\n")
    formatter.write("\n")


def debug_option() -> click.Option:
    """Return the `--debug` option that every command has."""
    return click.Option(
        ["--debug"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_note_debug,
        help="Show a traceback when something fails (also: ORCH_DEBUG=1).",
    )


def _note_debug(ctx: click.Context, _option: click.Parameter, value: bool) -> None:
    session = ctx.find_object(Session)
    if value and session is not None:
        session.debug = True
