"""The stage at which a launch of a pipeline begins: the first, the one that failed, or the one that a person names."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.engine.unattended.pipeline_spec import PipelineSpec
from orchestrator.store.read import Reader
from orchestrator.store.records import PipelineRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStart:
    """The begin of a launch.

    Attributes:
        stage: Index of the first stage that runs.
        continued: The unended pipeline of the same tasks that continues; None for a new one.
        replaced: Unended pipelines of the same name, which end before the new one begins.
        note: Where it begins and why, in one line; "" for a new one at the first stage.
    """

    stage: int = 0
    continued: PipelineRecord | None = None
    replaced: tuple[PipelineRecord, ...] = ()
    note: str = ""


def choose_start(store: Reader, spec: PipelineSpec, begin: str = "") -> PipelineStart:
    """Return where a launch begins.

    Args:
        store: Open, in the project of the pipeline.
        spec: The pipeline.
        begin: The stage that a person names; "" for none.

    Raises:
        UserError: There is no such stage.
    """
    named = [
        one
        for one in store.pipelines(ended=True)
        if (one.project, one.name) == (store.project, spec.name) and one.owner in ("", store.member)
    ]
    unended = tuple(one for one in named if one.state == "running")
    chosen = spec.find_stage(begin) if begin else None
    same = [one for one in unended if _is_same(one, spec) and one.may_continue and chosen in (None, one.stage)]
    if same:
        note = f"pipeline '{spec.name}' resumes at {same[-1].describe_stage()}"
        others = tuple(one for one in unended if one.uid != same[-1].uid)
        return PipelineStart(stage=same[-1].stage, continued=same[-1], replaced=others, note=note)
    if chosen is not None:
        note = f"pipeline '{spec.name}' begins at {_describe(spec, chosen)}; stages before it are not run"
        return PipelineStart(stage=chosen, replaced=unended, note=note)
    last = named[-1] if named else None
    if last is None or last.status == 0 or last.stage == 0:
        return PipelineStart(replaced=unended)
    stage, note = _resume_after(store, spec, last)
    return PipelineStart(stage=stage, replaced=unended, note=note)


def _resume_after(store: Reader, spec: PipelineSpec, last: PipelineRecord) -> tuple[int, str]:
    """Return the first stage after a pipeline that did not succeed, and why it is that one."""
    failed, name = last.describe_stage(), last.name_stage(last.stage) or str(last.stage + 1)
    there = f"to begin there: --from {name}"
    if not _is_same(last, spec):
        return 0, f"pipeline '{spec.name}' begins at stage 1: its tasks changed since {failed} ended; {there}"
    if last.shared_cluster and not _is_cluster_of(store, last):
        why = f"the cluster '{last.shared_cluster}' of {failed} was deleted since"
        return 0, f"pipeline '{spec.name}' begins at stage 1: {why}; {there}"
    return last.stage, f"pipeline '{spec.name}' resumes at {failed}; stages before it are not run again"


def _is_same(record: PipelineRecord, spec: PipelineSpec) -> bool:
    return record.uid.rpartition("-")[0] == spec.uid


def _is_cluster_of(store: Reader, last: PipelineRecord) -> bool:
    """Return whether the cluster that the stages shared still exists: their files are on it."""
    cluster = store.cluster(last.shared_cluster)
    return cluster is not None and (last.ended is None or cluster.created <= last.ended)


def _describe(spec: PipelineSpec, index: int) -> str:
    name = spec.tasks[index].name
    return f"stage {index + 1} of {len(spec.tasks)}" + (f" ({name})" if name else "")
