"""Queued resources of the simulated TPU API, seen by google-cloud-tpu over REST."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2
from tpu_support import OTHER, PARENT, QUICK, ZONE, make_node, refusal, tpu_api

from orch_fronts.google.queued import STATES
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.scenario import Deed, Durations, Held, Pool, Quota
from orchestrator.simulator.state import CloudState, QueuePhase

FULL = (Pool(zone=ZONE, accelerator="v5e", amount=0, unit="chips"),)
SPOT = tpu_v2.QueuedResource.Spot()


def room(chips: int) -> tuple[Pool, ...]:
    return (Pool(zone=ZONE, accelerator="v5e", amount=chips, unit="chips"),)


def test_client_sees_all_ten_states() -> None:
    seen: dict[str, str] = {}
    with tpu_api() as tpu:

        def look(name: str = "q-1") -> None:
            state = tpu.queued(name).state
            seen[state.state.name] = tpu_v2.QueuedResourceState.pb(state).WhichOneof("state_data") or ""

        tpu.queue(spot=SPOT)
        look()
        tpu.clock.advance(5.1)
        look()
        tpu.queue("late", node_id="l-1", queueing_policy={"valid_after_duration": {"seconds": 900}})
        tpu.clock.advance(5.1)
        look()
        tpu.clock.advance(5.1)
        look("late")
        tpu.clock.advance(60)
        look()
        tpu.cloud.preempt("demo-1")
        look()
        tpu.clock.advance(21)
        look()
        tpu.unqueue()
        look()
        tpu.queue("none", node_id="n-1", queueing_policy={"valid_until_duration": {"seconds": 2}})
        tpu.clock.advance(3)
        look("none")
        tpu.cloud.state.queued[tpu.cloud.get_queued("late").uid].phase = QueuePhase.UNSPECIFIED
        look("late")  # the zero value: a message without the field, which a client must survive
    assert seen == {
        "CREATING": "creating_data",
        "ACCEPTED": "accepted_data",
        "WAITING_FOR_RESOURCES": "",
        "PROVISIONING": "provisioning_data",
        "ACTIVE": "active_data",
        "SUSPENDING": "suspending_data",
        "SUSPENDED": "suspended_data",
        "DELETING": "deleting_data",
        "FAILED": "failed_data",
        "STATE_UNSPECIFIED": "",
    }
    assert set(seen) == set(STATES.values()) == {state.name for state in tpu_v2.QueuedResourceState.State}


def test_queued_resource_gets_its_node_when_there_is_room() -> None:
    with tpu_api(pools=FULL) as tpu:
        operation = tpu.queue(spot=SPOT, queueing_policy={"valid_until_duration": {"seconds": 21600}})
        assert not operation.done()
        tpu.clock.advance(60)
        assert operation.result(polling=QUICK).state.state.name == "WAITING_FOR_RESOURCES"
        assert tpu.state() == "ABSENT"
        tpu.cloud.state.capacity[f"{ZONE}/v5e/*"] = 16
        tpu.clock.advance(60)
        node = tpu.node()
        assert (tpu.queue_state(), node.state.name) == ("ACTIVE", "READY")
        assert (node.queued_resource, node.multislice_node) == (f"{PARENT}/queuedResources/q-1", False)
        shown = tpu.queued()
        assert shown.queueing_policy.valid_until_duration == timedelta(hours=6)
        assert "spot" in shown
        assert shown.tpu.node_spec[0].node_id == "demo-1"


def test_expired_request_fails_and_stays_until_deleted() -> None:
    with tpu_api(pools=FULL) as tpu:
        tpu.queue(queueing_policy={"valid_until_duration": {"seconds": 100}})
        tpu.clock.advance(101)
        state = tpu.queued().state
        assert (state.state.name, state.failed_data.error.code) == ("FAILED", 8)
        assert "in time" in state.failed_data.error.message
        tpu.unqueue()
        tpu.clock.advance(6)
        assert tpu.queue_state() == "ABSENT"


def test_living_nodes_need_force() -> None:
    with tpu_api() as tpu:
        tpu.active()
        error = refusal(tpu.unqueue)
        assert error.response.json()["error"]["status"] == "FAILED_PRECONDITION"
        assert (tpu.queue_state(), tpu.state()) == ("ACTIVE", "READY")
        operation = tpu.unqueue(force=True)
        assert (tpu.queue_state(), tpu.state(), operation.done()) == ("DELETING", "DELETING", False)
        tpu.clock.advance(21)
        assert (tpu.queue_state(), tpu.state()) == ("ABSENT", "ABSENT")
        operation.result(polling=QUICK)


def test_deleted_node_suspends_its_request() -> None:
    initiators = tpu_v2.QueuedResourceState.StateInitiator
    for spot, initiator in ((False, initiators.USER), (True, initiators.SERVICE)):
        with tpu_api() as tpu:
            tpu.active(**({"spot": SPOT} if spot else {}))
            if spot:
                tpu.cloud.preempt("demo-1")
            else:
                tpu.client.delete_node(name=f"{PARENT}/nodes/demo-1")
            assert (tpu.queue_state(), tpu.queued().state.state_initiator) == ("SUSPENDING", initiator)
            assert isinstance(refusal(lambda tpu=tpu: tpu.unqueue(force=True)), exceptions.BadRequest)
            tpu.clock.advance(21)
            assert (tpu.queue_state(), tpu.queued().state.state_initiator) == ("SUSPENDED", initiator)
            tpu.unqueue()
            tpu.clock.advance(6)
            assert tpu.queue_state() == "ABSENT"


def test_suspended_request_keeps_its_quota_until_deleted() -> None:
    with tpu_api(quotas=(Quota(region="us-west4", accelerator="v5e", amount=40, unit="chips"),)) as tpu:
        tpu.active(count=2, spot=SPOT)
        tpu.cloud.preempt("q-1-0")
        tpu.clock.advance(21)
        assert tpu.queue_state() == "SUSPENDED"
        assert isinstance(refusal(lambda: tpu.queue("q-2")), exceptions.TooManyRequests), "32 of 40 chips are held"
        tpu.unqueue(force=True)
        tpu.clock.advance(6)
        tpu.queue("q-2")


def test_several_slices_come_together() -> None:
    with tpu_api(pools=room(31)) as tpu:
        tpu.queue(count=2, prefix="ms")
        tpu.clock.advance(120)
        assert (tpu.queue_state(), tpu.cloud.live()) == ("WAITING_FOR_RESOURCES", ())
        tpu.cloud.state.capacity[f"{ZONE}/v5e/*"] = 32
        tpu.clock.advance(11)
        assert tpu.queue_state() == "PROVISIONING"
        tpu.clock.advance(41)
        assert tpu.queue_state() == "ACTIVE"
        nodes = list(tpu.client.list_nodes(parent=PARENT))
        assert [node.name.rpartition("/")[2] for node in nodes] == ["ms-0", "ms-1"]
        assert all(node.multislice_node and node.queued_resource.endswith("/q-1") for node in nodes)
        assert len({each.ip_address for node in nodes for each in node.network_endpoints}) == 8
        assert [spec.node_id for spec in tpu.queued().tpu.node_spec] == ["ms-0", "ms-1"]


def test_lost_slice_suspends_all() -> None:
    with tpu_api() as tpu:
        tpu.active(count=3, spot=SPOT)
        tpu.cloud.preempt("q-1-1")
        assert [tpu.state(f"q-1-{index}") for index in range(3)] == ["DELETING"] * 3
        assert tpu.queue_state() == "SUSPENDING"
        tpu.clock.advance(21)
        assert (tpu.queue_state(), tpu.cloud.live()) == ("SUSPENDED", ())


def test_multislice_is_suspended_when_its_last_slice_has_gone() -> None:
    with tpu_api(durations=Durations(jitter=0.5)) as tpu:
        tpu.queue(count=3, spot=SPOT)
        tpu.clock.advance(300)
        assert tpu.queue_state() == "ACTIVE"
        tpu.cloud.preempt("q-1-0")
        seen: set[tuple[int, str]] = set()
        for _ in range(80):
            tpu.clock.advance(0.5)
            seen.add((len(tpu.cloud.live()), tpu.queue_state()))
        assert {(2, "SUSPENDING"), (1, "SUSPENDING"), (0, "SUSPENDED")} <= seen
        assert {state for nodes, state in seen if nodes} == {"SUSPENDING"}


def test_quota_of_a_multislice_is_that_of_all_its_slices() -> None:
    with tpu_api(quotas=(Quota(region="us-west4", accelerator="v5e", amount=31, unit="chips"),)) as tpu:
        assert isinstance(refusal(lambda: tpu.queue(count=2)), exceptions.TooManyRequests)
        assert list(tpu.client.list_queued_resources(parent=PARENT)) == []


def test_multislice_with_one_slice_still_coming_is_not_active() -> None:
    with tpu_api() as tpu:
        tpu.queue(count=2)
        tpu.clock.advance(30)
        assert tpu.queue_state() == "PROVISIONING"
        second = next(each for each in tpu.cloud.state.resources.values() if each.name == "q-1-1")
        second.hosts[0].stuck = True
        tpu.clock.advance(60)
        assert (tpu.state("q-1-0"), tpu.state("q-1-1"), tpu.queue_state()) == ("READY", "CREATING", "PROVISIONING")


def test_multislice_whose_name_is_taken_fails_whole() -> None:
    with tpu_api() as tpu:
        tpu.ready("q-1-1")
        tpu.queue(count=2)
        tpu.clock.advance(30)
        state = tpu.queued().state
        assert (state.state.name, state.failed_data.error.code) == ("FAILED", 6)
        assert [look.name for look in tpu.cloud.live()] == ["q-1-1"]


def test_request_may_name_its_earliest_time() -> None:
    with tpu_api() as tpu:
        at = datetime.fromtimestamp(tpu.clock.now() + 500, UTC)
        tpu.queue("a", node_id="a-1", queueing_policy={"valid_after_duration": {"seconds": 500}})
        tpu.queue("b", node_id="b-1", queueing_policy={"valid_after_time": at})
        interval = {"start_time": at, "end_time": at + timedelta(hours=1)}
        tpu.queue("c", node_id="c-1", queueing_policy={"valid_interval": interval})
        tpu.queue("now", node_id="n-1")
        tpu.clock.advance(480)
        states = {name: tpu.queue_state(name) for name in ("a", "b", "c", "now")}
        assert states == dict.fromkeys("abc", "WAITING_FOR_RESOURCES") | {"now": "ACTIVE"}
        tpu.clock.advance(100)
        assert {tpu.queue_state(name) for name in "abc"} == {"ACTIVE"}


def test_reset_queues_a_suspended_request_again() -> None:
    quota = Quota(region="us-west4", accelerator="v5e", amount=16, unit="chips")
    with tpu_api(pools=room(16), quotas=(quota,)) as tpu:
        name = {"name": f"{PARENT}/queuedResources/q-1"}
        tpu.active(spot=SPOT, queueing_policy={"valid_until_duration": {"seconds": 200}})
        error = refusal(lambda: tpu.client.reset_queued_resource(name))
        assert error.response.json()["error"]["status"] == "FAILED_PRECONDITION"
        tpu.cloud.preempt("demo-1")
        tpu.clock.advance(21)
        tpu.client.reset_queued_resource(name)
        assert tpu.queue_state() == "ACCEPTED", "the quota that it holds itself does not stand in its way"
        tpu.cloud.state.capacity[f"{ZONE}/v5e/*"] = 0
        tpu.clock.advance(300)
        assert tpu.queue_state() == "WAITING_FOR_RESOURCES", "the end that it named first is over and forgotten"
        tpu.cloud.state.capacity[f"{ZONE}/v5e/*"] = 16
        tpu.clock.advance(100)
        assert (tpu.queue_state(), tpu.state()) == ("ACTIVE", "READY")
        assert len(tpu.cloud.made()) == 2


def test_request_id_makes_a_create_repeatable() -> None:
    with tpu_api() as tpu:
        token = str(uuid.uuid4())
        tpu.queue(request_id=token)
        tpu.queue(request_id=token)
        assert len(list(tpu.client.list_queued_resources(parent=PARENT))) == 1
        assert isinstance(refusal(tpu.queue), exceptions.Conflict)
        other = make_node(accelerator_type="v5litepod-8")
        assert isinstance(refusal(lambda: tpu.queue(request_id=token, node=other)), exceptions.BadRequest)
        assert isinstance(refusal(lambda: tpu.queue("q-2", request_id="no uuid")), exceptions.BadRequest)


def test_requests_that_make_no_sense_are_refused() -> None:
    now = datetime.fromtimestamp(1_800_000_000, UTC)
    with tpu_api() as tpu:
        elsewhere = {"parent": PARENT.replace(ZONE, OTHER), "node_id": "a", "node": make_node()}
        bad = [
            lambda: tpu.client.create_queued_resource(
                parent=PARENT, queued_resource_id="q", queued_resource={"tpu": {"node_spec": [elsewhere]}}
            ),
            lambda: tpu.queue("Q"),
            lambda: tpu.queue(node_id=""),
            lambda: tpu.queue(count=1),
            lambda: tpu.queue(count=2, prefix="A"),
            lambda: tpu.queue(node=make_node(accelerator_type="v5litepod-3")),
            lambda: tpu.queue(node=make_node(labels={"A": ""})),
            lambda: tpu.queue(queueing_policy={"valid_until_duration": {"seconds": 0}}),
            lambda: tpu.queue(queueing_policy={"valid_until_time": now - timedelta(hours=1)}),
            lambda: tpu.queue(spot=SPOT, reservation_name=f"{PARENT}/reservations/-"),
            lambda: tpu.queue(reservation_name=f"{PARENT}/reservations/none"),
            lambda: tpu.client.create_queued_resource(
                parent=PARENT, queued_resource_id="q", queued_resource=tpu_v2.QueuedResource()
            ),
        ]
        for number, call in enumerate(bad[:-2] + bad[-1:]):
            assert isinstance(refusal(call), exceptions.BadRequest), number
        bad[-2]()
        tpu.clock.advance(30)
        state = tpu.queued().state  # that there is no such reservation is found when it is filled
        assert (state.state.name, state.failed_data.error.code) == ("FAILED", 3)
        assert tpu.cloud.made() == ()


def test_reservation_serves_only_its_own() -> None:
    held = (Held(name="r1", zone=ZONE, accelerator="v5e", amount=16, unit="chips"),)
    with tpu_api(pools=FULL, reservations=held) as tpu:
        tpu.active(reservation_name=f"{PARENT}/reservations/-")
        assert tpu.cloud.live()[0].market == "reservation:r1"
        tpu.queue("q-2", node_id="more", reservation_name=f"{PARENT}/reservations/r1")
        tpu.clock.advance(60)
        assert tpu.queue_state("q-2") == "WAITING_FOR_RESOURCES"
        tpu.create("plain", scheduling_config={"reserved": True})
        tpu.clock.advance(60)
        assert tpu.state("plain") == "ABSENT", "its operation has failed for want of room"


def test_cloud_that_was_kept_before_there_were_several_nodes_is_still_read() -> None:
    with tpu_api() as tpu:
        tpu.queue()
        kept = json.loads(json.dumps(tpu.cloud.state.to_json()))
        for queued in kept["queued"].values():
            del queued["more"], queued["not_before"]
        del kept["front"]
        tpu.access.cloud = SimulatedCloud(tpu.cloud.scenario, tpu.clock, CloudState.from_json(kept))
        tpu.clock.advance(60)
        assert (tpu.queue_state(), tpu.state()) == ("ACTIVE", "READY")


@pytest.mark.parametrize("deed", [Deed.PREEMPT, Deed.FAIL, Deed.VANISH])
def test_whatever_takes_the_node_suspends_the_request(deed: Deed) -> None:
    with tpu_api() as tpu:
        tpu.active(spot=SPOT)
        tpu.cloud.do("demo-1", deed)
        tpu.clock.advance(21)
        assert (tpu.queue_state(), tpu.state()) == ("SUSPENDED", "ABSENT")


def test_queued_listing_has_pages() -> None:
    with tpu_api(page=2) as tpu:
        for number in range(5):
            tpu.queue(f"q-{number}", node_id=f"n-{number}")
        pages = [len(page.queued_resources) for page in tpu.client.list_queued_resources(parent=PARENT).pages]
        assert pages == [2, 2, 1]
        everywhere = PARENT.replace(ZONE, "-")
        assert len(list(tpu.client.list_queued_resources({"parent": everywhere, "page_size": 10}))) == 5
