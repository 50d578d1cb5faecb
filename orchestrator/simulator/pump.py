"""Lets a cloud with real hosts behind it go on while nobody asks: hosts that are preempted then die at their time."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Protocol

from orchestrator.errors import OrchError


class Settles(Protocol):
    def settle(self) -> None:
        """Let the time pass. Raises OrchError."""
        ...


class Pump:
    """`with Pump(provider):` settles it every so many real seconds, in a thread that ends with the block.

    What went wrong last is in `error`; the next look at the slice tells it as well.
    """

    def __init__(self, provider: Settles, every: float = 0.25) -> None:
        self.error: OrchError | None = None
        self._provider = provider
        self._every = every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="simulated cloud", daemon=True)

    def __enter__(self) -> Pump:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            try:
                self._provider.settle()
                self.error = None
            except OrchError as error:
                self.error = error
