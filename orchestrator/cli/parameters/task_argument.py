"""What a command is given as its task: a file, `-` for standard input, or the words of a command."""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.parameters.shared import Command
from orchestrator.errors import NotFoundError, UserError

if TYPE_CHECKING:
    from orchestrator.task.layers import Overrides
    from orchestrator.task.parse import TaskFile

METAVAR = "TASK.yaml|-|'COMMAND'"
_SUFFIXES = (".yaml", ".yml", ".json")
_SETTING = re.compile(r"[a-z][a-z0-9_.]*=.*")  # of the trainer; variables of a shell are written in capitals
_COMMAND = "run: null\n"  # the command comes as an override of `run`


def task_argument(command: Command) -> Command:
    """Add the argument that names a task."""
    return click.argument("task", metavar=METAVAR, nargs=-1, required=True, type=click.Path(allow_dash=True))(command)


def load_task_argument(words: tuple[str, ...], flags: Overrides, *, elsewhere: bool = False) -> TaskFile:
    """Return the task that the words name.

    Args:
        words: A file, `-`, or a command.
        flags: What the command line sets.
        elsewhere: Whether another computer carries it out, with own secrets and settings of clouds.

    Raises:
        NotFoundError: A file is meant, and there is none.
        OrchError: The task is wrong.
    """
    from orchestrator.setup_guide.clouds import choose_machines_elsewhere, choose_machines_here
    from orchestrator.task.config import load_config
    from orchestrator.task.parse import find_source_problem, load_task_file, parse_task

    choose = choose_machines_elsewhere if elsewhere else choose_machines_here
    config, first = load_config(os.environ), words[0]
    config = config.without_clouds() if elsewhere else config
    if names_task_file(words):
        return load_task_file(
            first, env=os.environ, flags=flags, config=config, secrets_elsewhere=elsewhere, choose_machines=choose
        )
    text, name = _COMMAND, "command"
    if words == ("-",):
        text, name = _read_standard_input(), "standard input"
    else:
        flags = replace(flags, run=join_command(words))
        if not join_command(words).strip():
            raise UserError("the command is empty", "", "orch launch 'COMMAND'   or: orch launch TASK.yaml")
    return parse_task(
        text,
        file=name,
        env=os.environ,
        flags=flags,
        config=config,
        find_source_problem=find_source_problem,
        secrets_elsewhere=elsewhere,
        choose_machines=choose,
    )


def names_task_file(words: tuple[str, ...]) -> bool:
    """Return whether the words are the path of a task file.

    Raises:
        UserError: They are several files, a script, or what `orch train` takes.
        NotFoundError: They look like a path, and there is nothing.
    """
    first = words[0]
    if len(words) > 1:
        if all(word.endswith(_SUFFIXES) for word in words):
            why = "the tasks of a pipeline are documents of one file, with `---` between them"
            raise UserError(f"{len(words)} task files are given", why, f"orch launch {shlex.quote(first)}")
        if first.endswith(_SUFFIXES):
            step = f"orch launch {shlex.quote(first)}   or, for a command, one word: orch launch 'COMMAND'"
            raise UserError(f"more was given than a task file: {words[1][:40]}", "", step)
        _refuse_training(words)
        return False
    if first.endswith(_SUFFIXES) or os.path.isdir(first):  # noqa: PTH112  # pathlib raises for names that no file has
        return True
    if os.path.isfile(first):  # noqa: PTH113  # the same
        if _is_script(first):
            step = f"send its folder and run it: orch launch --workdir . {shlex.quote(f'bash {first}')}"
            raise UserError(f"`{first}` is a script, not a task file", "", step)
        return True
    if "/" in first and first[:1] != "/" and not any(character.isspace() for character in first):
        step = f"for a command on the hosts: orch launch 'bash {first}' --workdir ."
        raise NotFoundError(f"there is no task file `{first}`", "", step)
    return False


def _refuse_training(words: tuple[str, ...]) -> None:
    """Raise UserError for machines and settings of the bundled trainer, which are no command for a shell."""
    from orchestrator.catalog.accelerators import is_rented
    from orchestrator.task.automatic import AUTO

    first, *settings = words
    if not all(map(_SETTING.fullmatch, settings)):
        return
    if first == AUTO or first.startswith("local:") or is_rented(first):
        step = f"orch train {shlex.join(words)}   with --dry-run for its plan"
        raise UserError(
            f"`{first}` names machines, and is not a command", "`orch train` takes machines and settings", step
        )


def join_command(words: tuple[str, ...]) -> str:
    """Return the line for the shell: one word is such a line, several are its words."""
    return words[0] if len(words) == 1 else shlex.join(words)


def _is_script(path: str) -> bool:
    try:
        with open(path, "rb") as file:  # noqa: PTH123  # a path as it was typed
            return file.read(2) == b"#!"
    except OSError:
        return False  # the reader of the file reports it


def _read_standard_input() -> str:
    from orchestrator.task.errors import TaskError
    from orchestrator.task.yaml_reader import LARGEST_BYTES

    stream: Any = sys.stdin.buffer
    try:
        return bytes(stream.read(4 * LARGEST_BYTES + 1)).decode("utf-8")
    except UnicodeDecodeError as error:
        raise TaskError("standard input", None, "is not a text in UTF-8", str(error), "send a YAML file") from error
