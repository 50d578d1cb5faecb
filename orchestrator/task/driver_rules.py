"""What drivers know of tasks for their machines: each is the value RULES of the module `task_rules` of its folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from orchestrator.catalog.machines import Machine
from orchestrator.drivers import has_part, list_driver_names, load_part
from orchestrator.task.errors import InvalidValueError, Issue
from orchestrator.task.infra import Infra

if TYPE_CHECKING:
    from orchestrator.task.model import Task
    from orchestrator.task.resources import AcceleratorArgs, Resources
    from orchestrator.task.yaml_reader import Document


class TaskRules:
    """A driver without any rules; a driver overrides what it knows. All is pure.

    Attributes:
        most_labels: How many labels the user may have; None without a limit.
    """

    most_labels: int | None = None

    def refuse_documents(self, documents: Sequence[Document], text: str, file: str) -> None:
        """Refuse a file before its fields are read.

        Raises:
            TaskError: The file asks for something that its vendor has ended.
        """

    def name_machine(self, name: str, args: Any) -> str:
        """Return the name of an accelerator with what `accelerator_args` adds to it.

        Raises:
            OrchError: The two contradict each other.
        """
        del args
        return name

    def resolve_args(self, args: AcceleratorArgs, machine: Machine) -> AcceleratorArgs:
        """Return `accelerator_args` as resolved for a machine that this driver rents out.

        Raises:
            InvalidValueError: A value means nothing.
        """
        del machine
        return args

    def list_notes(self, infra: Infra, machine: Machine) -> list[str]:
        """Return what was understood of a machine that this driver rents out, and is good to know."""
        del infra, machine
        return []

    def find_machine_conflicts(self, choice: Resources) -> Iterator[Issue]:
        """Yield what makes no sense for a machine of this driver's, wherever it stands."""
        yield from ()

    def find_conflicts(self, task: Task, choice: Resources) -> Iterator[Issue]:
        """Yield what makes no sense for a choice that this driver serves."""
        yield from ()

    def find_label_problem(self, key: str, value: str) -> InvalidValueError | None:
        """Return why a label of the user's is not possible, or None."""
        del key, value
        return None


@cache
def load_rules(name: str) -> TaskRules:
    """Return the rules of a driver; "" and drivers without any have none."""
    return (
        cast(TaskRules, load_part(name, "task_rules").RULES) if name and has_part(name, "task_rules") else TaskRules()
    )


def list_rules() -> tuple[TaskRules, ...]:
    """Return the rules of all drivers."""
    return tuple(map(load_rules, list_driver_names()))
