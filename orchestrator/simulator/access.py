"""Shared access of several threads or processes to one cloud, in short exclusive steps.

`InMemory` keeps it in this process, `Durable` in a file. What serves both asks for an `Access` and does every step in
`with access.open() as cloud`.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from orchestrator.clock import Clock
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.scenario import Scenario


class Access(Protocol):
    """Exclusive access to a simulated cloud."""

    @property
    def clock(self) -> Clock: ...

    def open(self) -> AbstractContextManager[SimulatedCloud]:
        """Yield the cloud for one step. Never sleep inside."""
        ...


class InMemory:
    """Access to a cloud in the memory of one process; with a single thread `cloud` may be used directly."""

    def __init__(self, scenario: Scenario, clock: Clock) -> None:
        self.cloud = SimulatedCloud(scenario, clock)
        self._lock = threading.RLock()

    @property
    def clock(self) -> Clock:
        return self.cloud.clock

    @contextmanager
    def open(self) -> Generator[SimulatedCloud]:
        with self._lock:
            yield self.cloud
