"""The TPU API of a simulated cloud on the loopback, and Google's own clients for it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from google.api_core import exceptions, operation
from google.api_core.retry import Retry
from google.auth.credentials import AnonymousCredentials
from google.cloud import tpu_v2
from support.zones import EVERY_TYPE

from orch_fronts.google.iam import owner
from orch_fronts.google.server import PROJECT, TpuServer
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.bodies import Bodies
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.scenario import Durations, Fault, FaultKind, Scenario, Zone

ZONE = "us-west4-a"
OTHER = "us-central1-a"
PARENT = f"projects/{PROJECT}/locations/{ZONE}"
ZONES = (Zone(ZONE, "us-west4"), Zone(OTHER, "us-central1"))
EVEN = Durations(jitter=0.0)  # create 40 s, end 20 s, stop 20 s, start 30 s, one move in the queue 5 s
RUNTIME = "v2-alpha-tpuv5-lite"
QUICK = Retry(initial=0.01, maximum=0.05, timeout=10.0)


@dataclass(frozen=True)
class Tpu:
    """A server, its cloud and a REST client. The clock stands still until a test moves it."""

    server: TpuServer
    access: InMemory
    clock: ManualClock
    client: tpu_v2.TpuClient

    @property
    def cloud(self) -> SimulatedCloud:
        return self.access.cloud

    def create(self, name: str = "demo-1", zone: str = ZONE, **fields: Any) -> operation.Operation:
        parent = PARENT.replace(ZONE, zone)
        return self.client.create_node(parent=parent, node_id=name, node=make_node(**fields), timeout=10)

    def ready(self, name: str = "demo-1", **fields: Any) -> tpu_v2.Node:
        self.create(name, **fields)
        self.clock.advance(41)
        node = self.node(name)
        assert node.state is tpu_v2.Node.State.READY, node
        return node

    def node(self, name: str = "demo-1") -> tpu_v2.Node:
        return self.client.get_node(name=f"{PARENT}/nodes/{name}", timeout=10)

    def state(self, name: str = "demo-1") -> str:
        try:
            return self.node(name).state.name
        except exceptions.NotFound:
            return "ABSENT"

    def queue(
        self, name: str = "q-1", request_id: str = "", node_id: str = "demo-1", **fields: Any
    ) -> operation.Operation:
        """fields: of the QueuedResource beside its tpu."""
        spec = {"parent": PARENT, "node_id": node_id, "node": fields.pop("node", None) or make_node()}
        if "count" in fields:
            del spec["node_id"]
            params = {"node_count": fields.pop("count"), "node_id_prefix": fields.pop("prefix", "")}
            spec["multislice_params"] = params
        request = tpu_v2.CreateQueuedResourceRequest(
            parent=PARENT,
            queued_resource_id=name,
            request_id=request_id,
            queued_resource={"tpu": {"node_spec": [spec]}, **fields},
        )
        return self.client.create_queued_resource(request, timeout=10)

    def queued(self, name: str = "q-1") -> tpu_v2.QueuedResource:
        return self.client.get_queued_resource(name=f"{PARENT}/queuedResources/{name}", timeout=10)

    def queue_state(self, name: str = "q-1") -> str:
        try:
            return self.queued(name).state.state.name
        except exceptions.NotFound:
            return "ABSENT"

    def unqueue(self, name: str = "q-1", *, force: bool = False) -> operation.Operation:
        request = tpu_v2.DeleteQueuedResourceRequest(name=f"{PARENT}/queuedResources/{name}", force=force)
        return self.client.delete_queued_resource(request, timeout=10)

    def active(self, name: str = "q-1", **fields: Any) -> None:
        self.queue(name, **fields)
        self.clock.advance(120)
        assert self.queue_state(name) == "ACTIVE"


def make_node(**fields: Any) -> tpu_v2.Node:
    given = {"accelerator_type": "v5litepod-16", "runtime_version": RUNTIME}
    if "accelerator_config" in fields:
        del given["accelerator_type"]
    return tpu_v2.Node(given | fields)


@contextmanager
def tpu_api(
    *faults: Fault, bodies: Bodies | None = None, cut: bool = False, durations: Durations = EVEN, **fields: Any
) -> Generator[Tpu]:
    """fields: of the Scenario."""
    clock = ManualClock()
    scenario = Scenario(faults=faults, durations=durations, **({"zones": ZONES, "pools": EVERY_TYPE} | fields))
    access = InMemory(scenario, clock)
    with TpuServer(access, bodies, cut=cut, grants=owner()) as server:
        yield Tpu(server, access, clock, make_client(server))


def make_client(server: TpuServer) -> tpu_v2.TpuClient:
    options = {"api_endpoint": server.url}
    return tpu_v2.TpuClient(credentials=AnonymousCredentials(), transport="rest", client_options=options)


def fault(call: str, kind: FaultKind, nth: int = 1, **fields: Any) -> Fault:
    return Fault(call=call, kind=kind, nth=(nth,), **fields)


def refusal(deed: Callable[[], object]) -> exceptions.GoogleAPICallError:
    """The typed error that this call must end with."""
    with pytest.raises(exceptions.GoogleAPICallError) as caught:
        deed()
    return caught.value
