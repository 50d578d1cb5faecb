"""`orch launch` and `orch plan`: perform a task file, or show its plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.execution.act import ActMode, PerformMode, PreviewMode
from orchestrator.cli.execution.local_checks import carry_out_checked
from orchestrator.cli.execution.local_consent import ask_before_running_here
from orchestrator.cli.parameters.clusters import CLUSTER
from orchestrator.cli.parameters.shared import (
    ACCEPT_HOST_KEY,
    LocalChecks,
    action_options,
    form_of,
    local_check_options,
)
from orchestrator.cli.parameters.task import make_overrides, task_options
from orchestrator.cli.parameters.task_argument import join_command, load_task_argument, task_argument
from orchestrator.client.choose import open_orders
from orchestrator.client.orders import Order
from orchestrator.errors import UserError

_CLUSTER_HELP = "Name of the cluster, new or existing; default: the task's name."
_DOWN_HELP = "Delete the hosts when the program has ended, successfully or not."
_FORCE_SETUP_HELP = "Run setup again, even where it has succeeded."
_SKIPS = "the question before money is spent, and the one before a task without a machine runs on this computer"
_FROM_HELP = "Of a file with several tasks: begin at this one, by its name or number. Default: the one that has failed."
_WRITE_HELP = "Rewrite a task that asks for what its vendor has ended, such as TPU Nodes; do nothing else."


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch launch examples/train-local.yaml", "provision, set up, run, follow"),
        (
            "orch launch task.yaml -c mine --accelerators v5litepod-16 --use-spot --dry-run",
            "everything that would be done",
        ),
        ("orch launch task.yaml -c mine --env LR=0.1 --secret HF_TOKEN --detach", "leave it to an unattended engine"),
        ("orch launch --infra local:2 'hostname; nproc'", "one command instead of a task file"),
        ("orch launch pipe.yaml --from train", "several tasks, from the one with this name on"),
        ("sed s/LR/0.1/ task.yaml | orch launch - --yes", "a task from standard input"),
    ],
)
@task_argument
@click.option("-c", "--cluster", type=CLUSTER, help=_CLUSTER_HELP)
@task_options
@click.option("--down", is_flag=True, help=_DOWN_HELP)
@click.option("--force-setup", is_flag=True, help=_FORCE_SETUP_HELP)
@click.option("--from", "begin", metavar="STAGE", default="", help=_FROM_HELP)
@click.option("--write", is_flag=True, help=_WRITE_HELP)
@ACCEPT_HOST_KEY
@local_check_options
@action_options(detachable=True, shows_output=True, skips=_SKIPS)
@click.pass_context
def launch(
    ctx: click.Context,
    /,
    task: tuple[str, ...],
    cluster: str | None,
    down: bool,
    force_setup: bool,
    begin: str,
    write: bool,
    accept_host_keys: bool,
    local_checks: LocalChecks,
    mode: ActMode,
    **given: Any,
) -> None:
    """Provision hosts for a task file, set them up, and run its program on all of them.

    Words that are no file are a command for the shell of the hosts; `-` reads a task from standard input.

    On an existing cluster only changes are sent, and setup runs again only when it changed. The same command again
    resumes an interrupted launch. Several tasks in one file run one after the other: a pipeline, which the same
    command resumes at the stage that failed.
    """
    more = _More(write=write, local_checks=local_checks, accept=accept_host_keys, begin=begin)
    ctx.exit(_carry_out(task, cluster, down, force_setup, given, mode, more))


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch plan task.yaml", "machines, price, limits and every step, on one screen"),
        ("orch plan task.yaml -v", "with every request and script"),
        ("orch plan task.yaml -o json", "the same for programs; schema: orchestrator/plan/data/plan.schema.json"),
        ("orch plan task.yaml -o sh > by-hand.sh", "the same as a shell script"),
        ("orch plan task.yaml --compile", "whether the training step fits the TPU slice, by its own compiler"),
    ],
)
@task_argument
@click.option("-c", "--cluster", type=CLUSTER, help=_CLUSTER_HELP)
@task_options
@click.option("--down", is_flag=True, help=_DOWN_HELP)
@click.option("--force-setup", is_flag=True, help=_FORCE_SETUP_HELP)
@click.option("--write", is_flag=True, help=_WRITE_HELP)
@local_check_options
@click.option("-o", "--output", type=click.Choice(["text", "json", "sh"]), default="text", show_default=True)
@click.option("-v", "--verbose", is_flag=True, help="Show every request and script.")
@click.pass_context
def plan(
    ctx: click.Context,
    /,
    task: tuple[str, ...],
    cluster: str | None,
    down: bool,
    force_setup: bool,
    write: bool,
    output: str,
    verbose: bool,
    local_checks: LocalChecks,
    **given: Any,
) -> None:
    """Show everything a launch would do. Needs no network and no credentials; nothing is done."""
    mode = PreviewMode(form_of(output), verbose)
    more = _More(write=write, local_checks=local_checks)
    ctx.exit(_carry_out(task, cluster, down, force_setup, given, mode, more))


@dataclass(frozen=True, slots=True, kw_only=True)
class _More:
    """Further options: --write, checks on this computer, --accept-host-key, and the stage of a pipeline to begin at."""

    write: bool
    local_checks: LocalChecks
    accept: bool = False
    begin: str = ""


def _carry_out(
    words: tuple[str, ...],
    cluster: str | None,
    down: bool,
    force_setup: bool,
    given: dict[str, Any],
    mode: ActMode,
    more: _More,
) -> int:
    from orchestrator.task.errors import OutdatedTaskError

    with open_orders() as orders:
        try:
            file = load_task_argument(words, make_overrides(given), elsewhere=orders.elsewhere)
        except OutdatedTaskError as error:
            from orchestrator.cli.commands.run.outdated_task import offer_rewrite

            return offer_rewrite(error, write=more.write, quiet=_for_a_program(mode))
        if more.write:
            from orchestrator.cli.commands.run.outdated_task import no_rewrite_error

            raise no_rewrite_error(join_command(words))
        asks = isinstance(mode, PerformMode) and not mode.consent and not orders.elsewhere
        if asks and file.local_by_default:
            ask_before_running_here(file.local_by_default)
        if more.begin and len(file.tasks) == 1:
            raise UserError("--from is for a file with several tasks", f"{file.file} has one", "leave --from out")
        if len(file.tasks) > 1 and not orders.elsewhere and not more.local_checks.requested:
            from orchestrator.cli.commands.run.pipeline import carry_out_pipeline, pipeline_spec

            pipeline = pipeline_spec(file, cluster, down, accept_host_keys=more.accept)
            return carry_out_pipeline(pipeline, mode, more.begin)
        here_only = {
            **more.local_checks.options,
            "--force-setup": force_setup,
            "--accept-host-key": more.accept,
            "--from": bool(more.begin),
        }
        order = Order(
            verb="launch",
            cluster=cluster or "",
            down=down,
            file=file,
            options=given,
            force_setup=force_setup,
            accept_host_keys=more.accept,
            here_only=here_only,
        )
        return carry_out_checked(orders, orders.plan(order), mode, more.local_checks)


def _for_a_program(mode: ActMode) -> bool:
    """Return whether stdout is read by a program."""
    return mode.form != "text" if isinstance(mode, PreviewMode) else mode.as_json
