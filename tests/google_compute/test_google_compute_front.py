"""The simulated Compute Engine by google-api-python-client: one test for each of its rules (rules.py)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compute_bench import PROJECT, ZONE, Bench, bench
from googleapiclient.errors import HttpError

from orch_fronts.google.compute.rules import RULES
from orchestrator.providers.google.session import open_session
from orchestrator.simulator.scenario import Fault, FaultKind, Pool

BY = {"project": PROJECT, "zone": ZONE}
IMAGE = "projects/ubuntu-os-accelerator-images/global/images/family/ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e"
BEYOND = {  # what orch itself does not ask
    *("compute.instanceGroupManagers.update", "compute.networks.get", "compute.projects.get"),
    *("compute.zones.get", "compute.zones.list"),
}
LINK = f"projects/{PROJECT}"
FLEX = {
    "provisioningModel": "FLEX_START",
    "maxRunDuration": {"seconds": "3600"},
    "instanceTerminationAction": "DELETE",
}


class Front:
    def __init__(self, rig: Bench) -> None:
        self.rig = rig
        self.api: Any = open_session().service("compute", "v1")

    def insert(self, name: str = "one", request: str = "", **fields: Any) -> dict[str, Any]:
        body = machine(f"zones/{ZONE}/machineTypes/ct6e-standard-8t") | {"name": name} | fields
        ask = {"requestId": request} if request else {}
        return self.api.instances().insert(**BY, body=body, **ask).execute()

    def instance(self, name: str = "one") -> dict[str, Any]:
        return self.api.instances().get(**BY, instance=name).execute()

    def operation(self, answer: dict[str, Any]) -> dict[str, Any]:
        return self.api.zoneOperations().get(**BY, operation=answer["name"]).execute()

    def policy(self, topology: str = "4x4", name: str = "p") -> None:
        body = {"name": name, "workloadPolicy": {"type": "HIGH_THROUGHPUT", "acceleratorTopology": topology}}
        self.api.resourcePolicies().insert(project=PROJECT, region="us-east5", body=body).execute()

    def template(self, name: str = "t", **fields: Any) -> None:
        body = {"name": name, "properties": machine("ct6e-standard-4t") | fields}
        self.api.instanceTemplates().insert(project=PROJECT, body=body).execute()

    def group(self, name: str = "g", size: int = 4, **fields: Any) -> dict[str, Any]:
        body = {
            "name": name,
            "baseInstanceName": f"{name}-w-###",
            "instanceTemplate": f"{LINK}/global/instanceTemplates/t",
            "resourcePolicies": {"workloadPolicy": f"{LINK}/regions/us-east5/resourcePolicies/p"},
            "targetSize": size,
            "targetSizePolicy": {"mode": "BULK"},
        }
        return self.api.instanceGroupManagers().insert(**BY, body=body | fields).execute()

    def members(self, name: str = "g") -> list[dict[str, Any]]:
        answer = self.api.instanceGroupManagers().listManagedInstances(**BY, instanceGroupManager=name).execute()
        return answer["managedInstances"]


def machine(kind: str, **fields: Any) -> dict[str, Any]:
    return {
        "machineType": kind,
        "disks": [{"boot": True, "initializeParams": {"sourceImage": IMAGE}}],
        "networkInterfaces": [{"network": f"{LINK}/global/networks/default"}],
        "scheduling": {"onHostMaintenance": "TERMINATE"},
    } | fields


@pytest.fixture
def front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:
    with bench(tmp_path, monkeypatch, beyond=BEYOND) as rig:
        yield Front(rig)


def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    return bench(tmp_path, monkeypatch, pools=(Pool(zone=ZONE, accelerator="v6e", amount=0),))


def refused(status: int, reason: str) -> Any:
    return pytest.raises(HttpError, match=rf"HttpError {status}.*{reason}")


def test_every_rule_has_a_test_and_a_source() -> None:
    import test_google_compute_front as me

    assert {f"test_{rule.name}" for rule in RULES} <= set(dir(me))
    assert all(rule.words.endswith(".") and rule.source for rule in RULES)
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_unknown_field_is_refused(front: Front) -> None:
    with refused(400, "Unknown name"):
        front.insert(numberOfHosts=4)
    with refused(400, "resource.scheduling"):
        front.insert(scheduling={"onHostMaintenance": "TERMINATE", "automaticRestart": "yes"})
    assert front.rig.leftovers() == []


def test_request_id_makes_a_call_repeatable(front: Front) -> None:
    same = str(uuid.uuid4())
    first = front.insert(request=same)
    assert front.insert(request=same)["name"] == first["name"]
    with refused(409, "alreadyExists"):
        front.insert(request=str(uuid.uuid4()))
    front.rig.clock.advance(41)
    front.api.instances().delete(**BY, instance="one").execute()
    front.rig.clock.advance(30)
    assert front.insert(request=same)["name"] == first["name"]
    assert front.rig.leftovers() == []
    with refused(400, "not a UUID"):
        front.insert(request="no-uuid")


def test_name_is_rfc1035(front: Front) -> None:
    with refused(400, "resource.name"):
        front.insert("Upper")


def test_capacity_fails_in_the_operation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with full(tmp_path, monkeypatch) as rig:
        front = Front(rig)
        answer = front.insert()
        assert front.operation(answer)["status"] == "RUNNING"
        rig.clock.advance(10)
        done = front.operation(answer)
        assert (done["status"], done["httpErrorStatusCode"]) == ("DONE", 503)
        assert done["error"]["errors"][0]["code"] == "ZONE_RESOURCE_POOL_EXHAUSTED"
        with refused(404, "notFound"):
            front.instance()


def test_group_waits_for_all_its_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bench(tmp_path, monkeypatch, pools=(Pool(zone=ZONE, accelerator="v6e", amount=3),)) as rig:
        front = Front(rig)
        front.policy()
        front.template()
        front.group()
        assert [one["currentAction"] for one in front.members()] == ["CREATING"] * 4
        assert front.api.instances().list(**BY).execute()["items"] == [], "not even three of them"
        errors = front.api.instanceGroupManagers().listErrors(**BY, instanceGroupManager="g").execute()["items"]
        assert errors[0]["error"]["code"] == "ZONE_RESOURCE_POOL_EXHAUSTED"
        rig.cloud.state.capacity[f"{ZONE}/v6e/*"] = 4
        rig.clock.advance(15)
        front.members()
        rig.clock.advance(45)
        assert [one["instanceStatus"] for one in front.members()] == ["RUNNING"] * 4


def test_topology_needs_bulk(front: Front) -> None:
    front.policy()
    front.template()
    with refused(400, "require BULK mode"):
        front.group(targetSizePolicy={"mode": "INDIVIDUAL"})


def test_topology_says_the_size(front: Front) -> None:
    front.policy()
    front.template()
    with refused(400, "4x4 has 4 hosts"):
        front.group(size=3)


def test_policy_needs_a_group(front: Front) -> None:
    front.policy()
    with refused(400, "belongs to a group"):
        front.insert(resourcePolicies=[f"{LINK}/regions/us-east5/resourcePolicies/p"])


def test_flex_start_group_begins_empty(front: Front) -> None:
    front.policy()
    front.template(scheduling={"onHostMaintenance": "TERMINATE", **FLEX})
    with refused(400, "resize later"):
        front.group()
    front.group(size=0)
    assert front.members() == []
    front.api.instanceGroupManagers().resize(**BY, instanceGroupManager="g", size=4).execute()
    front.rig.clock.advance(41)
    assert [one["instanceStatus"] for one in front.members()] == ["RUNNING"] * 4


@pytest.mark.parametrize("seconds", ["", "0", "700000"])
def test_flex_start_has_a_length(seconds: str, front: Front) -> None:
    scheduling: dict[str, Any] = {"onHostMaintenance": "TERMINATE", **FLEX, "maxRunDuration": {"seconds": seconds}}
    if not seconds:
        del scheduling["maxRunDuration"]
    with refused(400, "maxRunDuration"):
        front.insert(scheduling=scheduling)


def test_flex_start_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with full(tmp_path, monkeypatch) as rig:
        front = Front(rig)
        patience = {"requestValidForDuration": {"seconds": "600"}}
        front.insert(scheduling={"onHostMaintenance": "TERMINATE", **FLEX}, params=patience)
        assert front.instance()["status"] == "PENDING"
        rig.clock.advance(601)
        with refused(404, "notFound"):
            front.instance()


def test_run_duration_deletes(front: Front) -> None:
    front.insert(scheduling={"onHostMaintenance": "TERMINATE", **FLEX})
    front.rig.clock.advance(41)
    assert front.instance()["status"] == "RUNNING"
    front.rig.clock.advance(3600)
    assert front.instance()["status"] == "STOPPING"
    front.rig.clock.advance(30)
    with refused(404, "notFound"):
        front.instance()


def test_preempted_instance_is_deleted(front: Front) -> None:
    spot = {"onHostMaintenance": "TERMINATE", "provisioningModel": "SPOT", "instanceTerminationAction": "DELETE"}
    front.insert(scheduling=spot)
    front.rig.clock.advance(41)
    front.rig.cloud.preempt("one")
    assert front.instance()["status"] == "STOPPING"
    front.rig.clock.advance(31)
    front.instance()
    front.rig.clock.advance(30)
    with refused(404, "notFound"):
        front.instance()


def test_tpu_must_terminate(front: Front) -> None:
    with refused(400, "TERMINATE"):
        front.insert(scheduling={})


def test_type_is_sold_in_some_zones(front: Front) -> None:
    for kind in ("a2-highgpu-1g", "e2-standard-5"):
        given = f"zones/{ZONE}/machineTypes/{kind}"
        words = f"'{given}'. Machine type with name '{kind}' does not exist in zone '{ZONE}'."
        with refused(400, words):
            front.insert(machineType=given)
    front.insert(machineType=f"zones/{ZONE}/machineTypes/a2-ultragpu-1g")
    assert front.instance()["machineType"].endswith(f"/zones/{ZONE}/machineTypes/a2-ultragpu-1g")


def test_gpu_and_spot_must_terminate(front: Front) -> None:
    gpu, cpu = (f"zones/{ZONE}/machineTypes/{kind}" for kind in ("a2-ultragpu-1g", "e2-standard-4"))
    with refused(400, "Instances with guest accelerators do not support live migration."):
        front.insert(machineType=gpu, scheduling={})
    with refused(400, "Scheduling must have preemptible be false when OnHostMaintenance isn't TERMINATE."):
        front.insert(machineType=cpu, scheduling={"provisioningModel": "SPOT"})
    front.insert(machineType=cpu, scheduling={})


def test_sequential_names_begin_at_one(front: Front) -> None:
    front.policy()
    front.template()
    front.group()
    assert [one["name"] for one in front.members()] == ["g-w-001", "g-w-002", "g-w-003", "g-w-004"]


def test_member_belongs_to_its_group(front: Front) -> None:
    front.policy()
    front.template()
    front.group()
    front.rig.clock.advance(41)
    with refused(400, "managed by the group"):
        front.api.instances().delete(**BY, instance="g-w-001").execute()


def test_used_resource_cannot_be_deleted(front: Front) -> None:
    front.policy()
    front.template()
    front.group()
    template = front.api.instanceTemplates().delete(project=PROJECT, instanceTemplate="t")
    with refused(400, "already being used"):
        template.execute()
    front.rig.clock.advance(41)
    front.api.instanceGroupManagers().delete(**BY, instanceGroupManager="g").execute()
    with refused(400, "already being used"):
        template.execute()
    front.rig.clock.advance(21)
    template.execute()
    front.api.resourcePolicies().delete(project=PROJECT, region="us-east5", resourcePolicy="p").execute()
    assert front.rig.leftovers() == []


def test_guest_attributes_show_host_keys(front: Front) -> None:
    front.insert()
    told = front.api.instances().getGuestAttributes(**BY, instance="one")
    with refused(404, "notFound"):
        told.execute()
    front.rig.clock.advance(41)
    items = {f"{one['namespace']}/{one['key']}": one["value"] for one in told.execute()["queryValue"]["items"]}
    assert items["hostkeys/ssh-ed25519"].startswith("AAAAC3")
    keys = front.api.instances().getGuestAttributes(**BY, instance="one", queryPath="hostkeys/").execute()
    assert [one["namespace"] for one in keys["queryValue"]["items"]] == ["hostkeys"]


def test_worker_knows_its_number(front: Front) -> None:
    front.policy()
    front.template()
    front.group()
    front.rig.clock.advance(41)
    told = front.api.instances().getGuestAttributes(**BY, instance="g-w-003", queryPath="orch/worker-id").execute()
    assert told["queryValue"]["items"] == [{"namespace": "orch", "key": "worker-id", "value": "2"}]


def test_external_address_only_when_asked(front: Front) -> None:
    front.insert()
    front.insert("two", networkInterfaces=[{"accessConfigs": [{"type": "ONE_TO_ONE_NAT"}]}])
    front.rig.clock.advance(41)
    assert "accessConfigs" not in front.instance()["networkInterfaces"][0]
    assert front.instance("two")["networkInterfaces"][0]["accessConfigs"][0]["natIP"] == "198.18.0.2"


def test_unreachable_scope_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bench(tmp_path, monkeypatch, Fault(call="list", kind=FaultKind.PARTIAL, rate=1.0)) as rig:
        front = Front(rig)
        front.insert()
        answer = front.api.instances().aggregatedList(project=PROJECT).execute()
        assert answer["unreachables"] == [f"zones/{ZONE}"]
        assert answer["items"][f"zones/{ZONE}"]["warning"]["code"] == "UNREACHABLE"
        with refused(503, "unavailable"):
            front.api.instances().list(**BY).execute()


def test_filter_is_of_equalities(front: Front) -> None:
    front.insert(labels={"team": "a"})
    front.insert("two", labels={"team": "b"})
    found = front.api.instances().list(**BY, filter="labels.team=b").execute()["items"]
    assert [one["name"] for one in found] == ["two"]
    with refused(400, "filter"):
        front.api.instances().list(**BY, filter="name:*").execute()


def test_firewall_rule_names_its_traffic(front: Front) -> None:
    rules = front.api.firewalls()
    with refused(400, "allowed and denied"):
        rules.insert(project=PROJECT, body={"name": "open"}).execute()
    with refused(400, "CIDR"):
        ssh = [{"IPProtocol": "tcp", "ports": ["22"]}]
        rules.insert(project=PROJECT, body={"name": "f", "allowed": ssh, "sourceRanges": ["nowhere"]}).execute()
    rules.insert(project=PROJECT, body={"name": "f", "allowed": ssh}).execute()
    assert rules.get(project=PROJECT, firewall="f").execute()["sourceRanges"] == ["0.0.0.0/0"]
    rules.patch(project=PROJECT, firewall="f", body={"sourceRanges": ["192.0.2.1/32"]}).execute()
    (listed,) = rules.list(project=PROJECT).execute()["items"]
    assert (listed["sourceRanges"], listed["allowed"]) == (["192.0.2.1/32"], ssh)
    rules.delete(project=PROJECT, firewall="f").execute()
    with refused(404, "notFound"):
        rules.get(project=PROJECT, firewall="f").execute()


def test_every_network_is_there(front: Front) -> None:
    assert front.api.networks().get(project=PROJECT, network="net-1").execute()["name"] == "net-1"


def test_places_and_project_are_shown(front: Front) -> None:
    zones = front.api.zones().list(project=PROJECT).execute()["items"]
    assert [zone["name"] for zone in zones] == ["us-central1-c", ZONE]
    assert front.api.zones().get(**BY).execute()["region"].endswith("/regions/us-east5")
    assert front.api.projects().get(project=PROJECT).execute()["name"] == PROJECT
    with refused(403, "forbidden|permission"):
        front.api.projects().get(project="another-project").execute()


def test_metadata_and_labels_are_changed_with_their_fingerprint(front: Front) -> None:
    front.insert(labels={"team": "a"})
    mark = front.instance()["labelFingerprint"]
    change = front.api.instances().setLabels(**BY, instance="one", body={"labels": {}, "labelFingerprint": mark})
    change.execute()
    assert front.instance()["labels"] == {}
    with refused(400, "fingerprint"):
        change.execute()
    mark = front.instance()["metadata"]["fingerprint"]
    body = {"items": [{"key": "a", "value": "b"}], "fingerprint": mark}
    front.api.instances().setMetadata(**BY, instance="one", body=body).execute()
    assert front.instance()["metadata"]["items"] == [{"key": "a", "value": "b"}]


def test_stock_is_the_same_for_both_services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from google.api_core import exceptions
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import tpu_v2

    with bench(tmp_path, monkeypatch, pools=(Pool(zone=ZONE, accelerator="v6e", amount=1),)) as rig:
        Front(rig).insert()
        options = {"api_endpoint": rig.server.url}
        client = tpu_v2.TpuClient(credentials=AnonymousCredentials(), transport="rest", client_options=options)
        node = {"accelerator_type": "v6e-8", "runtime_version": "v2-alpha-tpuv6e"}
        made = client.create_node(parent=f"{LINK}/locations/{ZONE}", node_id="n", node=node, timeout=10)
        rig.clock.advance(60)
        with pytest.raises(exceptions.ResourceExhausted):
            made.result(timeout=5)
