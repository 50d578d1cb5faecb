"""A task file with several tasks: shown stage by stage, run one after the other, or left to an unattended engine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from orchestrator.cli.act import Manner, Perform, Show, ask_before_spending, show
from orchestrator.cli.terminal import put, say
from orchestrator.errors import UserError
from orchestrator.exits import Exit

if TYPE_CHECKING:
    from orchestrator.engine.pipeline import Wanted
    from orchestrator.spec.parse import TaskFile


def wanted(file: TaskFile, cluster: str | None, down: bool) -> Wanted:
    """Raises UserError for what is not served: parallel execution."""
    from orchestrator.engine.pipeline import Wanted
    from orchestrator.spec.parse import Execution

    if file.execution is not Execution.SERIAL:
        raise UserError(f"{file.file}: execution: {file.execution} is not served", "", "write execution: serial")
    name = file.name or cluster or "pipeline"
    return Wanted(name, file.tasks, cluster or "", down)


def carry_out_all(pipeline: Wanted, manner: Manner) -> int:
    """The exit status: of the stage that ended it."""
    from orchestrator.engine.advice import with_advice
    from orchestrator.engine.pipeline import stages

    prepared = tuple(with_advice(ready, task) for ready, task in zip(stages(pipeline), pipeline.tasks, strict=True))
    if isinstance(manner, Show):
        for index, ready in enumerate(prepared):
            if manner.form == "text":
                put(f"Stage {index + 1} of {len(prepared)}", "")
            show(ready, manner)
        return Exit.OK
    if not manner.consent:
        for ready in prepared:
            ask_before_spending(ready)
    return _run(pipeline, manner) if manner.follow else _leave(pipeline)


def _leave(pipeline: Wanted) -> int:
    from orchestrator.engine.background import start_engine
    from orchestrator.engine.pipeline import leave_to_engine

    record = leave_to_engine(pipeline)
    start_engine({secret.name: secret.value for task in pipeline.tasks for secret in task.secrets})
    say(f"pipeline '{record.name}' ({len(record.tasks)} stages) is left to an unattended engine; see: orch queue")
    return Exit.OK


def _run(pipeline: Wanted, manner: Perform) -> int:
    import json

    from orchestrator.cli.narrator import TerminalNarrator
    from orchestrator.cli.outcomes import as_json, tell
    from orchestrator.cli.retype import real_command
    from orchestrator.engine.drive import Detached
    from orchestrator.engine.pipeline import run_pipeline

    out = sys.stderr if manner.as_json else sys.stdout
    try:
        with TerminalNarrator(out, prefix=manner.prefix) as narrator:
            ending = run_pipeline(pipeline, narrator)
    except Detached as left:
        words = f"{left.next_step}\n{real_command()}   again goes on with the stages after it"
        raise Detached(left.what, left.why, words) from None
    except KeyboardInterrupt:
        say("interrupted; the same command again goes on where it was", "  orch queue   to look")
        return Exit.INTERRUPTED
    if manner.as_json:
        put(json.dumps(as_json(pipeline.cluster or pipeline.name, "launch", ending), indent=2))
    tell(ending)
    return ending.status
