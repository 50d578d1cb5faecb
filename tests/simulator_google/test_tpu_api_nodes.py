"""Nodes of the simulated TPU API, seen by google-cloud-tpu over REST. One test for each rule, by its name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2
from tpu_support import OTHER, PARENT, QUICK, ZONE, ZONES, fault, make_client, make_node, refusal, tpu_api

from orch_fronts.google.nodes import STATES
from orch_fronts.google.rules import RULES
from orch_fronts.google.server import PROJECT, TpuServer
from orchestrator.catalog import tpu as catalog
from orchestrator.simulator.clock import StoredClock
from orchestrator.simulator.durable import Durable
from orchestrator.simulator.scenario import Deed, FaultKind, Held, Pool, Quota, Scenario, Zone
from orchestrator.simulator.state import Phase

V6E = "v2-alpha-tpuv6e"


def test_every_google_rule_has_a_test_and_a_source() -> None:
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)
    here = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert {f"test_{name}" for name in names} <= set(re.findall(r"^def (test_\w+)\(", here, re.MULTILINE))
    assert all(rule.source and rule.words.endswith(".") for rule in RULES)


def test_unknown_field_is_refused() -> None:
    with tpu_api() as tpu:
        session, path = tpu.client.transport._session, f"{tpu.server.url}/v2/{PARENT}"
        bodies = [
            {"acceleratorType": "v5litepod-8", "runtimeVersion": "v2-alpha-tpuv5-lite", "diskSizeGb": 5},
            {"networkConfig": {"networks": "default"}},
            {"schedulingConfig": {"spot": "yes"}},
            {"acceleratorConfig": {"type": "V9", "topology": "2x2"}},
            {"labels": "a"},
            [],
        ]
        for body in bodies:
            answer = session.post(f"{path}/nodes?nodeId=a", json=body)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"], error["status"]) == (400, 400, "INVALID_ARGUMENT"), body
            assert error["details"][0]["@type"] == "type.googleapis.com/google.rpc.BadRequest"
        assert session.post(f"{path}/nodes?nodeId=a", data="{").json()["error"]["status"] == "INVALID_ARGUMENT"
        answer = session.post(f"{path}/nodes?nodeId=a&requestId=b", json={})
        assert "Cannot bind query parameter" in answer.json()["error"]["message"], "v2 has no request id for nodes"
        assert tpu.cloud.made() == ()


def test_enum_may_be_a_number_or_a_name() -> None:
    with tpu_api() as tpu:
        session, path = tpu.client.transport._session, f"{tpu.server.url}/v2/{PARENT}/nodes"
        for name, kind in (("a", 11), ("b", "V6E")):
            body = {"acceleratorConfig": {"type": kind, "topology": "4x4"}, "runtimeVersion": V6E}
            assert session.post(f"{path}?nodeId={name}", json=body).status_code == 200
            assert session.get(f"{path}/{name}").json()["state"] == "CREATING"
            assert session.get(f"{path}/{name}?$alt=json;enum-encoding=int").json()["state"] == 1
        assert [look.accelerator for look in tpu.cloud.live()] == ["v6e", "v6e"]
        assert [look.size for look in tpu.cloud.live()] == [4, 4]


def test_operation_is_done_by_the_clock() -> None:
    with tpu_api() as tpu:
        create = tpu.create()
        assert (create.done(), tpu.state()) == (False, "CREATING")
        assert create.metadata.target == f"{PARENT}/nodes/demo-1"
        tpu.clock.advance(41)
        assert create.result(polling=QUICK).state is tpu_v2.Node.State.READY
        delete = tpu.client.delete_node(name=f"{PARENT}/nodes/demo-1")
        assert (delete.done(), tpu.state()) == (False, "DELETING")
        tpu.clock.advance(21)
        delete.result(polling=QUICK)
        assert delete.done()
        assert tpu.state() == "ABSENT"


def test_create_whose_node_is_deleted_meanwhile_ends_cancelled() -> None:
    with tpu_api() as tpu:
        create = tpu.create()
        tpu.client.delete_node(name=f"{PARENT}/nodes/demo-1")
        tpu.clock.advance(60)
        error = refusal(lambda: create.result(polling=QUICK))
        assert isinstance(error, exceptions.Cancelled)


def test_operation_outlives_its_client_and_is_found_by_its_name() -> None:
    with tpu_api() as tpu:
        name = tpu.create().operation.name
        tpu.clock.advance(41)
        found = tpu.client.get_operation({"name": name})
        assert found.done
        assert found.response.type_url.endswith("google.cloud.tpu.v2.Node")
        listed = tpu.client.list_operations({"name": PARENT})
        assert [each.name for each in listed.operations] == [name]
        tpu.client.cancel_operation({"name": name})
        tpu.client.delete_operation({"name": name})
        assert isinstance(refusal(lambda: tpu.client.get_operation({"name": name})), exceptions.NotFound)


def test_operation_is_found_by_a_server_of_a_later_process(tmp_path: Path) -> None:
    clock = StoredClock(tmp_path / "clock.json")
    access = Durable(tmp_path / "cloud.json", Scenario(zones=ZONES), clock)
    with TpuServer(access) as server:
        create = make_client(server).create_node(parent=PARENT, node_id="a", node=make_node())
    clock.advance(60)
    with TpuServer(Durable(access.path, access.scenario, StoredClock(tmp_path / "clock.json"))) as server:
        found = make_client(server).get_operation({"name": create.operation.name})
        assert found.done
        assert tpu_v2.Node.deserialize(found.response.value).state is tpu_v2.Node.State.READY


def test_capacity_fails_in_the_operation() -> None:
    with tpu_api(pools=(Pool(zone=ZONE, accelerator="v5e", amount=8, unit="chips"),)) as tpu:
        create = tpu.create()
        assert (create.done(), tpu.state()) == (False, "ABSENT")
        tpu.clock.advance(6)
        error = refusal(lambda: create.result(polling=QUICK))
        assert isinstance(error, exceptions.ResourceExhausted)
        assert "no more capacity" in error.message
        assert tpu.cloud.made() == ()
        tpu.ready("small", accelerator_type="v5litepod-8")


def test_stockout_after_the_create_was_accepted_leaves_a_terminated_node() -> None:
    with tpu_api(fault("create", FaultKind.LATE_STOCKOUT)) as tpu:
        create = tpu.create()
        tpu.clock.advance(41)
        assert isinstance(refusal(lambda: create.result(polling=QUICK)), exceptions.ResourceExhausted)
        node = tpu.node()
        assert node.state is tpu_v2.Node.State.TERMINATED
        assert "no capacity" in node.health_description
        assert not node.network_endpoints


def test_quota_is_refused_at_once() -> None:
    with tpu_api(quotas=(Quota(region="us-west4", accelerator="v5e", amount=8, unit="chips"),)) as tpu:
        error = refusal(tpu.create)
        assert isinstance(error, exceptions.TooManyRequests)
        assert "Quota" in error.message
        details = error.response.json()["error"]["details"]
        assert [detail["@type"] for detail in details] == ["type.googleapis.com/google.rpc.QuotaFailure"]
        assert "Retry-After" not in error.response.headers, "waiting does not help"


def test_second_create_of_a_node_is_refused() -> None:
    with tpu_api() as tpu:
        tpu.create()
        error = refusal(tpu.create)
        assert (type(error), error.code) == (exceptions.Conflict, 409)
        assert error.response.json()["error"]["status"] == "ALREADY_EXISTS"
        tpu.create(zone=OTHER)  # names are a zone's own
        assert len(tpu.cloud.made()) == 2


def test_accelerator_type_must_exist() -> None:
    bad = ["v5litepod-12", "v5p-12", "v6e-2", "tpu7x-8", "v5e-8", "tpu-v5litepod-8", "V6E-8", "h100-8", "v9-8", ""]
    with tpu_api() as tpu:
        for name in bad:
            assert isinstance(refusal(lambda name=name: tpu.create(accelerator_type=name)), exceptions.BadRequest), name
        configs = [
            ("V5P", "4x4"),
            ("V6E", "2x2x2"),
            ("V6E", "3x3"),
            ("V4", "axb"),
            ("V4", ""),
            ("TYPE_UNSPECIFIED", "2x2"),
        ]
        for kind, topology in configs:
            config = {"type_": kind, "topology": topology}
            error = refusal(lambda config=config: tpu.create(accelerator_config=config))
            assert isinstance(error, exceptions.BadRequest), config
        both = make_node()
        both.accelerator_config = {"type_": "V6E", "topology": "2x2"}
        call = {"parent": PARENT, "node_id": "a", "node": both}
        assert isinstance(refusal(lambda: tpu.client.create_node(call)), exceptions.BadRequest)
        assert tpu.cloud.made() == ()


def test_type_that_the_zone_does_not_have_is_told_apart_from_one_that_does_not_exist() -> None:
    with tpu_api(pools=(Pool(zone=ZONE, accelerator="v6e", amount=9),)) as tpu:
        assert "zonal accelerator configurations" in refusal(tpu.create).message
        assert "is no accelerator type" in refusal(lambda: tpu.create(accelerator_type="v5litepod-12")).message


def test_every_size_of_the_catalogue_has_as_many_workers_as_it_says() -> None:
    with tpu_api() as tpu:
        sizes = [(each, size) for each in catalog.list_generations() if each.name != "tpu7x" for size in each.sizes]
        for number, (generation, size) in enumerate(sizes):
            kind = f"{generation.prefix}-{size}"
            tpu.create(f"n{number}", accelerator_type=kind, runtime_version=generation.runtime_version)
            found = catalog.find_slice(kind)
            assert found is not None
            assert tpu.cloud.live()[-1].size == found.hosts, kind
        assert len(sizes) > 30


def test_topology_means_the_slice_of_so_many_chips() -> None:
    shapes = [("V6E", "8x8", 16), ("V5LITE_POD", "2x4", 1), ("V5P", "2x2x4", 4), ("V4", "2x2x1", 1)]
    with tpu_api() as tpu:
        for number, (kind, topology, workers) in enumerate(shapes):
            tpu.create(f"n{number}", accelerator_config={"type_": kind, "topology": topology})
            assert tpu.cloud.live()[-1].size == workers, topology


def test_runtime_version_must_exist() -> None:
    with tpu_api() as tpu:
        for version in ("", "tpu-vm-v5-lite", "v2-alpha-tpuv9"):
            error = refusal(lambda version=version: tpu.create(runtime_version=version))
            assert isinstance(error, exceptions.BadRequest), version
        listed = {each.version for each in tpu.client.list_runtime_versions(parent=PARENT)}
        assert {"v2-alpha-tpuv5-lite", "tpu-ubuntu2204-base"} <= listed


def test_node_id_is_a_name_of_compute_engine() -> None:
    with tpu_api() as tpu:
        for name in ("", "A", "1a", "a-", "a_b", "a.b", "a" * 64):
            assert isinstance(refusal(lambda name=name: tpu.create(name)), exceptions.BadRequest), name
        for name in ("a", "a" * 63, "a-1"):
            tpu.create(name)


def test_labels_are_lower_case() -> None:
    bad = [{"A": "b"}, {"a": "B"}, {"1a": ""}, {"a": "b c"}, {"a" * 64: ""}, {"a": "b" * 64}, {"a.b": "c"}]
    with tpu_api() as tpu:
        for labels in [*bad, {f"k{number}": "" for number in range(65)}]:
            assert isinstance(refusal(lambda labels=labels: tpu.create(labels=labels)), exceptions.BadRequest), labels
        labels = {"a" * 63: "b" * 63, "a_-1": "", **{f"k{number}": "1-_" for number in range(62)}}
        assert dict(tpu.ready(labels=labels).labels) == labels


def test_metadata_has_a_limit() -> None:
    quarter = "x" * (256 * 1024)
    with tpu_api() as tpu:
        for metadata in ({"a": quarter + "x"}, {"a": quarter, "b": quarter, "c": "x"}):
            assert isinstance(refusal(lambda given=metadata: tpu.create(metadata=given)), exceptions.BadRequest)
        assert dict(tpu.ready(metadata={"a": quarter}).metadata) == {"a": quarter}


def test_only_one_host_can_be_stopped() -> None:
    with tpu_api() as tpu:
        tpu.ready("pod")
        tpu.active(node_id="queued-1", node=make_node(accelerator_type="v5litepod-8"))
        for name in ("pod", "queued-1"):
            error = refusal(lambda name=name: tpu.client.stop_node({"name": f"{PARENT}/nodes/{name}"}))
            assert error.response.json()["error"]["status"] == "FAILED_PRECONDITION"
        tpu.ready("one", accelerator_type="v5litepod-8")
        stop = tpu.client.stop_node({"name": f"{PARENT}/nodes/one"})
        assert (stop.done(), tpu.state("one")) == (False, "STOPPING")
        tpu.clock.advance(21)
        assert (stop.result(polling=QUICK).state.name, tpu.state("one")) == ("STOPPED", "STOPPED")
        shown = tpu.node("one")
        assert (len(shown.network_endpoints), shown.health.name) == (0, "HEALTH_UNSPECIFIED")
        start = tpu.client.start_node({"name": f"{PARENT}/nodes/one"})
        assert (start.done(), tpu.state("one")) == (False, "STARTING")
        tpu.clock.advance(31)
        assert start.result(polling=QUICK).state.name == "READY"


def test_preempted_node_is_listed_until_deleted() -> None:
    with tpu_api() as tpu:
        tpu.ready(scheduling_config={"spot": True})
        tpu.cloud.preempt("demo-1", 2)
        tpu.clock.advance(3600)
        [node] = tpu.client.list_nodes(parent=PARENT)
        assert node.state is tpu_v2.Node.State.PREEMPTED
        assert (len(node.network_endpoints), node.health_description) == (0, "host 2 of 4 was preempted")
        tpu.client.delete_node(name=f"{PARENT}/nodes/demo-1")
        tpu.clock.advance(21)
        assert list(tpu.client.list_nodes(parent=PARENT)) == []


def test_external_address_only_when_asked() -> None:
    with tpu_api() as tpu:
        inside = tpu.ready("inside").network_endpoints
        outside = tpu.ready("outside", network_config={"enable_external_ips": True}).network_endpoints
        assert [each.ip_address for each in inside] == [f"10.0.0.{number}" for number in range(1, 5)]
        assert {each.access_config.external_ip for each in inside} == {""}
        assert len({each.access_config.external_ip for each in outside}) == 4
        assert all(each.access_config.external_ip != each.ip_address for each in outside)
        two = [{"network": "a", "enable_external_ips": True}, {"network": "b"}]
        several = tpu.ready("several", network_configs=two).network_endpoints
        assert [bool(each.access_config.external_ip) for each in several] == [True, False] * 4


def test_guest_attributes_show_host_keys() -> None:
    with tpu_api() as tpu:
        tpu.create()
        asked = {"name": f"{PARENT}/nodes/demo-1", "query_path": "hostkeys/", "worker_ids": [""]}
        error = refusal(lambda: tpu.client.get_guest_attributes(asked))
        assert error.response.json()["error"]["status"] == "FAILED_PRECONDITION"
        tpu.clock.advance(41)
        found = tpu.client.get_guest_attributes(asked).guest_attributes
        items = [[(item.namespace, item.key) for item in each.query_value.items] for each in found]
        assert items == [[("hostkeys", "ssh-ed25519")]] * 4
        values = [each.query_value.items[0].value for each in found]
        assert len(set(values)) == 4
        assert all(value.startswith("AAAAC3NzaC1lZDI1NTE5") for value in values)
        one = tpu.client.get_guest_attributes({**asked, "worker_ids": ["2"]}).guest_attributes
        assert [each.query_value.items[0].value for each in one] == [values[2]]
        wrong = refusal(lambda: tpu.client.get_guest_attributes({**asked, "worker_ids": ["4"]}))
        assert isinstance(wrong, exceptions.BadRequest)


def test_second_life_of_a_name_has_other_host_keys() -> None:
    with tpu_api() as tpu:
        asked = {"name": f"{PARENT}/nodes/demo-1", "worker_ids": ["0"]}
        seen: list[str] = []
        for _ in range(2):
            tpu.ready()
            seen.append(tpu.client.get_guest_attributes(asked).guest_attributes[0].query_value.items[0].value)
            tpu.client.delete_node(name=f"{PARENT}/nodes/demo-1")
            tpu.clock.advance(21)
        assert seen[0] != seen[1]


def test_zone_that_is_not_there_is_denied() -> None:
    with tpu_api() as tpu:
        nowhere = PARENT.replace(ZONE, "us-nowhere1-a")
        stranger = PARENT.replace(PROJECT, "somebody-else")
        for parent in (nowhere, stranger):
            calls = [
                lambda parent=parent: tpu.client.get_node(name=f"{parent}/nodes/a"),
                lambda parent=parent: list(tpu.client.list_nodes(parent=parent)),
                lambda parent=parent: tpu.client.create_node(parent=parent, node_id="a", node=make_node()),
                lambda parent=parent: tpu.client.get_queued_resource(name=f"{parent}/queuedResources/a"),
            ]
            for call in calls:
                assert isinstance(refusal(call), exceptions.Forbidden), parent


def test_listing_has_pages_and_names_what_it_could_not_ask() -> None:
    partial = fault("list", FaultKind.PARTIAL, 4)
    with tpu_api(partial, page=2) as tpu:
        for number in range(5):
            tpu.create(f"n{number}")
        tpu.create("far", zone=OTHER)
        everywhere = PARENT.replace(ZONE, "-")
        names = [node.name.rpartition("/")[2] for node in tpu.client.list_nodes(parent=PARENT)]
        assert names == ["n0", "n1", "n2", "n3", "n4"]
        page = next(tpu.client.list_nodes({"parent": everywhere, "page_size": 100}).pages)
        assert len(page.unreachable) == 1
        assert page.unreachable[0] in (PARENT, PARENT.replace(ZONE, OTHER))
        assert len(list(tpu.client.list_nodes({"parent": everywhere, "page_size": 100}))) == 6
        error = refusal(lambda: list(tpu.client.list_nodes({"parent": PARENT, "page_token": "{}"})))
        assert isinstance(error, exceptions.BadRequest)


def test_page_without_items_is_not_the_end() -> None:
    with tpu_api(fault("list", FaultKind.EMPTY_PAGE)) as tpu:
        tpu.create()
        pages = [list(page.nodes) for page in tpu.client.list_nodes(parent=PARENT).pages]
        assert [len(page) for page in pages] == [0, 1]


def test_update_changes_only_what_its_mask_names() -> None:
    with tpu_api() as tpu:
        tpu.ready(labels={"a": "1"}, metadata={"k": "v"})
        new = tpu_v2.Node(name=f"{PARENT}/nodes/demo-1", metadata={"ssh-keys": "me:key"}, labels={"b": "2"})
        tpu.client.update_node({"node": new, "update_mask": {"paths": ["metadata"]}}).result(polling=QUICK)
        node = tpu.node()
        assert (dict(node.labels), dict(node.metadata)) == ({"a": "1"}, {"ssh-keys": "me:key"})
        wrong = {"node": new, "update_mask": {"paths": ["state"]}}
        assert isinstance(refusal(lambda: tpu.client.update_node(wrong)), exceptions.BadRequest)


@pytest.mark.parametrize("phase", STATES)
def test_every_phase_of_a_node_has_its_state(phase: Phase) -> None:
    expected = {"maintenance": "RESTARTING", "failed": "TERMINATED", "ending": "DELETING"}
    with tpu_api() as tpu:
        tpu.create(accelerator_type="v5litepod-8")
        name = f"{PARENT}/nodes/demo-1"
        if phase is not Phase.CREATING:
            tpu.clock.advance(41)
        ways = {
            Phase.MAINTENANCE: lambda: tpu.cloud.do("demo-1", Deed.MAINTENANCE),
            Phase.PREEMPTED: lambda: tpu.cloud.preempt("demo-1"),
            Phase.FAILED: lambda: tpu.cloud.do("demo-1", Deed.FAIL),
            Phase.ENDING: lambda: tpu.client.delete_node(name=name),
            Phase.STOPPING: lambda: tpu.client.stop_node({"name": name}),
            Phase.STOPPED: lambda: (tpu.client.stop_node({"name": name}), tpu.clock.advance(21)),
            Phase.STARTING: lambda: (
                tpu.client.stop_node({"name": name}),
                tpu.clock.advance(21),
                tpu.client.start_node({"name": name}),
            ),
        }
        if phase in ways:
            ways[phase]()
        assert tpu.state() == expected.get(phase.value, phase.value.upper())


def test_what_only_the_service_writes_is_not_taken_from_a_request() -> None:
    with tpu_api() as tpu:
        fields = {"state": "READY", "health_description": "ill", "queued_resource": "q", "id": 77}
        tpu.create(**fields, network_endpoints=[{"ip_address": "1.2.3.4"}])
        node = tpu.node()
        assert (node.state.name, node.health_description, node.queued_resource) == ("CREATING", "", "")
        assert (node.id, len(node.network_endpoints)) == (1, 0)


def test_fields_that_exclude_each_other_are_refused() -> None:
    with tpu_api(reservations=(Held(name="r1", zone=ZONE, accelerator="v5e", amount=9),)) as tpu:
        networks = {"network_config": {"network": "a"}, "network_configs": [{"network": "b"}]}
        for fields in (networks, {"scheduling_config": {"spot": True, "reserved": True}}):
            assert isinstance(refusal(lambda fields=fields: tpu.create(**fields)), exceptions.BadRequest), fields


def test_operation_belongs_to_its_zone() -> None:
    with tpu_api() as tpu:
        name = tpu.create().operation.name.replace(ZONE, OTHER)
        assert isinstance(refusal(lambda: tpu.client.get_operation({"name": name})), exceptions.NotFound)


def test_locations_and_types_are_those_of_the_scenario_and_the_catalogue() -> None:
    with tpu_api(zones=(*ZONES, Zone("*", ""))) as tpu:
        listed = tpu.client.list_locations({"name": PARENT.partition("/locations")[0]})
        assert {ZONE, OTHER, "us-central2-b"} <= {each.location_id for each in listed.locations}
        types = {each.type_ for each in tpu.client.list_accelerator_types(parent=PARENT)}
        assert "v5litepod-16" in types
        assert not any(name.startswith("tpu7x") for name in types)
        name = f"{PARENT}/acceleratorTypes/v5litepod-16"
        assert tpu.client.get_accelerator_type(name=name).type_ == "v5litepod-16"
        tpu.create(zone="europe-west4-b")
