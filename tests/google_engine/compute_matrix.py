"""The crash matrix over sockets: the verbs on TPUs of Compute Engine, and ways to break the provider."""

from __future__ import annotations

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
    Verb,
    down,
    failed,
    launch,
    nothing_yet,
    preempted,
    reap,
    recover,
    resume,
    start,
    stop,
    stopped,
    task,
    up,
    with_orphans,
)
from google_matrix import NamesNotedAfterwards, google_cloud
from support.compute_world import GROUP, OTHER, ZONE, ComputeHome, PointedCompute, compute_client
from support.simulated import Points, SimHome, sim_launch, use_home

from orch_fronts.google.compute.visit import left
from orchestrator.simulator.access import Access
from orchestrator.slices import FlexStart


def _launch_flex_start(home: SimHome) -> None:
    home.drive(sim_launch(task(), replace(home.candidate(GROUP), market=FlexStart(1.0))))


RECOVERED = {"c-2": "ready"}
COMPUTE_VERBS = (
    Verb("launch a group", nothing_yet, partial(launch, hosts=GROUP), READY, 1, hosts=GROUP),
    Verb("launch an instance", nothing_yet, partial(launch, hosts=1), READY, 1, hosts=1),
    Verb("launch spot", nothing_yet, partial(launch, hosts=GROUP, spot=True), READY, 1, hosts=GROUP),
    Verb("launch flex-start", nothing_yet, _launch_flex_start, READY, 1, hosts=GROUP),
    Verb("resume", partial(failed, hosts=GROUP), partial(resume, hosts=GROUP), READY, 2, hosts=GROUP),
    Verb("recover a group", partial(preempted, hosts=GROUP), partial(recover, hosts=GROUP), RECOVERED, 2, hosts=GROUP),
    Verb("recover an instance", partial(preempted, hosts=1), partial(recover, hosts=1), RECOVERED, 2, hosts=1),
    Verb("launch several instances", nothing_yet, launch, {"c-1-s0": "ready", "c-1-s1": "ready"}, 1),
    Verb("recover one of several", partial(preempted, part="-s1"), recover, {"c-2-s0": "ready", "c-2-s1": "ready"}, 2),
    Verb("down several instances", up, down, {}, 1),
    # A group with a topology cannot be stopped and kept.
    Verb("stop", partial(up, hosts=1), stop, STOPPED, 1, hosts=1),
    Verb("start", partial(stopped, hosts=1), start, READY, 1, hosts=1),
    Verb("down a group", partial(up, hosts=GROUP), down, {}, 1, hosts=GROUP),
    Verb("down an instance", partial(up, hosts=1, spot=True), down, {}, 1, hosts=1),
    Verb("reap", partial(with_orphans, hosts=GROUP), reap, READY, 1, hosts=GROUP),
)
BY_NAME = {verb.name: verb for verb in COMPUTE_VERBS}
LAUNCHES = tuple(verb for verb in COMPUTE_VERBS if verb.name.startswith("launch"))
SENDERS = (  # the requests of the others are among theirs
    *(BY_NAME[name] for name in ("launch flex-start", "launch an instance", "stop", "start")),
    *(BY_NAME[name] for name in ("down a group", "down an instance")),
)


@dataclass
class ComputePlace(Place):
    """A Place whose cloud is asked over sockets. client: see compute_client. kind: of the provider."""

    access: Access | None = None
    url: str = ""
    client: Any = None
    kind: type[PointedCompute] = PointedCompute

    def home(self, points: Points | None = None) -> ComputeHome:
        use_home(self.live, self.server)
        assert self.access is not None
        return ComputeHome(self.access, points or Points(), self.url, self.client, self.kind)

    def left_auxiliary(self) -> list[str]:
        """Return groups, templates and policies."""
        assert self.access is not None
        with self.access.open() as cloud:
            return left(cloud)


@contextmanager
def compute_place(
    root: Path, kind: type[PointedCompute] = PointedCompute, *, store: str | None = None
) -> Generator[ComputePlace]:
    """Yield a place with that provider. store: Place.server."""
    with google_cloud(root, ZONE, OTHER) as (access, url):
        client = compute_client(url)
        yield ComputePlace(root, server=store, clock=access.clock, access=access, url=url, client=client, kind=kind)


class NotedAfterwards(NamesNotedAfterwards, PointedCompute):
    """On Compute Engine."""
