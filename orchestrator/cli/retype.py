"""The command line as typed, turned into the one that does it for real: the last line of a preview."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

import click

from orchestrator.cli.command import Session

_PLAN_ONLY = frozenset({"--compile", "--rehearse-world", "-v", "--verbose"})


def real_command() -> str:
    """From the running command; "" when there is none (a test that calls a function)."""
    context = click.get_current_context(silent=True)
    session = context.find_object(Session) if context is not None else None
    return retype(session.words) if session is not None else ""


def retype(words: Iterable[str]) -> str:
    """Without --dry-run, -o and what `plan` alone takes; `plan` becomes `launch`; a secret's value is left out."""
    given = list(words)
    end = given.index("--") if "--" in given else len(given)
    kept = list(_without_preview(iter(given[:end])))
    if kept and kept[0] == "plan":
        kept = ["launch", *(word for word in kept[1:] if word not in _PLAN_ONLY)]
    return shlex.join(["orch", *kept, *given[end:]])


def _without_preview(words: Iterator[str]) -> Iterator[str]:
    for word in words:
        if word in {"-o", "--output"}:
            next(words, None)
        elif word == "--secret":
            yield word
            yield next(words, "").partition("=")[0]
        elif word.startswith("--secret="):
            yield "--secret=" + word.removeprefix("--secret=").partition("=")[0]
        elif word != "--dry-run" and not word.startswith("--output=") and word not in {"-otext", "-ojson", "-osh"}:
            yield word
