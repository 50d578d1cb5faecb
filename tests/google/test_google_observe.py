"""What a look at a slice says: its hosts, its states, and what holds it back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from google_bench import NODE, PLACE, QUEUED, SPOT, Bench
from google_cases import candidate, spec
from google_fake import Answer, Fault

from orchestrator.providers.google import client, session
from orchestrator.providers.google.host_keys import KEY_PATIENCE
from orchestrator.providers.google.record import Records
from orchestrator.slices import SliceState


def test_node_comes_up_with_its_hosts_in_worker_order_and_our_keys(bench: Bench) -> None:
    provider = bench.created(spec())
    assert provider.observe("demo-1").state is SliceState.CREATING
    provider = bench.provider()
    bench.fake.make_ready("demo-1")
    bench.fake.keys[NODE] = [line.split()[1] for line in bench.keys.host_public[:4]]
    view = provider.observe("demo-1")
    assert view.state is SliceState.READY, view
    assert [host.internal_ip for host in view.hosts] == [f"10.0.0.{rank}" for rank in range(4)]
    assert [host.host for host in view.hosts] == [f"192.0.2.{rank}" for rank in range(4)]
    assert [host.host_key for host in view.hosts] == list(bench.keys.host_public[:4])
    assert len({host.alias for host in view.hosts}) == 4
    assert all(host.alias == host.alias.lower() and host.host not in host.alias for host in view.hosts)
    assert {str(host.known_hosts) for host in view.hosts} == {bench.keys.known_hosts}


@pytest.mark.parametrize("kind", ["node", "queued"])
def test_name_length_and_port_are_those_of_google_without_the_local_switch(kind: str, bench: Bench) -> None:
    """Google's endpoints name port 8470, which is not SSH."""
    from orchestrator.providers.google.addresses import Login, ready_view

    of = spec(SPOT if kind == "queued" else None)
    bench.ready(of)
    record = Records(bench.state / "google").read("demo-1")
    assert record is not None
    api = client.open_api(session.open_session())
    view = ready_view(record, [api.node(NODE)], Login("orch"))
    assert {(host.port, host.user) for host in view.hosts} == {(22, "orch")}
    own = ready_view(record, [api.node(NODE)], Login("me", own_ports=True))
    assert {(host.port, host.user) for host in own.hosts} == {(8470, "me")}


def test_two_slices_come_up_as_one_with_ranks_slice_by_slice(bench: Bench) -> None:
    of = spec(candidate(slices=2))
    provider = bench.ready(of)
    view = provider.observe("demo-1")
    assert view.state is SliceState.READY, view
    assert [host.internal_ip for host in view.hosts] == [f"10.0.{at}.{rank}" for at in (0, 1) for rank in range(4)]
    assert [host.rank for host in view.hosts] == list(range(8))
    del bench.fake.nodes[f"{PLACE}/nodes/demo-1-1"]
    assert provider.observe("demo-1").state is SliceState.PREEMPTED


def test_hosts_without_our_key_hold_the_slice_back_for_a_while(bench: Bench) -> None:
    provider = bench.ready(spec())
    bench.fake.keys[NODE][2] = "AAAAsomebodyElse"
    view = provider.observe("demo-1")
    assert (view.state, view.reason) == (SliceState.CREATING, "3 of 4 hosts have their SSH key")
    bench.clock += KEY_PATIENCE + 1
    assert provider.observe("demo-1").state is SliceState.READY, "SSH itself tells an impostor"
    asked = bench.fake.count("getGuestAttributes")
    assert bench.provider().observe("demo-1").state is SliceState.READY
    assert bench.fake.count("getGuestAttributes") == asked, "it is asked once"


def test_hosts_that_come_back_from_a_repair_are_held_back_again(bench: Bench) -> None:
    provider = bench.ready(spec())
    assert provider.observe("demo-1").state is SliceState.READY
    bench.fake.nodes[NODE]["state"] = "REPAIRING"
    assert provider.observe("demo-1").state is SliceState.STARTING
    bench.fake.nodes[NODE]["state"] = "READY"
    bench.fake.keys[NODE] = [""] * 4
    assert provider.observe("demo-1").state is SliceState.CREATING


def test_hosts_of_a_later_slice_of_the_name_are_not_checked_yet(bench: Bench) -> None:
    bench.ready(spec()).observe("demo-1")
    records = Records(bench.state / "google")
    record = records.read("demo-1")
    assert record is not None
    assert records.is_checked(record)
    assert not records.is_checked(replace(record, token="later-1"))


def test_guest_attributes_that_may_not_be_read_hold_nothing_back(bench: Bench) -> None:
    provider = bench.ready(spec())
    bench.fake.keys.clear()
    bench.fake.faults = [Fault("getGuestAttributes", Answer(403, "not allowed"))]
    assert provider.observe("demo-1").state is SliceState.READY


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("CREATING", SliceState.CREATING),
        ("READY", SliceState.READY),
        ("RESTARTING", SliceState.STARTING),
        ("REIMAGING", SliceState.STARTING),
        ("REPAIRING", SliceState.STARTING),
        ("STARTING", SliceState.STARTING),
        ("UNHIDING", SliceState.STARTING),
        ("DELETING", SliceState.ENDING),
        ("STOPPED", SliceState.STOPPED),
        ("STOPPING", SliceState.STOPPING),
        ("PREEMPTED", SliceState.PREEMPTED),
        ("TERMINATED", SliceState.PREEMPTED),
        ("HIDING", SliceState.UNCLEAR),
        ("HIDDEN", SliceState.UNCLEAR),
        ("UNKNOWN", SliceState.FAILED),
        ("STATE_UNSPECIFIED", SliceState.UNCLEAR),
    ],
)
def test_every_state_of_a_node_has_its_meaning(state: str, expected: SliceState, bench: Bench) -> None:
    provider = bench.ready(spec())
    bench.fake.nodes[NODE]["state"] = state
    assert provider.observe("demo-1").state is expected


def test_every_state_of_the_library_is_in_the_tables() -> None:
    from google.cloud import tpu_v2

    from orchestrator.providers.google.states import NODE as NODES
    from orchestrator.providers.google.states import QUEUED as REQUESTS

    assert {*NODES} == {state.name for state in tpu_v2.Node.State}
    assert {*REQUESTS} == {state.name for state in tpu_v2.QueuedResourceState.State}


def test_node_under_maintenance_is_on_its_way_back(bench: Bench) -> None:
    provider = bench.ready(spec())
    bench.fake.nodes[NODE] |= {"health": "UNHEALTHY_MAINTENANCE", "healthDescription": "moved to another rack"}
    view = provider.observe("demo-1")
    assert view.state is SliceState.STARTING
    assert "moved to another rack" in view.reason


@pytest.mark.parametrize(
    ("state", "expected", "words"),
    [
        ("CREATING", SliceState.CREATING, "creating for 90 min"),
        ("ACCEPTED", SliceState.CREATING, "accepted for"),
        ("WAITING_FOR_RESOURCES", SliceState.CREATING, "waiting for resources for 1 h 30 min"),
        ("PROVISIONING", SliceState.CREATING, "provisioning for"),
        ("ACTIVE", SliceState.READY, ""),
        ("FAILED", SliceState.FAILED, "failed: no machines became free"),
        ("DELETING", SliceState.ENDING, "deleting"),
        ("SUSPENDING", SliceState.ENDING, "its machines were taken back"),
        ("SUSPENDED", SliceState.PREEMPTED, "suspended by service"),
        ("STATE_UNSPECIFIED", SliceState.UNCLEAR, "unspecified"),
    ],
)
def test_every_state_of_a_queued_resource_has_its_meaning(
    state: str, expected: SliceState, words: str, bench: Bench
) -> None:
    provider = bench.ready(spec(SPOT))
    bench.fake.queued[QUEUED]["createTime"] = "2025-11-20T08:30:00Z"
    bench.fake.queued[QUEUED]["state"] = {"state": state, "stateInitiator": "SERVICE"}
    if state == "FAILED":
        bench.fake.queued[QUEUED]["state"]["failedData"] = {"error": {"code": 8, "message": "no machines became free"}}
    view = provider.observe("demo-1")
    assert view.state is expected
    assert words.replace("90 min", "1 h 30 min") in view.reason


def test_hosts_other_than_planned_are_a_failure_before_anything_is_sent_to_them(bench: Bench) -> None:
    provider = bench.ready(spec())
    del bench.fake.nodes[NODE]["networkEndpoints"][3]
    view = provider.observe("demo-1")
    assert (view.state, view.reason) == (SliceState.FAILED, "demo-1 has 3 hosts, 4 were planned")


def test_with_two_networks_every_second_endpoint_is_a_worker(bench: Bench) -> None:
    provider = bench.ready(spec())
    node = bench.fake.nodes[NODE]
    node["networkConfigs"] = [{"network": "a"}, {"network": "b"}]
    node["networkEndpoints"] = [one for each in node["networkEndpoints"] for one in (each, {"ipAddress": "10.9.9.9"})]
    view = provider.observe("demo-1")
    assert [host.internal_ip for host in view.hosts] == [f"10.0.0.{rank}" for rank in range(4)]


def test_internal_addresses_are_used_when_asked_for(bench: Bench) -> None:
    provider = bench.ready(spec(candidate(internal_ips="yes")))
    assert [host.host for host in provider.observe("demo-1").hosts] == [f"10.0.0.{rank}" for rank in range(4)]


def test_looks_are_repeated_and_honour_retry_after(bench: Bench) -> None:
    provider = bench.ready(spec())
    slow = Answer(429, "too many requests", headers={"Retry-After": "0"})
    bench.fake.faults = [Fault("GET", slow), Fault("GET", Answer(503)), Fault("GET", drops=True)]
    assert provider.observe("demo-1").state is SliceState.READY


def test_a_long_retry_after_is_not_slept_through(bench: Bench) -> None:
    provider = bench.ready(spec())
    calls = len(bench.fake.calls)
    bench.fake.faults = [Fault("GET", Answer(429, "later", headers={"Retry-After": "3600"}))]
    assert provider.observe("demo-1").state is SliceState.UNCLEAR
    assert len(bench.fake.calls) == calls + 1


@pytest.mark.parametrize("answer", [Answer(403), Answer(500), Answer(401)], ids=["403", "500", "401"])
def test_look_that_fails_is_unclear_and_never_absent(answer: Answer, bench: Bench) -> None:
    provider = bench.ready(spec())
    bench.fake.faults = [Fault("GET", answer)] * 4
    view = provider.observe("demo-1")
    assert view.state is SliceState.UNCLEAR
    assert view.reason


def test_server_that_is_away_is_unclear(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.ready(spec())
    monkeypatch.setenv(session.ENDPOINT, "http://127.0.0.1:1")
    assert bench.provider().observe("demo-1").state is SliceState.UNCLEAR
