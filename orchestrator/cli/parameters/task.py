"""Options that override fields of a task: shared by launch, plan, train and rehearse."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.parameters.shared import Command, split_pairs
from orchestrator.drivers import list_clouds
from orchestrator.errors import UserError

if TYPE_CHECKING:
    from orchestrator.task.layers import Overrides


class NodeCount(click.ParamType[int | str]):
    """A number of nodes, or a range of it, which the task's own rules check."""

    name = "count"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        text = str(value)
        if all(part.isascii() and part.isdigit() for part in text.split("-", 1)) and "-" in text:
            return text
        return click.IntRange(min=1).convert(value, param, ctx)


_PLACES = ", ".join(f"{driver.name}/REGION/ZONE" for driver in list_clouds())
_OPTIONS = (
    click.option("--infra", help=f"Place: local:4, hosts, {_PLACES}; * for any."),
    click.option(
        "--accelerators", "--gpus", metavar="NAME", help="v5litepod-16, H100:8, auto, ...: see orch accelerators."
    ),
    click.option("--instance-type", metavar="TYPE", help="p5.48xlarge, ..."),
    click.option("--num-nodes", type=NodeCount(), help="Slices or instances; 2-4: the most of these that are there."),
    click.option("--use-spot/--no-use-spot", default=None, help="Spot capacity: cheaper, may be preempted."),
    click.option("--disk-size", type=click.IntRange(min=1), metavar="GB", help="Boot disk."),
    click.option("--image-id", metavar="IMAGE", help="Machine image."),
    click.option("--max-hourly-cost", type=float, metavar="USD", help="Highest price of one slice or instance."),
    click.option(
        "--budget", type=click.FloatRange(min=0, min_open=True), metavar="USD", help="With auto: the most it may cost."
    ),
    click.option("--by", metavar="WHEN", help="With auto: when it has to be done: 36h, 5d, 2026-12-24."),
    click.option("--only", metavar="WORDS", help="With auto: clouds, markets, chips or machines: H100,spot."),
    click.option(
        "--env", multiple=True, metavar="NAME[=VALUE]", help="Environment variable; NAME alone takes the shell's value."
    ),
    click.option(
        "--secret", multiple=True, metavar="NAME[=VALUE]", help="Like --env, but never shown, stored or logged."
    ),
    click.option("--env-file", multiple=True, metavar="FILE", help="A line NAME=VALUE for each --env; --env wins."),
    click.option("--secret-file", multiple=True, metavar="FILE", help="Like --env-file, for --secret."),
    click.option("--workdir", metavar="DIR", help="Folder sent to every host, without files that git ignores."),
    click.option("--bucket", metavar="URI", help="Where checkpoints and logs go: gs://, s3:// or file://."),
    click.option("--checkpoint-every", type=click.IntRange(min=1), metavar="STEPS", help="Steps between checkpoints."),
    click.option(
        "--smoke", is_flag=True, help="With the bundled trainer: a short test on all hosts before each attempt."
    ),
    click.option(
        "--allow-misfit", is_flag=True, help="With the bundled trainer: start although its memory cannot suffice."
    ),
    click.option("--max-preemptions", type=click.IntRange(min=0), help="How often lost hosts are replaced."),
    click.option("--max-failures", type=click.IntRange(min=0), help="How often a failed program is started again."),
    click.option("--max-hours", type=float, help="Delete the machines after this many hours."),
    click.option("--idle-minutes", type=click.IntRange(min=1), help="Delete the machines when idle for this long."),
)


def task_options(command: Command) -> Command:
    """Add the options that override fields of a task."""
    decorated = command
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def make_overrides(
    given: dict[str, Any],
    *,
    backend: str | None = None,
    train_args: tuple[tuple[str, str], ...] = (),
    tokens: str | None = None,
    by_argument: str = "",
) -> Overrides:
    """Return the overrides that the command line contains.

    Args:
        given: The values of `task_options`, by click's names.
        backend: The trainer's backend, where the command has that option.
        train_args: Settings of the bundled trainer.
        tokens: Of the whole run, for `accelerators: auto`.
        by_argument: The field that an argument gave, and no option.

    Raises:
        UserError: The machines are named, and to be chosen.
    """
    from orchestrator.cli.parameters.variable_files import read_variable_files
    from orchestrator.task.automatic import AUTO
    from orchestrator.task.layers import Overrides

    if given["accelerators"] == AUTO and given["instance_type"]:
        name = given["instance_type"]
        raise UserError(f"auto chooses the machines, and --instance-type names {name}", "", f"--only {name}   instead")
    return Overrides(
        by_argument=by_argument,
        infra=given["infra"],
        accelerators=given["accelerators"],
        instance_type=given["instance_type"],
        num_nodes=given["num_nodes"],
        use_spot=given["use_spot"],
        disk_size=given["disk_size"],
        image_id=given["image_id"],
        workdir=given["workdir"],
        bucket=given["bucket"],
        checkpoint_every=given["checkpoint_every"],
        backend=backend,
        smoke=True if given["smoke"] else None,
        allow_misfit=True if given["allow_misfit"] else None,
        max_preemptions=given["max_preemptions"],
        max_failures=given["max_failures"],
        max_hours=given["max_hours"],
        idle_minutes=given["idle_minutes"],
        max_hourly_cost=given["max_hourly_cost"],
        budget=given["budget"],
        by=given["by"],
        only=given["only"],
        tokens=tokens,
        env=(*read_variable_files(given["env_file"], os.environ), *split_pairs(given["env"])),
        secrets=(*read_variable_files(given["secret_file"], os.environ), *split_pairs(given["secret"])),
        train_args=train_args,
    )
