"""A task file with several tasks: preview its stages, run them in order, or leave them to an unattended engine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.execution.act import (
    ActMode,
    PerformMode,
    PreviewMode,
    carry_out,
    show_stages_as_json,
)
from orchestrator.cli.execution.missing_files_consent import agree_to_missing_files
from orchestrator.cli.execution.spending_consent import agree_to_costs
from orchestrator.errors import UserError
from orchestrator.exits import Exit

if TYPE_CHECKING:
    from orchestrator.engine.unattended.pipeline import PipelineSpec
    from orchestrator.task.parse import TaskFile


def pipeline_spec(file: TaskFile, cluster: str | None, down: bool, *, accept_host_keys: bool = False) -> PipelineSpec:
    """Return the pipeline that the file describes.

    Raises:
        UserError: The file requests parallel execution, which is not supported.
    """
    from orchestrator.engine.unattended.pipeline import PipelineSpec
    from orchestrator.task.parse import Execution

    if file.execution is not Execution.SERIAL:
        why = "the tasks of a parallel group find each other by host names that orch does not give"
        step = "write execution: serial, or launch each task on its own cluster with --detach"
        raise UserError(f"{file.file}: execution: {file.execution} is not supported", why, step)
    name = file.name or cluster or "pipeline"
    accept = accept_host_keys
    return PipelineSpec(name=name, tasks=file.tasks, cluster=cluster or "", down=down, accept_host_keys=accept)


def carry_out_pipeline(pipeline: PipelineSpec, mode: ActMode) -> int:
    """Preview or perform the stages; return the exit status of the stage that ended it."""
    from orchestrator.client.local_orders import LocalOrders
    from orchestrator.client.local_plan import LocalPlan
    from orchestrator.engine.training.advice import add_advice
    from orchestrator.engine.unattended.pipeline import prepare_stages

    prepared = tuple(
        add_advice(ready, task) for ready, task in zip(prepare_stages(pipeline), pipeline.tasks, strict=True)
    )
    if isinstance(mode, PreviewMode):
        if mode.form == "json":
            return show_stages_as_json(pipeline.name, prepared)
        statuses: list[int] = []
        for index, ready in enumerate(prepared):
            if mode.form == "text":
                write_stdout(f"Stage {index + 1} of {len(prepared)}", "")
            statuses.append(carry_out(ready, mode))
        return next((status for status in statuses if status), Exit.OK)
    for ready in prepared:
        agree_to_missing_files(ready.doubts, agreed=mode.consent)
        agree_to_costs(LocalOrders(), LocalPlan(ready), agreed=mode.consent)
    return _run(pipeline, mode) if mode.follow else _leave_to_engine(pipeline)


def _leave_to_engine(pipeline: PipelineSpec) -> int:
    from orchestrator.engine.unattended.handover import start_engine
    from orchestrator.engine.unattended.pipeline import hand_over_pipeline

    record = hand_over_pipeline(pipeline)
    start_engine({secret.name: secret.value for task in pipeline.tasks for secret in task.secrets})
    write_stderr(
        f"pipeline '{record.name}' ({len(record.tasks)} stages) is handed to an unattended engine; see: orch queue"
    )
    return Exit.OK


def _run(pipeline: PipelineSpec, mode: PerformMode) -> int:
    import json

    from orchestrator.cli.drawing.narrator import TerminalNarrator
    from orchestrator.cli.drawing.outcomes import ending_as_json, print_ending
    from orchestrator.cli.execution.real_command import real_command
    from orchestrator.engine.loop.drive import Detached
    from orchestrator.engine.unattended.pipeline import run_pipeline

    out = sys.stderr if mode.as_json else sys.stdout
    try:
        with TerminalNarrator(out, prefix=mode.prefix, raw=mode.raw) as narrator:
            ending = run_pipeline(pipeline, narrator)
    except Detached as left:
        text = f"{left.next_step}\n{real_command()}   again continues with the stages after it"
        raise Detached(left.what, left.why, text) from None
    except KeyboardInterrupt:
        write_stderr("interrupted; the same command again resumes it", "  orch queue   to see the state")
        return Exit.INTERRUPTED
    if mode.as_json:
        write_stdout(json.dumps(ending_as_json(pipeline.cluster or pipeline.name, "launch", ending), indent=2))
    print_ending(ending)
    return ending.status
