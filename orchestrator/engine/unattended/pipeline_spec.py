"""A pipeline as a person asks for it, and its stages as prepared launches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from orchestrator.engine.preparation import commands
from orchestrator.engine.preparation.prepared import PreparedCommand
from orchestrator.errors import UserError
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.store.records import PipelineRecord
from orchestrator.task.model import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSpec:
    """A pipeline.

    Attributes:
        name: Its name.
        tasks: In order.
        cluster: All stages run on this one; "" for a cluster per stage, ended after it.
        down: Whether the shared cluster is taken down after the last stage.
        accept_host_keys: See PreparedCommand.
    """

    name: str
    tasks: tuple[Task, ...]
    cluster: str = ""
    down: bool = False
    accept_host_keys: bool = False

    @classmethod
    def from_record(cls, record: PipelineRecord) -> PipelineSpec:
        """Return the spec of a pipeline on record, with the secrets that this environment has."""
        settings = read_settings(record)
        return cls(
            name=record.name,
            tasks=tuple(commands.add_secrets_from_environment(Task.from_json(task)) for task in record.tasks),
            cluster=record.shared_cluster,
            down=settings["down"],
            accept_host_keys=settings["accept_host_keys"],
        )

    @property
    def uid(self) -> str:
        """An id that is the same for the same command, so that it continues its earlier pipeline."""
        content = json.dumps([self.name, self.cluster, *(task.to_compared() for task in self.tasks)])
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def find_stage(self, stage: str) -> int:
        """Return the index of a stage that a person names by its task's name, or by its number from 1.

        Raises:
            UserError: There is none.
        """
        names = [task.name for task in self.tasks]
        if stage in names:
            return names.index(stage)
        if stage.isdecimal() and 1 <= int(stage) <= len(names):
            return int(stage) - 1
        known = ", ".join(f"{number} ({name})" if name else str(number) for number, name in enumerate(names, start=1))
        what = f"--from {stage}: pipeline '{self.name}' has no such stage"
        raise UserError(what, f"its stages are {known}", "name one of them, or leave --from out")


def prepare_stages(spec: PipelineSpec, begin: int = 0) -> tuple[PreparedCommand, ...]:
    """Prepare every stage from the one with the index `begin` on, for a preview."""
    return tuple(prepare_stage(spec, index) for index in range(begin, len(spec.tasks)))


def prepare_stage(
    spec: PipelineSpec, index: int, kept: Mapping[str, str] = MappingProxyType({}), project: str = ""
) -> PreparedCommand:
    """Prepare a stage. Its own cluster is ended after it; a shared one after the last stage, if requested.

    Args:
        spec: The pipeline.
        index: The stage.
        kept: The digests of kept trees to send in place of the originals, by label.
        project: The project of the clusters; "" for that of the environment.
    """
    ends = not spec.cluster or (spec.down and index == len(spec.tasks) - 1)
    after = TeardownPolicy.DOWN if ends else TeardownPolicy.KEEP
    cluster = spec.cluster or f"{spec.name}-{index + 1}"
    return commands.prepare_launch(spec.tasks[index], cluster=cluster, after=after, kept=kept, project=project)


def read_settings(record: PipelineRecord) -> dict[str, Any]:
    """Return the settings of a pipeline on record, with their defaults."""
    found: dict[str, Any] = json.loads(record.launch_request or "{}")
    return {"cluster": "", "down": False, "accept_host_keys": False, **found}
