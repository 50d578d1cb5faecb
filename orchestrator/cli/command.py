"""How every command looks: help that begins with examples, and `--debug` wherever one thinks of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click


@dataclass(slots=True)
class Session:
    """One run of the command line. words: its arguments. debug: a trace is wanted when something fails."""

    words: tuple[str, ...] = ()
    debug: bool = False


class OrchCommand(click.Command):
    """A command with `examples`: pairs of a command line and what it does ("" for nothing to say)."""

    def __init__(self, *args: Any, examples: Sequence[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)
        self.params.append(debug_option())

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)
        super().format_help(ctx, formatter)


def write_examples(formatter: click.HelpFormatter, examples: Sequence[tuple[str, str]]) -> None:
    """The examples, unwrapped, so that each can be copied as it stands."""
    formatter.write("Examples:\n")
    for line, meaning in examples:
        if meaning:
            formatter.write(f"  # {meaning}\n")
        formatter.write(f"  {line}\n")
    formatter.write("\n")


def debug_option() -> click.Option:
    return click.Option(
        ["--debug"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_note_debug,
        help="Show the trace when something fails (also: ORCH_DEBUG=1).",
    )


def _note_debug(ctx: click.Context, _option: click.Parameter, value: bool) -> None:
    session = ctx.find_object(Session)
    if value and session is not None:
        session.debug = True
