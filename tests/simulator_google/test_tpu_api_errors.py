"""Every way in which a call can fail reaches Google's client as the error it should be."""

from __future__ import annotations

import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2
from tpu_support import PARENT, Tpu, fault, refusal, tpu_api

from orch_fronts.google.answering import refusal_of
from orch_fronts.google.status import OF_CODE
from orchestrator.simulator.calls import ApiError, Code, ReadOnlyViolation
from orchestrator.simulator.scenario import FaultKind

TYPES = {
    Code.ALREADY_EXISTS: exceptions.Conflict,
    Code.TOKEN_MISMATCH: exceptions.BadRequest,
    Code.TOKEN_SPENT: exceptions.BadRequest,
    Code.NOT_FOUND: exceptions.NotFound,
    Code.NO_CAPACITY: exceptions.TooManyRequests,
    Code.NOT_OFFERED: exceptions.BadRequest,
    Code.QUOTA: exceptions.TooManyRequests,
    Code.DENIED: exceptions.Forbidden,
    Code.INVALID: exceptions.BadRequest,
    Code.WRONG_STATE: exceptions.BadRequest,
    Code.THROTTLED: exceptions.TooManyRequests,
    Code.INTERNAL: exceptions.InternalServerError,
    Code.UNAVAILABLE: exceptions.ServiceUnavailable,
    Code.TIMEOUT: exceptions.GatewayTimeout,
}


@pytest.mark.parametrize("code", Code)
def test_every_code_of_the_cloud_has_a_type_at_the_client(code: Code) -> None:
    answer = refusal_of(ApiError(code, "words")).to_json()["error"]
    typed = exceptions.from_http_status(answer["code"], answer["message"])
    assert type(typed) is TYPES[code]
    assert answer["status"] == OF_CODE[code].name
    assert ("no more capacity" if code is Code.NO_CAPACITY else "words") in answer["message"]


FAULTS = {
    FaultKind.THROTTLED: exceptions.TooManyRequests,
    FaultKind.INTERNAL: exceptions.InternalServerError,
    FaultKind.UNAVAILABLE: exceptions.ServiceUnavailable,
    FaultKind.DENIED: exceptions.Forbidden,
    FaultKind.TIMEOUT_BEFORE: exceptions.GatewayTimeout,
    FaultKind.TIMEOUT_AFTER: exceptions.GatewayTimeout,
}
CALLS = {
    "create": lambda tpu: tpu.create("other"),
    "get": lambda tpu: tpu.node(),
    "list": lambda tpu: list(tpu.client.list_nodes(parent=PARENT)),
    "end": lambda tpu: tpu.client.delete_node(name=f"{PARENT}/nodes/demo-1"),
    "stop": lambda tpu: tpu.client.stop_node({"name": f"{PARENT}/nodes/demo-1"}),
    "start": lambda tpu: tpu.client.start_node({"name": f"{PARENT}/nodes/demo-1"}),
    "queue": lambda tpu: tpu.queue(),
    "queue-get": lambda tpu: tpu.queued("q-0"),
    "queue-list": lambda tpu: list(tpu.client.list_queued_resources(parent=PARENT)),
    "queue-delete": lambda tpu: tpu.unqueue("q-0"),
    "queue-reset": lambda tpu: tpu.client.reset_queued_resource({"name": f"{PARENT}/queuedResources/q-0"}),
    "operation": lambda tpu: tpu.client.get_operation({"name": f"{PARENT}/operations/operation-000001"}),
}


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("call", CALLS)
def test_every_fault_of_every_call_is_typed(call: str, kind: FaultKind) -> None:
    everyone = fault(call, kind, begin=100.0, rate=1.0)
    with tpu_api(everyone) as tpu:
        _prepare(tpu)
        tpu.clock.advance(101 - (tpu.clock.now() - tpu.cloud.state.began))
        error = refusal(lambda: CALLS[call](tpu))
        assert type(error) is FAULTS[kind]
        wait = error.response.headers.get("Retry-After")
        assert wait == ("1" if kind is FaultKind.THROTTLED else None)


def _prepare(tpu: Tpu) -> None:
    """A node of one host, READY, and a queued resource that has failed."""
    tpu.create(accelerator_type="v5litepod-1")
    tpu.queue("q-0", node_id="far", queueing_policy={"valid_until_duration": {"seconds": 2}})
    tpu.clock.advance(41)


def test_create_without_an_answer_may_have_acted() -> None:
    for kind, state in ((FaultKind.TIMEOUT_BEFORE, "ABSENT"), (FaultKind.TIMEOUT_AFTER, "CREATING")):
        with tpu_api(fault("create", kind)) as tpu:
            assert isinstance(refusal(tpu.create), exceptions.GatewayTimeout)
            assert tpu.state() == state


def test_create_without_an_answer_can_be_a_broken_connection() -> None:
    with tpu_api(fault("create", FaultKind.TIMEOUT_AFTER), cut=True) as tpu:
        with pytest.raises(OSError, match=r"aborted|reset|disconnected"):
            tpu.create()
        assert tpu.state() == "CREATING", "the connection is made anew"


def test_late_create_arrives_after_its_client_gave_up() -> None:
    with tpu_api(fault("create", FaultKind.LATE, seconds=30)) as tpu:
        refusal(tpu.create)
        assert tpu.state() == "ABSENT"
        tpu.clock.advance(31)
        assert tpu.state() == "CREATING"


def test_duplicate_delivery_of_a_create_makes_one_node() -> None:
    with tpu_api(fault("create", FaultKind.DUPLICATE)) as tpu:
        refusal(tpu.create)
        assert len(tpu.cloud.made()) == 1


def test_unknown_paths_methods_and_operations_are_not_found() -> None:
    with tpu_api() as tpu:
        session, url = tpu.client.transport._session, tpu.server.url
        paths = [
            "/",
            "/v3/" + PARENT,
            f"/v2/{PARENT}/pods",
            f"/v1/{PARENT}/nodes",
            f"/v2/{PARENT}/nodes/a:b",
            "/v2/nodes",
        ]
        for path in paths:
            answer = session.get(url + path)
            assert (answer.status_code, answer.json()["error"]["status"]) == (404, "NOT_FOUND"), path
        assert session.patch(f"{url}/v2/{PARENT}/nodes").status_code == 404
        assert isinstance(
            refusal(lambda: tpu.client.get_operation({"name": f"{PARENT}/operations/x"})), exceptions.NotFound
        )
        missing = tpu_v2.DeleteNodeRequest(name=f"{PARENT}/nodes/none")
        assert isinstance(refusal(lambda: tpu.client.delete_node(missing)), exceptions.NotFound)


def test_change_in_a_cloud_where_nothing_may_change_fails_the_test() -> None:
    with pytest.raises(ReadOnlyViolation), tpu_api(read_only=True) as tpu:
        assert list(tpu.client.list_nodes(parent=PARENT)) == []
        refusal(tpu.create)


def test_server_ends_with_its_block_though_connections_are_open() -> None:
    with tpu_api() as tpu:
        tpu.create()
        url = tpu.server.url
    with pytest.raises(OSError, match=r"refused|Connection"):
        tpu.client.transport._session.get(f"{url}/v2/{PARENT}/nodes", timeout=5)
