"""Background advance of a cloud with real hosts, so that preempted hosts die on time without any call."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Protocol

from orchestrator.errors import OrchError


class Advanceable(Protocol):
    """Cloud or provider that can be advanced to the present."""

    def advance(self) -> None:
        """Process everything that is due until now.

        Raises:
            OrchError: A host could not be changed.
        """
        ...


class Pump:
    """Thread that advances a provider every `every` real seconds while a `with Pump(provider):` block lasts.

    Attributes:
        error: Last failure; the next observation of the slice reports it as well.
    """

    def __init__(self, provider: Advanceable, every: float = 0.25) -> None:
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
                self._provider.advance()
                self.error = None
            except OrchError as error:
                self.error = error
