"""Turn a previewing command line into the one that performs it: the last line of a preview."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

import click

from orchestrator.cli.command import Session

_PREVIEW_FLAGS = frozenset({"--dry-run", "-v", "--verbose", "-otext", "-ojson", "-osh"})
_PLAN_ONLY = frozenset({"--compile", "--rehearse-world"})


def real_command() -> str:
    """Return the performing form of the running command; "" when none runs (a test calls a function)."""
    context = click.get_current_context(silent=True)
    session = context.find_object(Session) if context is not None else None
    return retype(session.arguments) if session is not None else ""


def retype(arguments: Iterable[str]) -> str:
    """Drop --dry-run, -o and the options of `plan` alone, turn `plan` into `launch`, and hide secrets."""
    given = list(arguments)
    end = given.index("--") if "--" in given else len(given)
    kept = list(_without_preview(iter(given[:end])))
    if kept and kept[0] == "plan":
        kept = ["launch", *(word for word in kept[1:] if word not in _PLAN_ONLY)]
    return shlex.join(["orch", *kept, *given[end:]])


def _without_preview(arguments: Iterator[str]) -> Iterator[str]:
    for word in arguments:
        if word in {"-o", "--output"}:
            next(arguments, None)
        elif word in {"--env", "--secret"}:
            yield word
            yield _without_secret(word, next(arguments, ""))
        elif word.startswith(("--env=", "--secret=")):
            option, _, pair = word.partition("=")
            yield f"{option}={_without_secret(option, pair)}"
        elif word not in _PREVIEW_FLAGS and not word.startswith("--output="):
            yield word


def _without_secret(option: str, pair: str) -> str:
    """Return NAME=VALUE, or only NAME of a secret: the command then takes the value from the shell."""
    from orchestrator.task.likely_secrets import is_likely_secret

    name, _, value = pair.partition("=")
    return name if option == "--secret" or is_likely_secret(name, value) else pair
