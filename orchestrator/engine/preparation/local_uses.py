"""What of this computer a task would use, as far as the task itself names it.

Asked of tasks that others wrote: records from a bucket, and tasks that members send to the service. Nothing here reads
a file, a variable or a host that the task names.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.options import list_options
from orchestrator.task.driver_sections import list_driver_options
from orchestrator.task.infra import LOCAL, SIMULATED
from orchestrator.task.model import Task

LONGEST_LINE = 2_000  # characters that are shown
THIS_COMPUTER = "infra:local"


@dataclass(frozen=True, slots=True)
class LocalUse:
    """Something of this computer that a task would use.

    Attributes:
        name: As the task writes it, and as `--allow` names it.
        purpose: What happens to it.
    """

    name: str
    purpose: str


def list_local_uses(task: Task, bucket: str = "") -> Iterator[LocalUse]:
    """Yield what of this computer a task would use, as far as the task itself names it.

    Args:
        task: The task.
        bucket: The bucket that it came from; it is not listed.
    """
    if any(one.infra.provider in (LOCAL, SIMULATED) for one in task.choices):
        yield LocalUse(THIS_COMPUTER, "setup and run are executed on this computer, as you")
    if isinstance(task.workdir, str):
        yield LocalUse(task.workdir, f"the folder {_absolute(task.workdir)} is copied to the hosts")
    for mount in task.file_mounts:
        if not mount.from_bucket:
            use = f"{_absolute(mount.source)} is copied to the hosts, as {show_line(mount.target)}"
            yield LocalUse(mount.source, use)
        elif mount.source.startswith("file://"):
            yield LocalUse(mount.source, f"its files are copied, as {show_line(mount.target)}")
    place = task.checkpoint.bucket
    if place.startswith("file://") and place.rstrip("/") != bucket.rstrip("/"):
        yield LocalUse(place, "checkpoints, metrics and logs are written there")
    for name in task.secret_names:
        yield LocalUse(name, "the value of this variable of your environment is sent to the hosts")
    for host in task.hosts:
        yield LocalUse(str(host), "a login there with your SSH agent, keys and ~/.ssh/config")
        if host.key:
            yield LocalUse(host.key, "this private key is used to log in")
        if host.jump:
            yield LocalUse(host.jump, "a login there, as jump host, with your SSH agent, keys and ~/.ssh/config")
    yield from _list_driver_uses(task)


def _list_driver_uses(task: Task) -> Iterator[LocalUse]:
    """Yield what of this computer the settings of the drivers would use."""
    for name, options in list_driver_options().items():
        for option in list_options(options.kind):
            if option.spec.where == "args" and option.spec.local_use:
                given = [getattr(choice.accelerator_args, option.key) for choice in task.choices]
                yield from (LocalUse(value, option.spec.local_use) for values in given for value in values)
            value = getattr(task.settings(name), option.key) if option.spec.where == "settings" else ""
            if value and option.spec.hops:
                yield LocalUse(value, "a login there, as jump host, with your SSH agent, keys and ~/.ssh/config")
            elif value and option.spec.local_use:
                yield LocalUse(value, option.spec.local_use)


def _absolute(path: str) -> str:
    return show_line(os.path.abspath(os.path.expanduser(path)))  # noqa: PTH100, PTH111  # Path raises for unknown users


def escape_unprintable(text: str) -> str:
    """Return the text on one line, each character that a terminal would not show written out."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def show_line(line: str) -> str:
    """Return one line with nothing in it that a terminal would act on, and of bounded length."""
    shown = escape_unprintable(line)
    left = len(shown) - LONGEST_LINE
    return shown if left <= 0 else f"{shown[:LONGEST_LINE]}… ({left:,} more characters)"
