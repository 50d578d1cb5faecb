"""What makes no sense on the invented cloud."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orchestrator.task.driver_rules import TaskRules
from orchestrator.task.errors import Issue


class AcmeRules(TaskRules):
    """It has no spot machines."""

    most_labels = 1

    def find_conflicts(self, task: Any, choice: Any) -> Iterator[Issue]:
        if choice.use_spot:
            yield Issue(path=("resources", "use_spot"), what="Acme has no spot machines", next_step="remove it")


RULES = AcmeRules()
