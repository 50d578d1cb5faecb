"""Options that several commands share."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from orchestrator.cli.execution.act import ActMode, PerformMode, PreviewMode
from orchestrator.errors import UserError
from orchestrator.formatting import parse_ranges

if TYPE_CHECKING:
    from orchestrator.plan.preview import PreviewFormat

Command: TypeAlias = Callable[..., None]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class LocalChecks:
    """How a training is tried on this computer before anything is rented.

    Attributes:
        compile: Compile the training step for the TPU slice.
        world: Build all ranks of the torch training in one process.
    """

    compile: bool = False
    world: bool = False

    @property
    def requested(self) -> bool:
        return self.compile or self.world

    @property
    def options(self) -> dict[str, object]:
        """The options by their names: whether each was given."""
        return {"--compile": self.compile, "--rehearse-world": self.world}


class HostRanks(click.ParamType["tuple[int, ...] | None"]):
    """A set of hosts: `0,3-5` as ranks, `all` as None."""

    name = "hosts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...] | None:
        if str(value).strip().lower() == "all":
            return None
        try:
            return parse_ranges(str(value))
        except ValueError as error:
            self.fail(f"{error}; write ranks like 0,3-5, or all", param, ctx)


HOSTS = HostRanks()
NO_PREFIX = click.option("--no-prefix", is_flag=True, help="Do not begin each line with its host.")
RAW = click.option(
    "--raw",
    is_flag=True,
    help="Let hosts control the terminal; without it their colours alone pass, and of a progress bar its last state.",
)

ACCEPT_HOST_KEY = click.option(
    "--accept-host-key",
    "accept_host_keys",
    is_flag=True,
    help="Send secrets also to machines of yours whose key is new; a changed key stays refused.",
)

FORCE = click.option("--force", is_flag=True, help="Also a cluster that belongs to another member of the team.")

IDENTITY = click.option(
    "--identity",
    metavar="FILE",
    envvar="ORCH_IDENTITY",
    default="",
    help="Private key for hosts that orch made, such as a recovery key.",
)


def action_options(
    *, detachable: bool = False, shows_output: bool = False, skips: str = "the question before money is spent"
) -> Callable[[Command], Command]:
    """Add --dry-run, -o and --yes (and --detach, --no-prefix, --raw), given to the command as one `mode`.

    Args:
        detachable: Whether the command has --detach.
        shows_output: Whether the command shows the output of hosts, and so has --no-prefix and --raw.
        skips: The questions that --yes answers; "" when the command asks nothing.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapper(
            *args: Any,
            dry_run: bool,
            verbose: bool,
            output: str,
            yes: bool,
            detach: bool = False,
            no_prefix: bool = False,
            raw: bool = False,
            **kwargs: Any,
        ) -> None:
            doing = PerformMode(consent=yes, follow=not detach, as_json=output == "json", prefix=not no_prefix, raw=raw)
            command(*args, mode=_mode(output, doing, preview=dry_run, verbose=verbose), **kwargs)

        options = [
            click.option("--dry-run", is_flag=True, help="Print what would be done; do nothing."),
            click.option("-v", "--verbose", is_flag=True, help="With --dry-run: show every request and script."),
            click.option(
                "-o",
                "--output",
                type=click.Choice(["text", "json", "sh"]),
                default="text",
                show_default=True,
                help="Form of the preview; json also for the result and for errors.",
            ),
            click.option("-y", "--yes", is_flag=True, help=_yes_help(skips)),
        ]
        if detachable:
            options.append(
                click.option("-d", "--detach", is_flag=True, help="Return when the program runs or is queued.")
            )
        if shows_output:
            options += [NO_PREFIX, RAW]
        decorated: Command = wrapper
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


def _yes_help(skips: str) -> str:
    return f"Skip {skips}." if skips else "No effect: this command asks nothing."


def local_check_options(command: Command) -> Command:
    """Add --compile and --rehearse-world, given to the command as one `local_checks`."""

    @functools.wraps(command)
    def wrapper(*args: Any, compile_: bool, rehearse_world: bool, **kwargs: Any) -> None:
        command(*args, local_checks=LocalChecks(compile_, rehearse_world), **kwargs)

    step = "Compile the training step for the TPU slice, here, first: exact memory, or that it does not fit."
    world = "Build the training of all hosts in one process, with torch, first: shapes, memory, collectives."
    decorated: Command = click.option("--rehearse-world", is_flag=True, help=world)(wrapper)
    return click.option("--compile", "compile_", is_flag=True, help=step)(decorated)


def _mode(output: str, doing: PerformMode, *, preview: bool, verbose: bool) -> ActMode:
    if preview:
        return PreviewMode(form_of(output), verbose)
    if verbose:
        raise UserError("-v is an option of the preview", next_step="add --dry-run")
    if output == "sh":
        raise UserError("-o sh is only a form of the preview", next_step="add --dry-run")
    return doing


def form_of(output: str) -> PreviewFormat:
    """Return the form of a preview that `-o` names."""
    return "json" if output == "json" else "sh" if output == "sh" else "text"


def choose_hosts(ranks: tuple[int, ...] | None, head: bool) -> tuple[int, ...] | None:
    """Return the ranks that --host and --head select; None for all hosts."""
    if head and ranks is not None:
        raise UserError("--head and --host exclude each other", next_step="--host 0 is the head")
    return (0,) if head else ranks


def split_pairs(values: tuple[str, ...]) -> tuple[tuple[str, str | None], ...]:
    """Split `NAME=VALUE`; a `NAME` alone, whose value is this shell's, becomes (NAME, None)."""
    found: list[tuple[str, str | None]] = []
    for value in values:
        name, equals, rest = value.partition("=")
        if not _VARIABLE.fullmatch(name):  # it may be the value of a secret, so it is not repeated
            form = "write NAME=VALUE, or NAME for the value of this shell"
            raise UserError("what is given is not the name of a variable", "letters, digits and _", form)
        found.append((name, rest if equals else None))
    return tuple(found)
