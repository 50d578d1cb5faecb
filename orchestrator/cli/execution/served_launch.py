"""The order of `orch launch` and `orch train` for a service: the task is read here, and machines are rented there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from orchestrator.cli.execution.act import carry_out_order
from orchestrator.cli.execution.served_commands import refuse_through_service
from orchestrator.client.choose import open_orders
from orchestrator.client.orders import Order
from orchestrator.errors import UserError

if TYPE_CHECKING:
    from orchestrator.cli.execution.act import ActMode
    from orchestrator.task.parse import TaskFile

_MACHINE_OPTIONS = (
    "infra",
    "use_spot",
    "num_nodes",
    "disk_size",
    "image_id",
)  # see engine/preparation/cluster_match.py


def launch_served(
    file: TaskFile,
    mode: ActMode,
    *,
    cluster: str | None,
    down: bool,
    given: Mapping[str, object],
    refused: Mapping[str, object],
) -> int:
    """Launch the one task of a file through the service, and return the exit status.

    Args:
        file: What was read on this computer, with its variables, configuration and options.
        mode: Whether to show the plan or to perform it.
        cluster: The name that was given.
        down: Whether the machines are deleted when the program has ended.
        given: Options of the task, by click's names.
        refused: Options without meaning there, by their names on the command line: whether each was given.

    Raises:
        OrchError: Nothing was ordered.
    """
    refuse_through_service(refused)
    _refuse_pipeline(file)
    _refuse_unplaced(file)
    _refuse_secret_values(file)
    from orchestrator.client.sent_files import name_files

    files = name_files(file.only)
    order = Order(
        verb="launch",
        cluster=cluster or "",
        down=down,
        files=files,
        machine_options={name: given[name] is not False for name in _MACHINE_OPTIONS if given.get(name) is not None},
        notes=(*file.notes, *files.notes.notes),
    )
    with open_orders() as orders:
        return carry_out_order(orders, orders.plan(order), mode)


def _refuse_pipeline(file: TaskFile) -> None:
    if len(file.tasks) > 1:
        why = f"{file.file} has {len(file.tasks)} tasks, and an order is about one"
        step = "launch each task from its own file, or without the service: unset ORCH_SERVER"
        raise UserError("a pipeline does not work through a service", why, step)


def _refuse_unplaced(file: TaskFile) -> None:
    """Refuse a task that would run on this computer, because nothing names a machine for it."""
    if file.local_by_default:
        why = "through a service nothing runs on this computer"
        raise UserError("no machine is requested", why, "name one: --infra CLOUD, or `resources` in the task file")


def _refuse_secret_values(file: TaskFile) -> None:
    """Refuse values of secrets: a secret stays where it is, and the service has others."""
    written = file.layers[0].data.get("secrets")
    values = cast("dict[str, Any]", written) if isinstance(written, dict) else {}
    for name, value in values.items():
        if value is not None:
            why = "values of secrets are never sent to a service, which has others"
            step = f"name it without a value, --secret {name}, where the service has it; or: unset ORCH_SERVER"
            raise UserError(f"the value of secret {name} stays on this computer", why, step)
