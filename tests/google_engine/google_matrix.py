"""The crash matrix over sockets: the verbs on Google's TPUs, and ways to break the provider that it must see."""

from __future__ import annotations

import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

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
from support.simulated import QUICK, Points, SharedClock, durable

from orchestrator.providers.google.record import Phase, Record, Records
from orchestrator.simulator.google.server import TpuServer
from orchestrator.slices import SliceKeys, SliceSpec

BY_NAME = {verb.name: verb for verb in VERBS}
ALONE = {"hosts": 1}  # Google stops only single hosts
GOOGLE_VERBS = (
    BY_NAME["launch"],
    Verb("launch spot", nothing_yet, partial(launch, spot=True), READY, 1),
    BY_NAME["resume"],
    BY_NAME["recover"],  # a queued resource: suspended
    Verb("recover a node", partial(preempted, spot=False), partial(recover, spot=False), {"c-2": "ready"}, 2),
    Verb("stop", partial(up, hosts=1), stop, STOPPED, 1, hosts=1),
    Verb("start", partial(stopped, hosts=1), start, READY, 1, hosts=1),
    BY_NAME["down"],
    Verb("down spot", partial(up, spot=True), down, {}, 1),
    BY_NAME["reap"],
)


@dataclass
class GooglePlace(Place):
    """A Place whose cloud is asked over sockets. kind: of the provider."""

    url: str = ""
    kind: type[PointedGoogle] = PointedGoogle

    def home(self, points: Points | None = None) -> GoogleHome:
        plain = super().home(points)
        return GoogleHome(plain.access, plain.points, self.url, self.kind)


@contextmanager
def google_place(root: Path, kind: type[PointedGoogle] = PointedGoogle) -> Generator[GooglePlace]:
    """The server is this process's; the commands that are killed are its children."""
    clock = SharedClock()
    fields = {"zones": tpu_zones(ZONE, OTHER), "durations": replace(QUICK, queue=0.2)}
    with TpuServer(durable(root / "live", clock, **fields)) as server:
        yield GooglePlace(root, clock=clock, scenario=fields, url=server.url, kind=kind)


class FreshNames(PointedGoogle):
    """What launchers do that keep no record: each try to create is a new name."""

    def create(self, spec: SliceSpec, keys: SliceKeys) -> None:
        super().create(replace(spec, name=f"{spec.name}-{uuid.uuid4().hex[:6]}"), keys)


class LateRecord(PointedGoogle):
    """The record of a create is written when its answer has come, not before the request leaves."""
