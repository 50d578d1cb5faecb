"""Report a request that blocks: the narrator is called once a second until it has answered."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

from orchestrator.engine.narrator import Narrator
from orchestrator.plan.steps import Wait, WaitFor

_PERIOD = 1.0


@contextmanager
def report_wait(narrator: Narrator | None, reason: str) -> Generator[None]:
    """Report what is waited for, and for how long, while the block runs; None reports nothing."""
    if narrator is None:
        yield
        return
    began, ended = time.monotonic(), threading.Event()

    def report() -> None:
        while not ended.wait(_PERIOD):
            narrator.waiting(Wait(on=WaitFor.SLICE, reason=reason, until=None), time.monotonic() - began)

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
