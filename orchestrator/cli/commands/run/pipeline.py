"""A task file with several tasks: preview its stages, run them in order, or leave them to an unattended engine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import current_session
from orchestrator.cli.drawing.terminal import can_ask, write_stderr, write_stdout
from orchestrator.cli.execution.act import (
    ActMode,
    PerformMode,
    PreviewMode,
    carry_out,
    show_stages_as_json,
)
from orchestrator.cli.execution.missing_files_consent import agree_to_missing_files
from orchestrator.cli.execution.spending_consent import agree_to_costs
from orchestrator.cli.failures import print_error
from orchestrator.errors import OrchError, UserError
from orchestrator.exits import Exit

if TYPE_CHECKING:
    from orchestrator.engine.unattended.pipeline_spec import PipelineSpec
    from orchestrator.engine.unattended.pipeline_start import PipelineStart
    from orchestrator.store.records import PipelineRecord
    from orchestrator.task.parse import TaskFile


def pipeline_spec(file: TaskFile, cluster: str | None, down: bool, *, accept_host_keys: bool = False) -> PipelineSpec:
    """Return the pipeline that the file describes.

    Raises:
        UserError: The file requests parallel execution, which is not supported.
    """
    from orchestrator.engine.unattended.pipeline_spec import PipelineSpec
    from orchestrator.task.parse import Execution

    if file.execution is not Execution.SERIAL:
        why = "the tasks of a parallel group find each other by host names that orch does not give"
        step = "write execution: serial, or launch each task on its own cluster with --detach"
        raise UserError(f"{file.file}: execution: {file.execution} is not supported", why, step)
    name = file.name or cluster or "pipeline"
    accept = accept_host_keys
    return PipelineSpec(name=name, tasks=file.tasks, cluster=cluster or "", down=down, accept_host_keys=accept)


def carry_out_pipeline(pipeline: PipelineSpec, mode: ActMode, begin: str = "") -> int:
    """Preview or perform the stages; return the exit status of the stage that ended it.

    Args:
        pipeline: The pipeline.
        mode: Whether to show its plans or to perform them.
        begin: The stage to begin at, by its name or number; "" for the one that an earlier launch did not end.
    """
    from orchestrator.client.local import open_own_reader
    from orchestrator.engine.unattended.pipeline_start import choose_start

    with open_own_reader() as store:
        start = choose_start(store, pipeline, begin)
    return _carry_out(pipeline, start, mode)


def watch_pipeline(record: PipelineRecord, mode: ActMode) -> int:
    """Preview or perform what is left of a pipeline on record; return the exit status of the stage that ended it."""
    from orchestrator.engine.unattended.pipeline_spec import PipelineSpec
    from orchestrator.engine.unattended.pipeline_start import PipelineStart

    note = f"pipeline '{record.name}' resumes at {record.describe_stage()}"
    start = PipelineStart(stage=record.stage, continued=record, note=note)
    return _carry_out(PipelineSpec.from_record(record), start, mode, watching=True)


def _carry_out(pipeline: PipelineSpec, start: PipelineStart, mode: ActMode, *, watching: bool = False) -> int:
    from orchestrator.client.local_orders import LocalOrders
    from orchestrator.client.local_plan import LocalPlan
    from orchestrator.engine.training.advice import add_advice
    from orchestrator.engine.unattended.pipeline_spec import prepare_stages

    tasks = pipeline.tasks[start.stage :]
    prepared = tuple(
        add_advice(ready, task) for ready, task in zip(prepare_stages(pipeline, start.stage), tasks, strict=True)
    )
    if start.note:
        write_stderr(start.note)
    if isinstance(mode, PreviewMode):
        write_stderr(*(f"note: '{one.name}' at {one.describe_stage()} ends first" for one in start.replaced))
        if mode.form == "json":
            return show_stages_as_json(pipeline.name, prepared)
        statuses: list[int] = []
        for number, ready in enumerate(prepared, start=start.stage + 1):
            if mode.form == "text":
                write_stdout(f"Stage {number} of {len(pipeline.tasks)}", "")
            statuses.append(carry_out(ready, mode))
        return next((status for status in statuses if status), Exit.OK)
    _agree_to_end(start.replaced, agreed=mode.consent)
    for ready in prepared:
        agree_to_missing_files(ready.doubts, agreed=mode.consent)
        agree_to_costs(LocalOrders(), LocalPlan(ready), agreed=mode.consent)
    if mode.follow:
        return _run(pipeline, start, mode, watching=watching)
    return _leave_to_engine(pipeline, start, mode)


def _agree_to_end(replaced: tuple[PipelineRecord, ...], *, agreed: bool) -> None:
    """Ask before an unended pipeline of the same name ends for a new one; `agreed` answers.

    Raises:
        UserError: There is no terminal to ask on.
        OrchError: The user does not agree.
    """
    for record in replaced if not agreed else ():
        what = f"pipeline '{record.name}' with other tasks, or at another stage, has not ended"
        why = f"it is at {record.describe_stage()}"
        steps = f"orch watch {record.name}   continues it, orch cancel {record.name}   ends it"
        if not can_ask():
            raise UserError(what, why, f"add --yes to end it and begin a new one\n{steps}")
        write_stderr(f"{what}: {why}")
        if not click.confirm("end it, and begin a new one?", default=False, err=True):
            raise OrchError("you declined", "nothing was done", steps)


def _leave_to_engine(pipeline: PipelineSpec, start: PipelineStart, mode: PerformMode) -> int:
    from orchestrator.cli.drawing.narrator import TerminalNarrator
    from orchestrator.cli.drawing.outcomes import print_ending
    from orchestrator.engine.preparation.prepared import CommandResult
    from orchestrator.engine.unattended.handover import start_engine
    from orchestrator.engine.unattended.pipeline import hand_over_pipeline

    with TerminalNarrator(sys.stderr, prefix=mode.prefix, raw=mode.raw) as narrator:
        record = hand_over_pipeline(pipeline, narrator, start)
    if isinstance(record, CommandResult):
        print_ending(record)
        return record.status
    start_engine({secret.name: secret.value for task in pipeline.tasks for secret in task.secrets})
    write_stderr(
        f"pipeline '{record.name}' ({len(record.tasks)} stages) is handed to an unattended engine; see: orch queue"
    )
    return Exit.OK


def _run(pipeline: PipelineSpec, start: PipelineStart, mode: PerformMode, *, watching: bool) -> int:
    """Run the stages, and return the exit status. SIGTERM and SIGHUP end it as Ctrl-C does, with their own status."""
    from orchestrator.cli.execution.end_signals import interrupt_on_end_signals

    with interrupt_on_end_signals() as received:
        try:
            status = _follow(pipeline, start, mode, watching=watching)
        except OrchError as error:
            if not received:
                raise
            status = print_error(error, debug=current_session().debug)
    return 128 + received[0] if received and status == Exit.INTERRUPTED else status


def _follow(pipeline: PipelineSpec, start: PipelineStart, mode: PerformMode, *, watching: bool) -> int:
    import json

    from orchestrator.cli.drawing.narrator import TerminalNarrator
    from orchestrator.cli.drawing.outcomes import ending_as_json, print_ending
    from orchestrator.engine.unattended.pipeline import run_pipeline

    out, name = sys.stderr if mode.as_json else sys.stdout, pipeline.name
    try:
        with TerminalNarrator(out, prefix=mode.prefix, raw=mode.raw) as narrator:
            ending = run_pipeline(pipeline, narrator, start=start)
    except KeyboardInterrupt:
        write_stderr(
            "interrupted; the same command again resumes it",
            f"  orch watch {name}   resumes it, too",
            f"  orch cancel {name}   to end it",
        )
        return Exit.INTERRUPTED
    if mode.as_json:
        verb = "watch" if watching else "launch"
        write_stdout(json.dumps(ending_as_json(pipeline.cluster or name, verb, ending), indent=2))
    print_ending(ending)
    return ending.status
