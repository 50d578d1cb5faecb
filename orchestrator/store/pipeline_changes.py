"""Changes of pipelines: tasks that run one after the other."""

from __future__ import annotations

import json
import secrets
from typing import Any

from sqlalchemy import select

from orchestrator.errors import NotFoundError
from orchestrator.store.change import Why
from orchestrator.store.leases import Lease
from orchestrator.store.ledger import Ledger
from orchestrator.store.records import PipelineRecord, pipeline_from_row
from orchestrator.store.schema import pipelines


class PipelineChanges(Ledger):
    """A lease, where one is given, must still be held, or nothing is written and ConflictError is raised."""

    def open_pipeline(self, name: str, tasks: tuple[str, ...], wish: str = "", *, uid: str = "") -> PipelineRecord:
        """tasks: one text a stage. Given a `uid` a second time, it is the pipeline that was opened first."""
        uid = uid or secrets.token_hex(8)
        with self.changing() as change:
            values: dict[str, Any] = {
                "uid": uid,
                "name": name,
                "tasks": json.dumps(tasks),
                "stage": 0,
                "state": "running",
                "created": change.at,
                "wish": wish,
            }
            change.insert(pipelines, values, _why(f"{name} opened: {len(tasks)} stages"))
        return self.pipeline(uid)

    def pipeline(self, uid: str) -> PipelineRecord:
        """Raises NotFoundError when there is none."""
        found = self._read_first(select(pipelines).where(pipelines.c.uid == uid), pipeline_from_row)
        if found is None:
            raise NotFoundError(f"no pipeline {uid}", next_step="orch status")
        return found

    def pipelines(self) -> tuple[PipelineRecord, ...]:
        """All, oldest first."""
        return self._read_all(select(pipelines).order_by(pipelines.c.created, pipelines.c.uid), pipeline_from_row)

    def advance_pipeline(self, uid: str, stage: int, *, lease: Lease | None = None) -> None:
        """`stage` is at work now. Only forward, and only while it runs: otherwise nothing is changed."""
        with self.changing(lease) as change:
            row = change.tx.execute(select(pipelines).where(pipelines.c.uid == uid)).mappings().one()
            if row["state"] == "running" and row["stage"] < stage:
                change.update(pipelines, {"uid": uid}, {"stage": stage}, _why(f"{row['name']}: stage {stage}"))

    def end_pipeline(self, uid: str, state: str, status: int, what: str, *, lease: Lease | None = None) -> None:
        """state: ended or cancelled. Set once: a pipeline that is over keeps what it has."""
        with self.changing(lease) as change:
            row = change.tx.execute(select(pipelines).where(pipelines.c.uid == uid)).mappings().one()
            if row["state"] == "running":
                values = {"state": state, "status": status, "what": what, "ended": change.at}
                change.update(pipelines, {"uid": uid}, values, _why(f"{row['name']} {state}: {what}", what))


def _why(what: str, cause: str = "") -> Why:
    return Why("", "pipeline", what, cause)
