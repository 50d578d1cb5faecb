"""Commands of orch inside lines of a shell, and whether orch understands their words; nothing is carried out."""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout

import click

from orchestrator.__main__ import main
from orchestrator.cli.app import app
from orchestrator.cli.command import Session

_COMMENT = re.compile(r"(?:^|\s)# .*")
_ASSIGNMENT = re.compile(r"\w+=")
_OPERATORS = frozenset({"|", "||", "&", "&&", ";", "(", ")", "{", "}", "$("})
_REDIRECTIONS = frozenset({">", "<", ">>", "2>"})


def list_orch_commands(line: str) -> Iterator[list[str]]:
    """Yield the words behind `orch` of each command of orch in a line of a shell."""
    lexer = shlex.shlex(_COMMENT.sub("", line), posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split = True
    lexer.commenters = ""  # `#` inside a word begins no comment
    command: list[str] = []
    for word in [*lexer, ";"]:
        if word not in _OPERATORS:
            command.append(word)
            continue
        command = _drop_redirections(command)
        while command and _ASSIGNMENT.match(command[0]):
            command = command[1:]
        if command[:1] == ["orch"]:
            yield command[1:]
        command = []


def _drop_redirections(words: list[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in _REDIRECTIONS:
            skip = True
        else:
            kept.append(word)
    return kept


def parse_words(words: Sequence[str], *, partly: bool = False) -> str:
    """Return what is wrong with the words behind `orch`, "" where the command would begin its work.

    Args:
        words: The words.
        partly: Whether required arguments may be missing, as in a sentence about a command.
    """
    try:
        with redirect_stdout(io.StringIO()):
            _parse(list(words))
    except click.exceptions.Exit as end:
        return f"exit {end.exit_code}" if end.exit_code else ""
    except (click.MissingParameter, click.exceptions.NoArgsIsHelpError) as error:
        return "" if partly else error.format_message()
    except click.ClickException as error:
        return error.format_message()
    return ""


def _parse(words: list[str]) -> None:
    command: click.Command = app
    context: click.Context | None = None
    name = "orch"
    session = Session(tuple(words))
    while True:
        context = command.make_context(name, words, parent=context, obj=session)
        # As click's Group.invoke: the name of the inner command is there, and no public attribute has it.
        words = [*context._protected_args, *context.args]  # pyright: ignore[reportPrivateUsage]
        if not isinstance(command, click.Group) or not words:
            return
        found, inner, words = command.resolve_command(context, words)
        assert found is not None and inner is not None
        name, command = found, inner


def type_here(words: Sequence[str]) -> tuple[int, str, str]:
    """Return status, stdout and stderr of one command of orch, in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        status = main(words)
    printed = [stream.buffer.getvalue().decode() for stream in (out, err)]
    return status, printed[0], printed[1]
