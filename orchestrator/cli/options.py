"""Options that several verbs share, each written once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from orchestrator.cli.act import Manner, Perform, Show
from orchestrator.cli.human import parse_ranges
from orchestrator.cli.proof import Proof
from orchestrator.errors import UserError

if TYPE_CHECKING:
    from orchestrator.plan.preview import Form

Command: TypeAlias = Callable[..., None]


class HostRanks(click.ParamType["tuple[int, ...] | None"]):
    """`0,3-5` as ranks; `all` as None."""

    name = "hosts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...] | None:
        if str(value).strip().lower() == "all":
            return None
        try:
            return parse_ranges(str(value))
        except ValueError as error:
            self.fail(f"{error}; write ranks like 0,3-5, or all", param, ctx)


HOSTS = HostRanks()


def acting(*, detachable: bool = False, raw: bool = False) -> Callable[[Command], Command]:
    """--dry-run, -o and --yes (and --detach, --no-prefix), given to the command as one `manner`."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapper(
            *args: Any,
            dry_run: bool,
            output: str,
            yes: bool,
            detach: bool = False,
            no_prefix: bool = False,
            **kwargs: Any,
        ) -> None:
            doing = Perform(consent=yes, follow=not detach, as_json=output == "json", prefix=not no_prefix)
            command(*args, manner=_manner(output, doing, preview=dry_run), **kwargs)

        options = [
            click.option("--dry-run", is_flag=True, help="Print all that would be done; do nothing."),
            click.option(
                "-o",
                "--output",
                type=click.Choice(["text", "json", "sh"]),
                default="text",
                show_default=True,
                help="Form of the preview; json also for the result of the real thing.",
            ),
            click.option("-y", "--yes", is_flag=True, help="Do not ask before money is spent."),
        ]
        if detachable:
            options.append(
                click.option(
                    "-d", "--detach", is_flag=True, help="Return when the program runs, or waits in the queue."
                )
            )
        if raw:
            options.append(click.option("--no-prefix", is_flag=True, help="Do not say on each line whose it is."))
        decorated: Command = wrapper
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


def proving(command: Command) -> Command:
    """--compile and --rehearse-world, given to the command as one `proof`."""

    @functools.wraps(command)
    def wrapper(*args: Any, compile_: bool, rehearse_world: bool, **kwargs: Any) -> None:
        command(*args, proof=Proof(compile_, rehearse_world), **kwargs)

    step = "Compile the training step for the TPU slice, here, first: exact memory, or that it does not fit."
    world = "Build the training of all hosts in one process, with torch, first: shapes, memory, collectives."
    decorated: Command = click.option("--rehearse-world", is_flag=True, help=world)(wrapper)
    return click.option("--compile", "compile_", is_flag=True, help=step)(decorated)


def _manner(output: str, doing: Perform, *, preview: bool) -> Manner:
    if preview:
        return Show(form_of(output))
    if output == "sh":
        raise UserError("-o sh is a form of the preview", next_step="add --dry-run")
    return doing


def form_of(output: str) -> Form:
    return "json" if output == "json" else "sh" if output == "sh" else "text"


def choose_hosts(ranks: tuple[int, ...] | None, head: bool) -> tuple[int, ...] | None:
    """--host and --head as ranks; None for all hosts."""
    if head and ranks is not None:
        raise UserError("--head and --host exclude each other", next_step="--host 0 is the head")
    return (0,) if head else ranks


def pairs(values: tuple[str, ...]) -> tuple[tuple[str, str | None], ...]:
    """`NAME=VALUE`, or `NAME` alone for the value it has in this shell (None)."""
    found: list[tuple[str, str | None]] = []
    for value in values:
        name, equals, rest = value.partition("=")
        if not name:
            raise UserError(f"'{value}' has no name", next_step="write NAME=VALUE, or NAME for the value of this shell")
        found.append((name, rest if equals else None))
    return tuple(found)
