"""The simulated TPU API over gRPC, by the library's own clients with a channel to the loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2, tpu_v2alpha1
from google.cloud.tpu_v2.services.tpu import transports
from google.cloud.tpu_v2alpha1.services.tpu import transports as alpha_transports
from tpu_support import PARENT, QUICK, Tpu, fault, make_node, refusal, tpu_api

from orch_fronts.google import rpc
from orchestrator.simulator.calls import ReadOnlyViolation
from orchestrator.simulator.scenario import FaultKind

NAME = f"{PARENT}/nodes/demo-1"


@contextmanager
def over_grpc(*faults: Any, **fields: Any) -> Generator[tuple[Tpu, tpu_v2.TpuClient]]:
    with (
        tpu_api(*faults, **fields) as tpu,
        rpc.TpuRpcServer(tpu.server.api) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        yield tpu, tpu_v2.TpuClient(transport=transports.TpuGrpcTransport(channel=channel))


def test_every_call_of_the_service_that_the_rest_front_has_is_there() -> None:
    listing = Path(str(tpu_v2.__file__)).with_name("gapic_metadata.json")  # the library's own list of its calls
    every = set(json.loads(listing.read_text())["services"]["Tpu"]["clients"]["grpc"]["rpcs"])
    assert set(rpc._FORMS) == every - {"GenerateServiceIdentity"}


def test_node_lives_its_life_over_grpc() -> None:
    with over_grpc() as (tpu, client):
        node = make_node(accelerator_type="v5litepod-8", labels={"a": "b"})
        create = client.create_node(parent=PARENT, node_id="demo-1", node=node, timeout=10)
        assert not create.done()
        tpu.clock.advance(41)
        assert create.result(polling=QUICK).state is tpu_v2.Node.State.READY
        assert client.get_node(name=NAME).labels["a"] == "b"
        assert [each.name for each in client.list_nodes(parent=PARENT)] == [NAME]
        asked = {"name": NAME, "query_path": "hostkeys/", "worker_ids": [""]}
        assert client.get_guest_attributes(asked).guest_attributes[0].query_value.items[0].key == "ssh-ed25519"
        changed = tpu_v2.Node(name=NAME, labels={"c": "d"})
        client.update_node(node=changed, update_mask={"paths": ["labels"]}).result(polling=QUICK)
        assert dict(client.get_node(name=NAME).labels) == {"c": "d"}
        client.stop_node({"name": NAME})
        tpu.clock.advance(21)
        client.start_node({"name": NAME})
        tpu.clock.advance(31)
        assert client.get_node(name=NAME).state is tpu_v2.Node.State.READY
        assert len(client.list_locations({"name": PARENT.partition("/locations")[0]}).locations) == 2
        assert client.get_location({"name": PARENT}).location_id == PARENT.rpartition("/")[2]
        assert "v5litepod-8" in {each.type_ for each in client.list_accelerator_types(parent=PARENT)}
        assert client.get_runtime_version(name=f"{PARENT}/runtimeVersions/v2-alpha-tpuv6e").version == "v2-alpha-tpuv6e"
        delete = client.delete_node(name=NAME)
        tpu.clock.advance(21)
        delete.result(polling=QUICK)
        assert isinstance(refusal(lambda: client.get_node(name=NAME)), exceptions.NotFound)
        listed = client.list_operations({"name": PARENT}).operations
        client.cancel_operation({"name": listed[0].name})
        client.delete_operation({"name": listed[0].name})
        assert len(client.list_operations({"name": PARENT}).operations) == len(listed) - 1


def test_queued_multislice_lives_its_life_over_grpc() -> None:
    with over_grpc() as (tpu, client):
        params = {"node_count": 2, "node_id_prefix": "ms"}
        spec = {"parent": PARENT, "multislice_params": params, "node": make_node()}
        body = {"tpu": {"node_spec": [spec]}, "spot": {}, "queueing_policy": {"valid_until_duration": {"seconds": 900}}}
        client.create_queued_resource(parent=PARENT, queued_resource_id="q", queued_resource=body)
        tpu.clock.advance(120)
        name = f"{PARENT}/queuedResources/q"
        assert client.get_queued_resource(name=name).state.state.name == "ACTIVE"
        assert [each.name for each in client.list_queued_resources(parent=PARENT)] == [name]
        error = refusal(lambda: client.delete_queued_resource(name=name))
        assert isinstance(error, exceptions.FailedPrecondition)
        tpu.cloud.preempt("ms-0")
        tpu.clock.advance(21)
        client.reset_queued_resource({"name": name})
        tpu.clock.advance(120)
        client.delete_queued_resource(tpu_v2.DeleteQueuedResourceRequest(name=name, force=True))
        tpu.clock.advance(21)
        assert isinstance(refusal(lambda: client.get_queued_resource(name=name)), exceptions.NotFound)


@pytest.mark.parametrize(
    ("kind", "typed"),
    [
        (FaultKind.THROTTLED, exceptions.ResourceExhausted),
        (FaultKind.INTERNAL, exceptions.InternalServerError),
        (FaultKind.UNAVAILABLE, exceptions.ServiceUnavailable),
        (FaultKind.DENIED, exceptions.PermissionDenied),
        (FaultKind.TIMEOUT_BEFORE, exceptions.DeadlineExceeded),
    ],
)
def test_faults_are_typed_over_grpc(kind: FaultKind, typed: type[Exception]) -> None:
    with over_grpc(fault("get", kind)) as (_, client):
        assert type(refusal(lambda: client.get_node(name=NAME))) is typed


def test_capacity_and_wrong_requests_are_typed_over_grpc() -> None:
    with over_grpc(fault("create", FaultKind.NO_CAPACITY)) as (tpu, client):
        create = client.create_node(parent=PARENT, node_id="demo-1", node=make_node())
        tpu.clock.advance(6)
        assert isinstance(refusal(lambda: create.result(polling=QUICK)), exceptions.ResourceExhausted)
        client.create_node(parent=PARENT, node_id="demo-1", node=make_node())
        again = refusal(lambda: client.create_node(parent=PARENT, node_id="demo-1", node=make_node()))
        assert isinstance(again, exceptions.AlreadyExists)
        wrong = make_node(accelerator_type="v5litepod-3")
        error = refusal(lambda: client.create_node(parent=PARENT, node_id="b", node=wrong))
        assert isinstance(error, exceptions.InvalidArgument)


def test_alpha_client_gets_its_own_messages() -> None:
    with (
        tpu_api() as tpu,
        rpc.TpuRpcServer(tpu.server.api) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        client = tpu_v2alpha1.TpuClient(transport=alpha_transports.TpuGrpcTransport(channel=channel))
        node = tpu_v2alpha1.Node(accelerator_type="v6e-8", runtime_version="v2-alpha-tpuv6e")
        create = client.create_node(parent=PARENT, node_id="demo-1", node=node)
        tpu.clock.advance(41)
        found = create.result(polling=QUICK)
        assert (type(found), found.state.name) == (tpu_v2alpha1.Node, "READY")


def test_asynchronous_client_is_served() -> None:
    async def live(address: str) -> str:
        async with grpc.aio.insecure_channel(address) as channel:
            client = tpu_v2.TpuAsyncClient(transport=transports.TpuGrpcAsyncIOTransport(channel=channel))
            await client.create_node(parent=PARENT, node_id="demo-1", node=make_node())
            return (await client.get_node(name=NAME)).state.name

    with tpu_api() as tpu, rpc.TpuRpcServer(tpu.server.api) as server:
        assert asyncio.run(live(server.address)) == "CREATING"


def test_change_over_grpc_where_nothing_may_change_fails_the_test() -> None:
    with pytest.raises(ReadOnlyViolation), over_grpc(read_only=True) as (_, client):
        refusal(lambda: client.create_node(parent=PARENT, node_id="a", node=make_node()))
