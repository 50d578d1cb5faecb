"""`orch init`: a task file from at most seven questions, each of which an option answers too."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.command import OrchCommand, current_session
from orchestrator.cli.drawing.terminal import can_ask, write_stderr, write_stdout
from orchestrator.cli.failures import print_error
from orchestrator.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.providers.checks import Finding
    from orchestrator.setup_guide.document import TaskText
    from orchestrator.setup_guide.draft import Draft
    from orchestrator.task.model import Task

_DEFAULT_FILE = "task.yaml"
_ENDINGS = (".yaml", ".yml")


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch init", "seven questions; Enter takes what is proposed, ? explains"),
        ("orch init --budget 50 --by 12h", "only machines with which the run costs and takes no more"),
        (
            "orch init --model 1b --tokens 20B --accelerators auto --budget 2000",
            "orch chooses the machines at each launch",
        ),
        (
            "orch init --yes --infra aws --program 'python train.py' --accelerators H100:8 --bucket s3://NAME",
            "asks nothing: what is not given is as proposed",
        ),
        ("orch init --yes --infra local:1 --model tiny --no-check", "a first task for this computer"),
    ],
)
@click.option("--infra", metavar="PLACE", help="A cloud, or CLOUD/REGION; hosts; local:4.")
@click.option("--model", metavar="PRESET", help="A model of the bundled trainer, such as 300m, 8b or mistral-7b.")
@click.option("--tokens", metavar="COUNT", help="Tokens that the model is trained on: 500M, 1B.")
@click.option("--data", metavar="SOURCE", help="What it is trained on: a path, gs://, s3:// or hf://NAME.")
@click.option("--program", metavar="COMMAND", help="The command of a program of yours.")
@click.option("--workdir", metavar="FOLDER", help="The folder that your program needs; none for no folder.")
@click.option("--setup", metavar="COMMAND", help="What prepares a host; default: what the folder says; or none.")
@click.option("--accelerators", "--gpus", metavar="NAME", help="v5litepod-16, H100:8, or auto: see orch offers.")
@click.option("--instance-type", metavar="TYPE", help="A machine by its type.")
@click.option("--num-nodes", metavar="COUNT", help="How many of them.")
@click.option("--hosts", metavar="LIST", help="Your own machines: user@first,user@second.")
@click.option("--use-spot/--no-use-spot", default=None, help="Spot machines: cheaper, may be taken away.")
@click.option("--bucket", metavar="URI", help="Where checkpoints go: gs://, s3:// or file://; none for nowhere.")
@click.option("--max-cost", metavar="USD", help="US dollars for the whole run; none for no limit.")
@click.option("--idle-minutes", metavar="COUNT", help="Minutes without a job until machines are deleted; default: 30.")
@click.option("--flops", metavar="COUNT", help="What your program computes in all: 1e21; for time and cost.")
@click.option("--memory", metavar="GIB", help="GiB that all chips of your program need.")
@click.option("--budget", metavar="USD", help="Propose only machines on which the run costs no more.")
@click.option("--by", metavar="WHEN", help="Propose only machines that are done by then: 36h, 5d, or a date.")
@click.option("--name", metavar="NAME", help="Name of the task.")
@click.option("-o", "--output", metavar="FILE", default=_DEFAULT_FILE, show_default=True, help="The task file.")
@click.option("--overwrite", is_flag=True, help="Replace the file if it exists.")
@click.option("--check/--no-check", "checks", default=True, show_default=True,
              help="Check credentials, permissions and quota, as orch check does.")  # fmt: skip
@click.option("--fix", is_flag=True, help="Send what fixes a problem without a question.")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing: take what is proposed.")
@click.pass_context
def init(ctx: click.Context, /, output: str, overwrite: bool, checks: bool, fix: bool, yes: bool, **given: Any) -> None:
    """Write a task file from a few answers: where, what, which machines, how much.

    Shows what this computer has, checks it and offers each fix; then machines with prices, the file, and its plan.
    Nothing is rented. Secrets are not asked for, and refused.
    """
    from orchestrator.cli.commands.before.init_questions import Interview
    from orchestrator.setup_guide.document import write_task
    from orchestrator.setup_guide.surroundings import inspect_computer
    from orchestrator.task.config import load_config

    path = check_file_name(output)
    around = inspect_computer(os.environ, Path.home(), given["workdir"] or ".")
    interview = Interview(around=around, asks=not yes and can_ask(), yes=yes, checks=checks, fix=fix)
    interview.agree_to_replace(path, overwrite=overwrite)
    draft, chosen = interview.complete(read_options(given))
    written = write_task(draft, chosen, load_config(os.environ))
    write_stderr("", f"{output}:")
    write_stdout(written.text.rstrip("\n"))
    save(path, written.text, replace=path.exists() or path.is_symlink())
    write_stderr("", f"saved {output}")
    ctx.exit(_show_plan(output, written, list_next_commands(draft, written.task, interview.found)))


def check_file_name(output: str) -> Path:
    """Return the path of the task file.

    Raises:
        UserError: A launch would not take it for a task file, or it cannot be written there.
    """
    from orchestrator.setup_guide.draft import write_out_controls

    shown = write_out_controls(output).replace("\n", "\\n")
    if shown != output or not output.endswith(_ENDINGS):
        raise UserError(f"`{shown[:60]}` is not the name of a task file", "it ends in .yaml", f"-o {_DEFAULT_FILE}")
    path = Path(output)
    try:
        if path.is_dir() or (path.exists() and not path.is_file()):
            raise UserError(f"`{output}` is not a file", "", f"-o {_DEFAULT_FILE}")
        if not path.parent.is_dir():
            raise UserError(f"there is no folder `{path.parent}`", "", f"mkdir -p {shlex.quote(str(path.parent))}")
    except OSError as error:
        raise UserError(f"`{output[:60]}` cannot be a file", error.strerror or "", f"-o {_DEFAULT_FILE}") from error
    return path


def read_options(given: dict[str, Any]) -> Draft:
    """Return a draft with the answers that options give.

    Raises:
        UserError: An option has no such value, or two exclude each other.
    """
    from orchestrator.setup_guide.draft import Draft, take

    for one, other in _EXCLUSIVE:
        if given[one] is not None and given[other] is not None:
            words = (f"--{name.replace('_', '-')}" for name in (one, other))
            raise UserError(f"{' and '.join(words)} exclude each other", "", "leave one out")
    texts: dict[str, str | None] = {
        **given,
        "machine": given["instance_type"] if given["accelerators"] is None else given["accelerators"],
        "market": {None: None, True: "spot", False: "on-demand"}[given["use_spot"]],
    }
    draft = Draft()
    for name in _OPTIONS:
        if (text := texts[name]) is not None:
            draft = take(draft, name, text)
    return draft


_EXCLUSIVE = (
    ("model", "program"),
    ("model", "workdir"),
    ("model", "flops"),
    ("model", "memory"),
    ("accelerators", "instance_type"),
    ("hosts", "instance_type"),
)
_OPTIONS = (
    "infra", "model", "tokens", "data", "program", "workdir", "setup", "hosts", "machine", "num_nodes", "market",
    "bucket", "max_cost", "idle_minutes", "flops", "memory", "budget", "by", "name",
)  # fmt: skip


def save(path: Path, text: str, *, replace: bool) -> None:
    """Write the file whole or not at all; without `replace` only where there is none.

    Raises:
        UserError: There is one meanwhile, or the folder cannot be written.
    """
    import tempfile

    temporary = ""
    try:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="", dir=path.parent, delete=False) as file:
            temporary = file.name
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_read_umask())
        if replace:
            Path(temporary).replace(path)
        else:
            path.hardlink_to(temporary)  # fails where there is a file, whoever made it
    except FileExistsError:
        raise UserError(f"{path} exists now", "another program made it meanwhile", "the same command again") from None
    except OSError as error:
        step = "-o FILE   in a folder that you can write"
        raise UserError(f"cannot save {path}", error.strerror or str(error), step) from error
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def _read_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def list_next_commands(draft: Draft, task: Task, found: Sequence[Finding]) -> tuple[str, ...]:
    """Return what a person types before the launch: the bucket, where it may not exist yet, and a rehearsal.

    Args:
        draft: The answers.
        task: Which they make.
        found: What was checked.
    """
    from orchestrator.drivers import get_driver
    from orchestrator.engine.preparation.candidates import list_candidates
    from orchestrator.storage.address import Address

    guide = get_driver(draft.place.provider).guide
    commands: list[str] = []
    exists = any(one.check == "bucket" and one.verdict == "ok" for one in found)
    if guide is not None and draft.bucket and not exists:
        name = Address.parse(draft.bucket).container
        places = list_candidates(task)
        region = places[0].region if places else ""
        commands.append(f"{guide.bucket.format(name=name, region=region)}   unless it exists")
    return (*commands, *(["orch rehearse {file}   runs it on simulated machines first"] if draft.rents else []))


def _show_plan(output: str, written: TaskText, before: Sequence[str]) -> int:
    """Show the head of the plan and what to type next.

    Args:
        output: The file.
        written: What it holds.
        before: Commands to type before the launch, with {file}.

    Returns:
        The exit status that the plan would have.
    """
    from orchestrator.cli.execution.spending_consent import preview_width
    from orchestrator.client.local_plan import make_preview_plan
    from orchestrator.engine.preparation.commands import prepare_launch
    from orchestrator.engine.training.advice import add_advice
    from orchestrator.plan.preview import render_plan
    from orchestrator.plan.teardown import TeardownPolicy

    ready = prepare_launch(written.task, cluster=None, after=TeardownPolicy.KEEP)
    ready = add_advice(ready, written.task)
    plan, refusal = make_preview_plan(ready), ready.refusal()
    text = render_plan(plan, width=preview_width(sys.stdout), command=None, advice=ready.advice)
    write_stdout("", text.partition("\n\n")[0])
    write_stderr("", *(f"note: {note}" for note in ready.notes))
    file = shlex.quote(output)
    if refusal is not None:
        status = print_error(refusal, debug=current_session().debug)
        write_stderr(f"the file is saved; correct it, then: orch plan {file}")
        return status
    write_stderr("next:", *(f"  {one.format(file=file)}" for one in before), f"  orch launch {file}")
    return 0
