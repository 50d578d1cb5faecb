"""Whether the command line takes a command, without running it."""

from __future__ import annotations

import click

from orchestrator.cli.app import app


def accepts(command: str) -> bool:
    """Return whether the parser of the CLI takes a command line; a group of commands counts by its name."""
    words = command.split()
    assert words.pop(0) == "orch", command
    context, parsed = click.Context(app, info_name="orch"), app
    try:
        while isinstance(parsed, click.Group) and words:
            with context:
                _, found, words = parsed.resolve_command(context, words)
            assert found is not None
            parsed = found
        if not isinstance(parsed, click.Group):
            parsed.make_context(parsed.name, list(words), parent=context)
    except click.UsageError:
        return False
    return True
