"""The crash matrix over sockets: the verbs on Google's TPUs, and ways to break the provider that it must see."""

from __future__ import annotations

import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from crash_matrix import Place
from crash_verbs import (
    READY,
    STOPPED,
    VERBS,
    Verb,
    down,
    launch,
    nothing_yet,
    preempted,
    recover,
    start,
    stop,
    stopped,
    up,
)
from support.google_cloud import OTHER, ZONE, tpu_zones
from support.google_world import GoogleHome, PointedGoogle
from support.simulated import QUICK, Points, SharedClock, durable, use_home

from orchestrator.paths import load_paths
from orchestrator.providers.google.client import TpuApi
from orchestrator.providers.google.driver import TpuDriver
from orchestrator.providers.google.record import Record
from orchestrator.simulator.access import Access
from orchestrator.simulator.google.server import TpuServer
from orchestrator.slices import SliceKeys, SliceSpec, SliceView

BY_NAME = {verb.name: verb for verb in VERBS}
GOOGLE_VERBS = (
    BY_NAME["launch"],
    Verb("launch spot", nothing_yet, partial(launch, spot=True), READY, 1),
    BY_NAME["resume"],
    BY_NAME["recover"],  # a queued resource: suspended
    Verb("recover a node", partial(preempted, spot=False), partial(recover, spot=False), {"c-2": "ready"}, 2),
    # Google stops only single hosts.
    Verb("stop", partial(up, hosts=1), stop, STOPPED, 1, hosts=1),
    Verb("start", partial(stopped, hosts=1), start, READY, 1, hosts=1),
    BY_NAME["down"],
    Verb("down spot", partial(up, spot=True), down, {}, 1),
    BY_NAME["reap"],
)
IN_SHORT = tuple(verb for verb in GOOGLE_VERBS if verb.name not in ("resume", "down"))  # their requests are others' too


@dataclass
class GooglePlace(Place):
    """A Place whose cloud is asked over sockets. kind: of the provider."""

    access: Access | None = None
    url: str = ""
    kind: type[PointedGoogle] = PointedGoogle

    def home(self, points: Points | None = None) -> GoogleHome:
        use_home(self.live, self.server)
        assert self.access is not None
        return GoogleHome(self.access, points or Points(), self.url, self.kind)


@contextmanager
def google_cloud(root: Path, *zones: str) -> Generator[tuple[Access, str]]:
    """Yield a simulated cloud and the address of its server, which is this process's: killed commands are children."""
    access = durable(root / "live", SharedClock(), zones=tpu_zones(*zones), durations=replace(QUICK, queue=0.2))
    with TpuServer(access) as server:
        yield access, server.url


@contextmanager
def google_place(
    root: Path, kind: type[PointedGoogle] = PointedGoogle, *, store: str | None = None
) -> Generator[GooglePlace]:
    """Yield a place with that provider. store: Place.server."""
    with google_cloud(root, ZONE, OTHER) as (access, url):
        yield GooglePlace(root, server=store, clock=access.clock, access=access, url=url, kind=kind)


class NamesNotedAfterwards:
    """A provider that names a slice at its create and records the name after it, as many launchers do.

    The class of the real provider is the next base.
    """

    def create(self, spec: SliceSpec, keys: SliceKeys) -> None:
        if not self._note(spec.name).exists():
            fresh = f"{spec.name}-{uuid.uuid4().hex[:6]}"
            super().create(replace(spec, name=fresh), keys)  # type: ignore[misc]  # the next base has it
            self._note(spec.name).write_text(fresh)

    def observe(self, name: str, token: str = "") -> SliceView:
        seen: SliceView = super().observe(self._noted(name))  # type: ignore[misc]  # as above
        return seen

    def end(self, name: str, token: str = "") -> None:
        super().end(self._noted(name))  # type: ignore[misc]  # as above

    def _note(self, name: str) -> Path:
        folder = load_paths().state / "notes"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / name

    def _noted(self, name: str) -> str:
        return self._note(name).read_text() if self._note(name).exists() else name


class NotedAfterwards(NamesNotedAfterwards, PointedGoogle):
    """On the TPU API."""


class OnlyNodes(PointedGoogle):
    """A provider that ends the nodes of a queued resource but not the request, which holds its share of the quota."""

    def __init__(self, api: TpuApi, *args: Any, **kwargs: Any) -> None:
        super().__init__(api, *args, **kwargs)
        self._driver = _OnlyNodesDriver(api, self._records, self._now)


class _OnlyNodesDriver(TpuDriver):
    def end_machines(self, record: Record) -> bool:
        return super().end_machines(replace(record, kind="node"))
