"""Machines for tasks that leave them to orch, among the clouds of which this computer has credentials."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.task.automatic import ChosenMachines
    from orchestrator.task.model import TaskSection


def choose_machines_here(section: TaskSection, *, project: str = "") -> ChosenMachines:
    """Choose the machines of a task (task.automatic.ChooseMachines). Reads files and records, sends nothing.

    Args:
        section: The task.
        project: Whose records of lost machines count; "" for that of the environment.

    Raises:
        UserError: Nothing fits.
    """
    from orchestrator.engine.training.automatic import open_chooser
    from orchestrator.setup_guide.surroundings import find_clouds

    return open_chooser([place.infra for place in find_clouds(os.environ, Path.home())], project)(section)


def choose_machines_elsewhere(section: TaskSection) -> ChosenMachines:
    """Choose the machines of a task for a service, whose credentials are not known here: among all clouds.

    Raises:
        UserError: Nothing fits.
    """
    from orchestrator.engine.training.automatic import open_chooser

    return open_chooser(())(section)
