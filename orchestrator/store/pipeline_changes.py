"""Changes of pipelines: tasks that run one after the other."""

from __future__ import annotations

import json
import secrets
from typing import Any

from sqlalchemy import func, select

from orchestrator.errors import NotFoundError
from orchestrator.store.change import EventDetails, Guard, RowChange, complete_row, insert_row, update_row
from orchestrator.store.leases import Lease
from orchestrator.store.ledger import Ledger
from orchestrator.store.records import PipelineRecord, pipeline_from_row
from orchestrator.store.schema import UNENDED_PIPELINE, pipelines


class PipelineChanges(Ledger):
    """The changes of pipelines.

    A method that is given a lease writes nothing and raises ConflictError when the lease is no longer held.
    """

    def open_pipeline(
        self, name: str, tasks: tuple[str, ...], launch_request: str = "", *, uid: str = "", stage: int = 0
    ) -> PipelineRecord:
        """Open a pipeline with one task as JSON for each stage. A `uid` that exists returns that pipeline unchanged.

        Args:
            name: its name.
            tasks: in order.
            launch_request: JSON from which another process prepares the stages again.
            uid: its id; "" for a new one.
            stage: index of the first stage that runs.
        """
        uid = uid or secrets.token_hex(8)
        at = self._now()
        values: dict[str, Any] = {
            "uid": uid,
            "name": name,
            "tasks": json.dumps(tasks),
            "stage": stage,
            "state": "running",
            "created": at,
            "launch_request": launch_request,
        }
        begin = f", from stage {stage + 1}" if stage else ""
        opened = insert_row(pipelines, values, _details(f"{name} opened: {len(tasks)} stages{begin}"))
        if self.change(opened, at=at) == (True,):
            return pipeline_from_row(complete_row(pipelines, values))
        return self.pipeline(uid)

    def pipeline(self, uid: str) -> PipelineRecord:
        """Return one pipeline. Raises NotFoundError when there is none."""
        found = self._read_first(select(pipelines).where(pipelines.c.uid == uid), pipeline_from_row)
        if found is None:
            raise NotFoundError(f"no pipeline {uid}", next_step="orch status")
        return found

    def unended_pipelines(self) -> tuple[PipelineRecord, ...]:
        """Return the pipelines that have not ended, oldest first."""
        query = select(pipelines).where(UNENDED_PIPELINE).order_by(pipelines.c.created, pipelines.c.uid)
        return self._read_all(query, pipeline_from_row)

    def count_pipelines(self, beginning: str) -> int:
        """Return how many pipelines have a uid with this beginning, the ended ones too."""
        named = pipelines.c.uid.startswith(beginning, autoescape=True)
        return self._read_one(select(func.count().label("number")).where(named), lambda row: int(row["number"]))

    def set_launch_request(self, uid: str, launch_request: str) -> None:
        """Replace the request from which another process prepares the stages of a pipeline that may continue."""
        for at in self._tries(f"pipeline {uid}"):
            record = self.pipeline(uid)
            change = _update(uid, {"launch_request": launch_request}, f"{record.name} handed over again")
            changes = [change] * record.may_continue
            if self.change(*changes, at=at, guards=(guard_pipeline(record),)) is not None:
                return

    def request_pipeline_end(self, uid: str, verb: str) -> None:
        """Record that a running pipeline is being ended, so that no stage of it starts any more.

        Args:
            uid: of the pipeline.
            verb: the command that ends it, "cancel" or "down"; a later "down" replaces a "cancel".
        """
        for at in self._tries(f"pipeline {uid}"):
            record = self.pipeline(uid)
            request = record.add_settings({"ending": verb})
            changes = record.state == "running" and record.requested_end not in (verb, "down")
            change = _update(uid, {"launch_request": request}, f"{record.name} is being ended ({verb})")
            if self.change(*[change] * changes, at=at, guards=(guard_pipeline(record),)) is not None:
                return

    def advance_pipeline(self, uid: str, stage: int, *, lease: Lease | None = None) -> None:
        """Record the current stage. Only a later stage of a running pipeline changes anything."""
        for at in self._tries(f"pipeline {uid}"):
            record = self.pipeline(uid)
            advances = record.state == "running" and record.stage < stage
            change = _update(uid, {"stage": stage}, f"{record.name}: stage {stage}")
            if self.change(*[change] * advances, at=at, lease=lease, guards=(guard_pipeline(record),)) is not None:
                return

    def end_pipeline(self, uid: str, state: str, status: int, what: str, *, lease: Lease | None = None) -> None:
        """End a pipeline with the state "ended" or "cancelled", once: one that is over keeps its outcome."""
        for at in self._tries(f"pipeline {uid}"):
            record = self.pipeline(uid)
            values = {"state": state, "status": status, "what": what, "ended": at}
            change = _update(uid, values, f"{record.name} {state}: {what}", what)
            ends = record.state == "running"
            if self.change(*[change] * ends, at=at, lease=lease, guards=(guard_pipeline(record),)) is not None:
                return


def guard_pipeline(pipeline: PipelineRecord) -> Guard:
    """Return the guard of a change that the pipeline is as it was read."""
    values = {"state": pipeline.state, "stage": pipeline.stage, "launch_request": pipeline.launch_request}
    return Guard(table=pipelines, key={"uid": pipeline.uid}, values=values)


def _update(uid: str, values: dict[str, Any], what: str, cause: str = "") -> RowChange:
    return update_row(pipelines, {"uid": uid}, values, _details(what, cause))


def _details(what: str, cause: str = "") -> EventDetails:
    return EventDetails(cluster="", kind="pipeline", what=what, cause=cause)
