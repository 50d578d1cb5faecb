"""Try a training on this computer first (`--compile`, `--rehearse-world`), then preview or perform it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.cli.drawing.terminal import inspect_terminal, write_stderr
from orchestrator.cli.execution.act import ActMode, PreviewMode, carry_out_order
from orchestrator.cli.parameters.shared import LocalChecks

if TYPE_CHECKING:
    from orchestrator.client.orders import OrderCalls, PlannedOrder
    from orchestrator.engine.preparation.prepared import PreparedCommand
    from orchestrator.task.model import Task

LINE_SECONDS = 15.0  # seconds between two lines where no line can be rewritten


def carry_out_checked(orders: OrderCalls, planned: PlannedOrder, mode: ActMode, local_checks: LocalChecks) -> int:
    """Try the training of a plan here first, where that is asked for, then show the plan or perform it.

    Raises:
        OrchError: It cannot be tried; or, with nothing done, the step does not fit and is to be performed.
    """
    if not local_checks.requested:
        return carry_out_order(orders, planned, mode)
    from orchestrator.client.local_plan import LocalPlan, ready_of
    from orchestrator.engine.training.advice import add_advice
    from orchestrator.task.model import Task

    ready = ready_of(planned)
    if ready.job is None:
        return carry_out_order(orders, planned, mode)
    task = Task.from_json(ready.job.task)
    ready = ready if ready.advice else add_advice(ready, task)
    checked = _check(ready, task, local_checks)
    if not isinstance(mode, PreviewMode):
        write_stderr(*_lines(checked)[len(_lines(ready)) :])
    return carry_out_order(orders, LocalPlan(checked), mode)


def _check(ready: PreparedCommand, task: Task, local_checks: LocalChecks) -> PreparedCommand:
    """Return a command with what trying its training says; refused where that failed."""
    from orchestrator.engine.training.compilation import add_compilation
    from orchestrator.engine.training.rank_rehearsal import add_rank_rehearsal

    failed = None
    if local_checks.world:
        with _Progress("building all ranks") as progress:
            ready, failed = add_rank_rehearsal(ready, task, progress)
    if local_checks.compile:
        with _Progress("compiling the step") as progress:
            ready, wrong = add_compilation(ready, task, progress)
        failed = failed or wrong
    return ready if failed is None else replace(ready, refused=failed)  # so that the plan promises no success


def _lines(ready: PreparedCommand) -> list[str]:
    """Return what is known of the training on the first kind of machine, as text."""
    return list(ready.advice[0]["text"]) if ready.advice else []


class _Progress:
    """Elapsed seconds on stderr: one rewritten line on a terminal, a line now and then elsewhere."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._live = inspect_terminal(sys.stderr).live
        self._next = LINE_SECONDS
        self._drawn = False

    def __call__(self, seconds: float) -> None:
        line = f"{self._what}, {seconds:.0f} s elapsed"
        if self._live:
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()
            self._drawn = True
        elif seconds >= self._next:
            self._next += LINE_SECONDS
            write_stderr(line)

    def __enter__(self) -> Callable[[float], None]:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
