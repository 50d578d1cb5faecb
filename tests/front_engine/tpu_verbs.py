"""The commands of the crash matrix on the TPU API."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

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
from front_matrix import TWO_SLICES, Broken, FrontMatrix
from noted_afterwards import NamesNotedAfterwards
from support.tpu_front import TPU_API, PointedGoogle

from orchestrator.providers.google.client import TpuApi
from orchestrator.providers.google.record import Record
from orchestrator.providers.google.tpu import TpuDriver

BY_NAME = {verb.name: verb for verb in VERBS}
VERBS_OF_TPU_API = (
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
MATRIX = FrontMatrix(
    front=TPU_API,
    proof="SIGKILL around every request to Google's API, over sockets, with Google's client library",
    proof_on_server="SIGKILL around every request to Google's API, on PostgreSQL",
    verbs=VERBS_OF_TPU_API,
    doubles=0.4,
    requests=(
        "POST nodes",
        "POST queuedResources",
        "DELETE nodes",
        "DELETE queuedResources",
        "POST stop",
        "POST start",
    ),
)


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


BROKEN = (
    Broken(
        name="records names after the create",
        matrix=MATRIX,
        verb=BY_NAME["launch"],
        finds=TWO_SLICES,
        kind=NotedAfterwards,
        killed="answered POST nodes",
    ),
    Broken(
        name="leaves a queued resource",
        matrix=MATRIX,
        verb=BY_NAME["recover"],
        finds=("still live",),
        kind=OnlyNodes,
    ),
)
