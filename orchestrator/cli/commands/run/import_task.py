"""`orch import`: what of a task file changes so that orch runs it, and what is wrong with it."""

from __future__ import annotations

import os

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.exits import Exit


@click.command(
    "import",
    cls=OrchCommand,
    examples=[
        ("orch import sky.yaml", "what changes, as a difference, and what cannot be served"),
        ("orch import sky.yaml --write", "save the change; the old file stays as sky.yaml.bak"),
        ("orch import task.yaml", "every problem of a task file, however many there are"),
    ],
)
@click.argument("file", metavar="FILE", type=click.Path())
@click.option("--write", is_flag=True, help="Save the changed file, and keep the old one as FILE.bak.")
@click.pass_context
def import_file(ctx: click.Context, file: str, write: bool) -> None:
    """Show what of a task file of SkyPilot changes to run with orch, and every problem that remains.

    Nothing is rented or sent. Exit status 0: orch runs the changed file; 2: something in it cannot be served.
    """
    ctx.exit(_import(file, write=write))


def _import(path: str, *, write: bool) -> int:
    from orchestrator.cli.commands.run.outdated_task import offer_rewrite, save_rewritten_task
    from orchestrator.task.dialect_import import import_task, list_missing_options, list_remarks
    from orchestrator.task.errors import OutdatedTaskError, format_problem
    from orchestrator.task.parse import find_source_problem, read_task_text

    text = read_task_text(path)
    try:
        imported = import_task(text, file=path, env=os.environ, find_source_problem=find_source_problem)
    except OutdatedTaskError as error:
        error.next_step = error.next_step.replace("orch launch ", "orch import ", 1)  # both save the same text
        return offer_rewrite(error, write=write)
    if difference := imported.rewrite.diff().rstrip("\n"):
        write_stdout(difference)
    write_stderr(*(f"note: {remark}" for remark in list_remarks(imported)))
    if imported.problems:
        count = len(imported.problems)
        write_stderr(f"error[task-file]: {count} problem{'s' if count > 1 else ''} left")
        write_stderr(*(line for problem in imported.problems for line in format_problem(problem)))
    plan = " ".join([f"orch plan {path}", *(option for _, option in list_missing_options(imported))])
    if write and difference:
        kept = save_rewritten_task(imported.rewrite)
        write_stderr(f"saved {path}; the old version is in {kept}", f"  next: {plan}")
    elif difference:
        write_stderr(f"  next: orch import {path} --write   saves it")
    elif not imported.problems:
        write_stderr(f"{path} runs as it is", f"  next: {plan}")
    return Exit.USAGE if imported.problems else Exit.OK
