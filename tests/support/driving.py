"""Driving real local hosts with the real engine, and recording its reports."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.catalog.accelerators import resolve_local
from orchestrator.engine.loop.drive import drive_cluster
from orchestrator.engine.preparation.prepared import CommandResult, PreparedCommand
from orchestrator.hosts import HostAddress, HostOutcome
from orchestrator.plan.actions import Action
from orchestrator.plan.steps import Wait
from orchestrator.task.infra import parse_infra
from orchestrator.task.model import Resources, Task


@dataclass
class Listener:
    """Recorder of the engine's reports."""

    actions: list[Action] = field(default_factory=list[Action])
    notes: list[str] = field(default_factory=list[str])
    outputs: dict[int, bytes] = field(default_factory=dict[int, bytes])
    failures: list[tuple[HostOutcome, ...]] = field(default_factory=list[tuple[HostOutcome, ...]])
    on_output: Callable[[], None] = field(default=lambda: None)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def starting(self, action: Action) -> None:
        self.actions.append(action)

    def finished(self, action: Action, seconds: float) -> None:
        pass

    def failed(self, action: Action, outcomes: tuple[HostOutcome, ...]) -> None:
        self.failures.append(outcomes)

    def waiting(self, wait: Wait, seconds: float) -> None:
        pass

    def progress(self, what: str, done: int, total: int) -> None:
        pass

    def output(self, host: HostAddress, block: bytes) -> None:
        with self.lock:
            self.outputs[host.rank] = self.outputs.get(host.rank, b"") + block
        self.on_output()

    def note(self, words: str) -> None:
        self.notes.append(words)

    @property
    def steps(self) -> list[str]:
        return [type(action).__name__ for action in self.actions]


def local_task(hosts: int = 2, **fields: object) -> Task:
    choice = Resources(infra=parse_infra(f"local:{hosts}"), machine=resolve_local(str(hosts)))
    return Task(choices=(choice,), **fields)  # type: ignore[arg-type]  # the fields of Task, checked by its users


def fulfil(ready: PreparedCommand, listener: Listener | None = None) -> CommandResult:
    return drive_cluster(ready, listener or Listener())
