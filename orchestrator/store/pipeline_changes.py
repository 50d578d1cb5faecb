"""Changes of pipelines: tasks that run one after the other."""

from __future__ import annotations

import json
import secrets
from typing import Any

from sqlalchemy import select

from orchestrator.errors import NotFoundError
from orchestrator.store.change import Change, EventDetails
from orchestrator.store.leases import Lease
from orchestrator.store.ledger import Ledger
from orchestrator.store.records import PipelineRecord, pipeline_from_row
from orchestrator.store.schema import pipelines


class PipelineChanges(Ledger):
    """The changes of pipelines.

    A method that is given a lease writes nothing and raises ConflictError when the lease is no longer held.
    """

    def open_pipeline(
        self, name: str, tasks: tuple[str, ...], launch_request: str = "", *, uid: str = ""
    ) -> PipelineRecord:
        """Open a pipeline with one task as JSON for each stage. A `uid` that exists returns that pipeline unchanged."""
        uid = uid or secrets.token_hex(8)
        with self.changing() as change:
            values: dict[str, Any] = {
                "uid": uid,
                "name": name,
                "tasks": json.dumps(tasks),
                "stage": 0,
                "state": "running",
                "created": change.at,
                "wish": launch_request,
            }
            change.insert(pipelines, values, _details(f"{name} opened: {len(tasks)} stages"))
        return self.pipeline(uid)

    def pipeline(self, uid: str) -> PipelineRecord:
        """Return one pipeline. Raises NotFoundError when there is none."""
        found = self._read_first(select(pipelines).where(pipelines.c.uid == uid), pipeline_from_row)
        if found is None:
            raise NotFoundError(f"no pipeline {uid}", next_step="orch status")
        return found

    def pipelines(self) -> tuple[PipelineRecord, ...]:
        """Return all pipelines, oldest first."""
        return self._read_all(select(pipelines).order_by(pipelines.c.created, pipelines.c.uid), pipeline_from_row)

    def advance_pipeline(self, uid: str, stage: int, *, lease: Lease | None = None) -> None:
        """Record the current stage. Only a later stage of a running pipeline changes anything."""
        with self.changing(lease) as change:
            record = _read_pipeline(change, uid)
            if record.state == "running" and record.stage < stage:
                change.update(pipelines, {"uid": uid}, {"stage": stage}, _details(f"{record.name}: stage {stage}"))

    def end_pipeline(self, uid: str, state: str, status: int, what: str, *, lease: Lease | None = None) -> None:
        """End a pipeline with the state "ended" or "cancelled", once: one that is over keeps its outcome."""
        with self.changing(lease) as change:
            record = _read_pipeline(change, uid)
            if record.state == "running":
                values = {"state": state, "status": status, "what": what, "ended": change.at}
                change.update(pipelines, {"uid": uid}, values, _details(f"{record.name} {state}: {what}", what))


def _read_pipeline(change: Change, uid: str) -> PipelineRecord:
    return pipeline_from_row(change.tx.execute(select(pipelines).where(pipelines.c.uid == uid)).mappings().one())


def _details(what: str, cause: str = "") -> EventDetails:
    return EventDetails(cluster="", kind="pipeline", what=what, cause=cause)
