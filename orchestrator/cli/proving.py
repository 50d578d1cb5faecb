"""`--compile` and `--rehearse-world`: try a training out here, and only then show it or do it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from orchestrator.cli.act import Manner, Show, perform, show
from orchestrator.cli.proof import Proof
from orchestrator.cli.terminal import look_at, say
from orchestrator.errors import OrchError

if TYPE_CHECKING:
    from orchestrator.engine.ready import Ready
    from orchestrator.spec.task import Task

EVERY = 15.0  # seconds between two lines where no line can be rewritten


def prove(ready: Ready, task: Task, manner: Manner, proof: Proof) -> int:
    """The exit status. Raises OrchError when it cannot be tried, or, with nothing done, when the step does not fit."""
    from orchestrator.engine.compiling import with_compiled
    from orchestrator.engine.world_rehearsal import with_world

    failed: OrchError | None = None
    known = len(_lines(ready))
    if proof.world:
        with _Progress("building all ranks") as progress:
            ready, failed = with_world(ready, task, progress)
    if proof.compile:
        with _Progress("compiling the step") as progress:
            ready, wrong = with_compiled(ready, task, progress)
        failed = failed or wrong
    if isinstance(manner, Show):
        show(ready, manner)
    else:
        say(*_lines(ready)[known:])
    if failed is not None:
        raise failed
    return 0 if isinstance(manner, Show) else perform(ready, manner)


def _lines(ready: Ready) -> list[str]:
    """What is known of the training on the first kind of machine, for people."""
    return list(ready.advice[0]["text"]) if ready.advice else []


class _Progress:
    """Seconds so far on stderr: one line that is rewritten on a terminal, a line now and then elsewhere."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._live = look_at(sys.stderr).live
        self._next = EVERY
        self._drawn = False

    def __call__(self, seconds: float) -> None:
        line = f"{self._what}, {seconds:.0f} s so far"
        if self._live:
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()
            self._drawn = True
        elif seconds >= self._next:
            self._next += EVERY
            say(line)

    def __enter__(self) -> Callable[[float], None]:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
