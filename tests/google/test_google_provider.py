"""The provider over real sockets, against a small TPU API on this computer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from google_cases import INSTALLATION, PROJECT, TOKEN, candidate, keys, spec
from google_fake import Answer, Fake, Fault, fake_api

from orchestrator.errors import (
    AccessError,
    CapacityError,
    CloudError,
    ConflictError,
    OrchError,
    QuotaError,
    UserError,
)
from orchestrator.providers.google import client, session
from orchestrator.providers.google.looking import KEY_PATIENCE, SETTLE_SECONDS
from orchestrator.providers.google.provider import GoogleProvider, open_provider
from orchestrator.providers.protocol import Stops
from orchestrator.slices import Reservation, SliceKeys, SliceSpec, SliceState, Spot
from orchestrator.values import Text

PLACE = f"projects/{PROJECT}/locations/us-west4-a"
NODE = f"{PLACE}/nodes/demo-1"
QUEUED = f"{PLACE}/queuedResources/demo-1"
CREATE_NODE = "POST /v2/" + PLACE + "/nodes"
SPOT = candidate(market=Spot())


@dataclass(slots=True)
class Bench:
    fake: Fake
    state: Path
    keys: SliceKeys
    clock: float = 1_763_632_800.0  # 2025-11-20T10:00:00Z

    def provider(self) -> GoogleProvider:
        """As another command would have it."""
        return GoogleProvider(client.open_api(session.open_session()), self.state / "google", lambda: self.clock)

    def keyed(self, of: SliceSpec) -> SliceKeys:
        hosts = of.candidate.hosts
        return replace(
            self.keys, host_private=self.keys.host_private[:hosts], host_public=self.keys.host_public[:hosts]
        )

    def created(self, of: SliceSpec) -> GoogleProvider:
        provider = self.provider()
        provider.create(of, self.keyed(of))
        return provider

    def ready(self, of: SliceSpec) -> GoogleProvider:
        """Created, up, and its hosts show our keys."""
        provider = self.created(of)
        self.fake.make_ready(of.name)
        per_slice = of.candidate.hosts // max(1, len(self.fake.nodes))
        for at, path in enumerate(self.fake.nodes):
            mine = self.keys.host_public[at * per_slice : (at + 1) * per_slice]
            self.fake.keys[path] = [line.split()[1] for line in mine]
        return provider


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with fake_api() as fake:
        monkeypatch.setenv(session.ENDPOINT, fake.url)
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", PROJECT)
        yield Bench(fake, tmp_path, keys(8, str(tmp_path)))


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
    from orchestrator.providers.google.record import Records

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
        ("WAITING_FOR_RESOURCES", SliceState.CREATING, "waiting for resources for 1 h 30 min, at most 4 h 30 min more"),
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


def test_create_asked_twice_makes_one_slice(bench: Bench) -> None:
    for of in (spec(), spec(SPOT, "demo-2", "other-token-2")):
        bench.created(of)
        bench.created(of)
    assert (len(bench.fake.nodes), len(bench.fake.queued)) == (1, 1)
    assert bench.fake.count(CREATE_NODE) == 1, "the second one looked first"


def test_node_of_another_request_under_this_name_is_a_conflict_and_stays(bench: Bench) -> None:
    bench.created(spec())
    before = json.dumps(bench.fake.nodes)
    with pytest.raises(ConflictError) as caught:
        bench.created(spec(token="another-token-1"))
    assert caught.value.next_step
    assert json.dumps(bench.fake.nodes) == before
    assert bench.provider().observe("demo-1").state is SliceState.CREATING


def test_somebody_elses_node_is_a_conflict_and_is_never_ended(bench: Bench) -> None:
    bench.fake.nodes[NODE] = {"name": NODE, "state": "READY", "labels": {"team": "theirs"}}
    with pytest.raises(ConflictError):
        bench.created(spec())
    provider = bench.provider()
    provider.end("demo-1")
    assert bench.fake.count("DELETE") == 0
    assert NODE in bench.fake.nodes
    assert provider.observe("demo-1").state is SliceState.ABSENT, "ours is not there"


@pytest.mark.promise("P2")
@pytest.mark.parametrize("of", [spec(), spec(SPOT)], ids=["node", "queued"])
@pytest.mark.parametrize("answer", [None, Answer(503, "try later"), Answer(500, "oops")], ids=["silence", "503", "500"])
def test_create_whose_answer_is_lost_is_settled_by_a_look(of: SliceSpec, answer: Answer | None, bench: Bench) -> None:
    bench.fake.faults = [Fault("POST", answer, acts=True, drops=answer is None)]
    bench.created(of)
    assert bench.fake.count("POST") == 1, "never sent again"
    assert bench.provider().observe("demo-1").state is SliceState.CREATING


def test_create_that_never_arrived_may_be_asked_again(bench: Bench) -> None:
    bench.fake.faults = [Fault("POST", drops=True)]
    with pytest.raises(CloudError, match="not known"):
        bench.created(spec())
    assert bench.provider().observe("demo-1").state is SliceState.UNCLEAR, "it may still be on its way"
    bench.created(spec())
    assert len(bench.fake.nodes) == 1


def test_create_on_its_way_is_absent_only_when_it_can_no_longer_arrive(bench: Bench) -> None:
    bench.fake.faults = [Fault("POST", drops=True)]
    with pytest.raises(CloudError):
        bench.created(spec())
    provider = bench.provider()
    provider.end("demo-1")
    assert provider.observe("demo-1").state is SliceState.UNCLEAR
    bench.clock += SETTLE_SECONDS + 1
    assert provider.observe("demo-1").state is SliceState.ABSENT


def test_capacity_that_is_missing_only_in_the_operation_is_a_failure_with_its_words(bench: Bench) -> None:
    provider = bench.created(spec())
    (path,) = bench.fake.operations
    words = 'There is no more capacity in the zone "us-west4-a"'
    bench.fake.operations[path] = {"name": path, "done": True, "error": {"code": 8, "message": words}}
    bench.fake.nodes.clear()
    view = provider.observe("demo-1")
    assert view.state is SliceState.FAILED
    assert words in view.reason
    provider.end("demo-1")
    bench.clock += SETTLE_SECONDS + 1
    assert provider.observe("demo-1").state is SliceState.ABSENT


@pytest.mark.parametrize(
    ("answer", "expected", "next_step"),
    [
        (Answer(429, "There is no more capacity in the zone"), CapacityError, "another zone"),
        (Answer(429, "Quota limit 'TPUV5sLitepodPerProjectPerZone' has been exceeded. Limit: 0"), QuotaError, "Quotas"),
        (Answer(403, "Permission 'tpu.nodes.create' denied"), AccessError, "roles/tpu.admin"),
        (
            Answer(403, "Cloud TPU API has not been used in project 1 before or it is disabled."),
            AccessError,
            "gcloud services enable tpu.googleapis.com",
        ),
        (Answer(401, "credentials"), AccessError, "gcloud auth application-default login"),
        (Answer(400, "Invalid value for node.network_config"), UserError, "orch accelerators"),
        (Answer(429, "Quota exceeded for 'Requests' and limit 'Requests per minute'"), CloudError, "again"),
        (Answer(404, "Network net-9 was not found"), UserError, "the network"),
        (Answer(403, "Location us-west4-z is not found or access is unauthorized"), CapacityError, "another zone"),
        (Answer(404, "accelerator type v6e-8 not found in this zone"), CapacityError, "another zone"),
    ],
)
def test_refused_create_says_what_to_do_and_leaves_nothing(
    answer: Answer, expected: type[OrchError], next_step: str, bench: Bench
) -> None:
    bench.fake.faults = [Fault("POST", answer)]
    with pytest.raises(expected) as caught:
        bench.created(spec())
    assert type(caught.value) is expected
    assert next_step in caught.value.next_step
    assert answer.words.split(".")[0] in caught.value.why
    assert bench.fake.count("POST") == 1
    assert bench.provider().observe("demo-1").state is SliceState.ABSENT
    bench.created(spec())
    assert len(bench.fake.nodes) == 1, "the same slice may be asked for later"


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


@pytest.mark.parametrize("state", ["CREATING", "WAITING_FOR_RESOURCES", "ACTIVE", "FAILED", "SUSPENDED"])
def test_end_leaves_neither_queued_resource_nor_node(state: str, bench: Bench) -> None:
    """A queued resource that stays eats quota, and may become machines later (SkyPilot 0.14.1 leaves it)."""
    provider = bench.ready(spec(SPOT))
    bench.fake.queued[QUEUED]["state"] = {"state": state}
    provider.end("demo-1")
    assert (bench.fake.queued, bench.fake.nodes) == ({}, {})
    bench.clock += SETTLE_SECONDS + 1
    assert provider.observe("demo-1").state is SliceState.ABSENT
    provider.end("demo-1")


def test_suspending_resource_is_waited_for_and_then_deleted(bench: Bench) -> None:
    provider = bench.ready(spec(SPOT))
    bench.fake.queued[QUEUED]["state"] = {"state": "SUSPENDING"}
    provider.end("demo-1")
    assert bench.fake.count("DELETE") == 0
    assert provider.observe("demo-1").state is SliceState.ENDING
    bench.fake.queued[QUEUED]["state"] = {"state": "SUSPENDED"}
    provider.end("demo-1")
    assert bench.fake.queued == {}


def test_what_is_being_deleted_is_not_asked_again(bench: Bench) -> None:
    provider = bench.ready(spec())
    bench.fake.nodes[NODE]["state"] = "DELETING"
    provider.end("demo-1")
    (bench.state / "google" / "demo-1.json").unlink()
    provider.end("demo-1")
    assert bench.fake.count("DELETE") == 0


def test_nodes_that_outlive_their_queued_resource_are_ended_too(bench: Bench) -> None:
    provider = bench.ready(spec(candidate(slices=2)))
    bench.fake.queued.clear()
    assert provider.observe("demo-1").state is SliceState.FAILED
    provider.end("demo-1")
    assert bench.fake.nodes == {}


def test_end_without_a_record_searches_every_zone(bench: Bench) -> None:
    bench.ready(spec(candidate(zone="us-central1-a")))
    bench.ready(spec(SPOT, "demo-2", "other-2"))
    for file in (bench.state / "google").glob("*.json"):
        file.unlink()
    provider = bench.provider()
    view = provider.observe("demo-2")
    assert view.state is SliceState.UNCLEAR
    assert "another computer" in view.reason
    provider.end("demo-1")
    provider.end("demo-2")
    assert (bench.fake.nodes, bench.fake.queued) == ({}, {})
    assert provider.observe("demo-1").state is SliceState.ABSENT


def test_owned_lists_all_pages_of_all_zones_and_only_ours(bench: Bench) -> None:
    bench.fake.nodes[f"{PLACE}/nodes/foreign"] = {"name": f"{PLACE}/nodes/foreign", "state": "READY"}
    bench.ready(spec(candidate(zone="us-central1-a")))
    bench.created(spec(candidate("v5litepod-8", slices=2), "demo-2", "other-2"))
    bench.created(spec(candidate("v5litepod-8"), "demo-3", "other-3"))
    theirs = replace(spec(candidate("v5litepod-8"), "demo-4", "other-4"))
    bench.created(replace(theirs, labels=(("orch-installation", Text.of("another")), *theirs.labels[1:])))
    found = {one.name: one for one in bench.provider().owned(INSTALLATION)}
    assert {*found} == {"demo-1", "demo-2", "demo-3"}
    assert (found["demo-1"].where, found["demo-1"].state) == ("gcp/us-central1/us-central1-a", SliceState.READY)
    assert (found["demo-1"].intent, found["demo-1"].cluster, found["demo-1"].installation) == (
        TOKEN,
        "demo",
        INSTALLATION,
    )
    assert found["demo-2"].intent == "other-2"
    assert found["demo-1"].created > 1e9


def test_owned_names_the_slice_of_nodes_whose_queued_resource_is_gone(bench: Bench) -> None:
    bench.ready(spec(candidate(slices=2)))
    bench.fake.queued.clear()
    assert [one.name for one in bench.provider().owned(INSTALLATION)] == ["demo-1"]


def test_listing_that_is_not_whole_is_an_error(bench: Bench) -> None:
    bench.created(spec())
    bench.fake.unreachable = [f"projects/{PROJECT}/locations/us-west4-a"]
    with pytest.raises(CloudError, match="no answer from"):
        bench.provider().owned(INSTALLATION)
    bench.fake.unreachable = []
    bench.fake.faults = [Fault("/nodes", Answer(403))]
    with pytest.raises(AccessError):
        bench.provider().owned(INSTALLATION)


def test_zone_that_is_closed_to_the_project_hides_nothing_that_is_ours(bench: Bench) -> None:
    bench.created(spec())
    closed = Answer(403, "Location us-central1-a is not found or access is unauthorized.")
    bench.fake.faults = [Fault("us-central1-a/queuedResources", closed)]
    assert [one.name for one in bench.provider().owned(INSTALLATION)] == ["demo-1"]
    closed = Answer(403, "Location us-west4-a is not found or access is unauthorized.")
    bench.fake.faults = [Fault("us-west4-a/queuedResources", closed)]
    with pytest.raises(AccessError):
        bench.provider().owned(INSTALLATION)


def test_only_a_single_plain_host_can_be_stopped_and_started(bench: Bench) -> None:
    provider = bench.ready(spec(candidate("v5litepod-8")))
    assert isinstance(provider, Stops)
    provider.stop("demo-1")
    assert provider.observe("demo-1").state is SliceState.STOPPING
    provider.stop("demo-1")
    bench.fake.nodes[NODE]["state"] = "STOPPED"
    provider.start("demo-1")
    assert provider.observe("demo-1").state is SliceState.STARTING
    assert (bench.fake.count(":stop"), bench.fake.count(":start")) == (1, 1)


@pytest.mark.parametrize("of", [candidate(), candidate("v5litepod-4", Spot()), candidate("v6e-8", Reservation("-"))])
def test_pods_and_queued_hosts_are_not_stopped_and_the_reason_is_said(of: object, bench: Bench) -> None:
    made = spec(of)  # type: ignore[arg-type]  # pytest hands it over untyped
    provider = bench.ready(made)
    for verb in (provider.stop, provider.start):
        with pytest.raises(UserError) as caught:
            verb("demo-1")
        assert caught.value.why
    assert bench.fake.count(":stop") + bench.fake.count(":start") == 0


def test_names_with_digits_of_any_size_are_no_pod(bench: Bench) -> None:
    """v5litepod-1 and v6e-4 are single hosts though they do not end in -8 (SkyPilot takes them for pods)."""
    for number, accelerator in enumerate(("v5litepod-1", "v5litepod-4", "v6e-1", "v6e-4")):
        name = f"one-{number}"
        provider = bench.ready(spec(candidate(accelerator), name, f"token-{number}"))
        provider.stop(name)
        assert provider.observe(name).state is SliceState.STOPPING


def test_record_holds_no_private_key_and_is_for_the_owner_only(bench: Bench) -> None:
    bench.created(spec())
    (file,) = (bench.state / "google").glob("*.json")
    assert file.stat().st_mode & 0o077 == 0
    body = bench.keys.host_private[0].splitlines()[2]
    assert body not in file.read_text()


def test_broken_record_is_unclear_and_no_reason_to_make_another_slice(bench: Bench) -> None:
    bench.created(spec())
    (bench.state / "google" / "demo-1.json").write_text("{")
    assert bench.provider().observe("demo-1").state is SliceState.UNCLEAR
    with pytest.raises(CloudError):
        bench.created(spec())
    assert len(bench.fake.nodes) == 1


@pytest.mark.parametrize(
    "value",
    ["https://127.0.0.1:1", "http://tpu.googleapis.com", "http://10.0.0.1:1", "http://127.0.0.1:1/x", "nonsense"],
)
def test_only_a_server_on_this_computer_may_stand_in_for_google(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(session.ENDPOINT, value)
    with pytest.raises(UserError, match=session.ENDPOINT):
        client.open_api(session.open_session())


def test_without_credentials_the_error_says_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(session.ENDPOINT, raising=False)
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CORE_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(AccessError) as caught:
        open_provider(tmp_path)
    assert caught.value.next_step == "gcloud auth application-default login"


def test_without_a_project_nothing_is_sent(bench: Bench) -> None:
    provider = GoogleProvider(
        client.TpuApi(client.open_api(session.open_session())._client, "", loopback=True), bench.state / "google"
    )
    with pytest.raises(UserError, match="no Google project"):
        provider.create(spec(candidate(project="")), bench.keyed(spec()))
    assert bench.fake.calls == []
