"""v2alpha1 of the simulated TPU API, by google-api-python-client and its own discovery document (no network)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from googleapiclient import discovery, errors
from tpu_support import PARENT, ZONE, Tpu, tpu_api

from orchestrator.simulator.scenario import Held, Pool

NODE = {"acceleratorType": "v6e-8", "runtimeVersion": "v2-alpha-tpuv6e"}


def service(tpu: Tpu, version: str = "v2alpha1") -> Any:
    """The locations resource of the client."""
    options = {"api_endpoint": tpu.server.url}
    built = discovery.build(
        "tpu",
        version,
        credentials=AnonymousCredentials(),
        cache_discovery=False,
        static_discovery=True,
        client_options=options,
    )
    return built.projects().locations()


def refusal(deed: Callable[[], object]) -> tuple[int, str]:
    """HTTP status and canonical name of the error that this call must end with."""
    with pytest.raises(errors.HttpError) as caught:
        deed()
    return caught.value.resp.status, json.loads(caught.value.content)["error"]["status"]


def queue(tpu: Tpu, name: str = "q-1", spec: dict[str, Any] | None = None, **fields: Any) -> Any:
    spec = spec or {"parent": PARENT, "nodeId": f"{name}-node", "node": NODE}
    body = {"tpu": {"nodeSpec": [spec]}} | fields
    return service(tpu).queuedResources().create(parent=PARENT, queuedResourceId=name, body=body).execute()


@pytest.mark.parametrize("version", ["v2", "v2alpha1"])
def test_node_lives_its_life_by_the_discovery_client(version: str) -> None:
    with tpu_api() as tpu:
        here = service(tpu, version)
        operation = here.nodes().create(parent=PARENT, nodeId="a", body=NODE).execute()
        assert operation["done"] is False
        tpu.clock.advance(41)
        operation = here.operations().get(name=operation["name"]).execute()
        assert operation["response"]["@type"] == f"type.googleapis.com/google.cloud.tpu.{version}.Node"
        [node] = here.nodes().list(parent=PARENT).execute()["nodes"]
        assert (node["state"], node["health"], node["acceleratorType"]) == ("READY", "HEALTHY", "v6e-8")
        asked = {"queryPath": "hostkeys/ssh-ed25519"}
        found = here.nodes().getGuestAttributes(name=node["name"], body=asked).execute()["guestAttributes"]
        assert found[0]["queryValue"]["items"][0]["key"] == "ssh-ed25519"
        here.nodes().delete(name=node["name"]).execute()
        tpu.clock.advance(21)
        assert refusal(lambda: here.nodes().get(name=node["name"]).execute()) == (404, "NOT_FOUND")


def test_flex_start_is_a_market_of_its_own_and_needs_a_run_duration() -> None:
    with tpu_api(pools=(Pool(zone=ZONE, accelerator="v6e", amount=8, market="flex-start", unit="chips"),)) as tpu:
        flex = {"provisioningModel": "FLEX_START", "queueingPolicy": {"validUntilDuration": "600s"}}
        assert refusal(lambda: queue(tpu, **flex)) == (400, "INVALID_ARGUMENT")
        for wrong in ("0s", "604801s", "soon"):
            run = {"maxRunDuration": wrong}
            assert refusal(lambda run=run: queue(tpu, **flex, runDuration=run)) == (400, "INVALID_ARGUMENT")
        queue(tpu, **flex, runDuration={"maxRunDuration": "14400s"})
        tpu.clock.advance(120)
        shown = service(tpu).queuedResources().get(name=f"{PARENT}/queuedResources/q-1").execute()
        assert (shown["state"]["state"], shown["provisioningModel"]) == ("ACTIVE", "FLEX_START")
        assert shown["runDuration"] == {"maxRunDuration": "14400s"}
        [look] = tpu.cloud.live()
        assert look.market == "flex-start"


def test_run_duration_ends_the_nodes() -> None:
    with tpu_api() as tpu:
        run = {"maxRunDuration": "3600s"}
        queue(tpu, provisioningModel="FLEX_START", runDuration=run)
        tpu.clock.advance(60)
        assert tpu.state("q-1-node") == "READY"
        tpu.clock.advance(3580)
        assert tpu.state("q-1-node") == "READY"
        tpu.clock.advance(30)
        assert (tpu.state("q-1-node"), tpu.queue_state()) == ("DELETING", "SUSPENDING")
        tpu.clock.advance(21)
        assert (tpu.state("q-1-node"), tpu.queue_state()) == ("ABSENT", "SUSPENDED")
        assert tpu.queued().state.state_initiator.name == "SERVICE"


def test_models_and_tiers_of_the_new_version_are_understood() -> None:
    held = (Held(name="r1", zone=ZONE, accelerator="v6e", amount=64, unit="chips"),)
    reservation = f"{PARENT}/reservations/r1"
    with tpu_api(reservations=held) as tpu:
        nodes = service(tpu).nodes()
        configs = {
            "spot": {"provisioningModel": "SPOT"},
            "standard": {"provisioningModel": "STANDARD"},
            "bound": {"provisioningModel": "RESERVATION_BOUND", "reservationName": reservation},
            "preemptible": {"preemptible": True},
        }
        for name, config in configs.items():
            body = NODE | {"schedulingConfig": config}
            nodes.create(parent=PARENT, nodeId=name, requestId=str(uuid.uuid4()), body=body).execute()
        queue(tpu, "best", bestEffort={})
        queue(tpu, "sure", guaranteed={"reserved": True})
        queue(tpu, "spotty", provisioningModel="SPOT")
        assert refusal(lambda: queue(tpu, spot={}, guaranteed={})) == (400, "INVALID_ARGUMENT")
        tpu.clock.advance(60)
        assert {look.name.removesuffix("-node"): look.market for look in tpu.cloud.live()} == {
            "spot": "spot",
            "standard": "on-demand",
            "bound": "reservation:r1",
            "preemptible": "spot",
            "best": "spot",
            "sure": "reservation:r1",
            "spotty": "spot",
        }


def test_request_id_of_a_node_makes_its_create_repeatable() -> None:
    with tpu_api() as tpu:
        token = str(uuid.uuid4())
        create = service(tpu).nodes().create
        for _ in range(2):
            create(parent=PARENT, nodeId="a", requestId=token, body=NODE).execute()
        assert [look.name for look in tpu.cloud.made_for(token)] == ["a"]
        other = create(parent=PARENT, nodeId="a", requestId=str(uuid.uuid4()), body=NODE)
        assert refusal(other.execute) == (409, "ALREADY_EXISTS")


def test_multi_node_params_are_the_multislice_of_this_version() -> None:
    with tpu_api() as tpu:
        spec = {"parent": PARENT, "multiNodeParams": {"nodeCount": 2, "nodeIdPrefix": "ms"}, "node": NODE}
        queue(tpu, spec=spec)
        tpu.clock.advance(120)
        assert [look.name for look in tpu.cloud.live()] == ["ms-0", "ms-1"]


def test_fields_and_words_that_no_document_has_are_refused() -> None:
    bad: list[Any] = [
        {"nope": 1},
        {"bootDiskConfig": {"diskSizeGb": 10, "colour": "red"}},
        {"schedulingConfig": {"provisioningModel": "CHEAP"}},
        {"schedulingConfig": {"spot": "true"}},
        {"labels": ["a"]},
        {"labels": {"a": 1}},
        {"tags": "a"},
        {"networkConfigs": [{"queueCount": "2"}]},
    ]
    with tpu_api() as tpu:
        create = service(tpu).nodes().create
        for fields in bad:
            call = create(parent=PARENT, nodeId="a", body=NODE | fields)
            assert refusal(call.execute) == (400, "INVALID_ARGUMENT"), fields
        body = NODE | {"bootDiskConfig": {"diskSizeGb": "200"}, "networkConfigs": [{"queueCount": 2}]}
        create(parent=PARENT, nodeId="a", body=body).execute()
        shown = service(tpu).nodes().get(name=f"{PARENT}/nodes/a").execute()
        assert shown["bootDiskConfig"] == {"diskSizeGb": "200"}
        assert "boot_disk_config" not in str(tpu.node("a")), "v2 does not know it"


def test_mutually_exclusive_policies_are_refused_in_both_versions() -> None:
    policy = {"validUntilDuration": "5s", "validAfterDuration": "1s"}
    with tpu_api() as tpu:
        assert refusal(lambda: queue(tpu, queueingPolicy=policy)) == (400, "INVALID_ARGUMENT")
        spec = {"parent": PARENT, "nodeId": "a", "node": NODE}
        body = {"tpu": {"nodeSpec": [spec]}, "queueingPolicy": policy}
        call = service(tpu, "v2").queuedResources().create(parent=PARENT, queuedResourceId="q", body=body)
        assert refusal(call.execute) == (400, "INVALID_ARGUMENT")


def test_model_and_tier_do_not_contradict() -> None:
    run = {"runDuration": {"maxRunDuration": "60s"}}
    bad: list[dict[str, Any]] = [
        {"provisioningModel": "FLEX_START"},
        {"provisioningModel": "FLEX_START", "spot": {}, **run},
        {"provisioningModel": "FLEX_START", "bestEffort": {}, **run},
        {"provisioningModel": "RESERVATION_BOUND"},
        {"provisioningModel": "RESERVATION_BOUND", "reservationName": f"{PARENT}/reservations/r1", "guaranteed": {}},
        {"provisioningModel": "SPOT", "guaranteed": {}},
    ]
    with tpu_api() as tpu:
        for fields in bad:
            assert refusal(lambda fields=fields: queue(tpu, **fields)) == (400, "INVALID_ARGUMENT"), fields
        assert tpu.cloud.list_queued() == ()
        queue(tpu, "both", provisioningModel="SPOT", spot={})
        queue(tpu, "sure", provisioningModel="STANDARD", guaranteed={}, **run)
        tpu.clock.advance(50)
        assert sorted(look.market for look in tpu.cloud.live()) == ["on-demand", "spot"]


def test_boot_disk_is_not_smaller_than_its_image() -> None:
    with tpu_api() as tpu:
        create = service(tpu).nodes().create
        for size in ("99", "0", "-200", "1e3"):
            call = create(parent=PARENT, nodeId="a", body=NODE | {"bootDiskConfig": {"diskSizeGb": size}})
            assert refusal(call.execute) == (400, "INVALID_ARGUMENT"), size
        spec = {"parent": PARENT, "nodeId": "b", "node": NODE | {"bootDiskConfig": {"diskSizeGb": "50"}}}
        assert refusal(lambda: queue(tpu, spec=spec)) == (400, "INVALID_ARGUMENT")
        create(parent=PARENT, nodeId="a", body=NODE | {"bootDiskConfig": {"diskSizeGb": "100"}}).execute()
        refused = service(tpu, "v2").nodes().create
        body = NODE | {"bootDiskConfig": {"diskSizeGb": "200"}}
        assert refusal(refused(parent=PARENT, nodeId="c", body=body).execute) == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize("version", ["v2", "v2alpha1"])
def test_disk_is_written_by_one_machine(version: str) -> None:
    path = f"projects/any/zones/{ZONE}/disks/one"
    with tpu_api() as tpu:
        create = service(tpu, version).nodes().create

        def node(name: str, source: str, mode: str = "", kind: str = "v6e-8") -> Any:
            disk = {"sourceDisk": source} | ({"mode": mode} if mode else {})
            return create(parent=PARENT, nodeId=name, body=NODE | {"acceleratorType": kind, "dataDisks": [disk]})

        for source in ("one", "projects/any/zones/us-central1-a/disks/one", "projects/any/regions/us-east1/disks/one"):
            assert refusal(node("a", source).execute) == (400, "INVALID_ARGUMENT"), source
        assert refusal(node("a", path, kind="v6e-16").execute) == (400, "INVALID_ARGUMENT"), "4 machines"
        node("a", path).execute()
        assert refusal(node("b", path, "READ_ONLY").execute) == (400, "FAILED_PRECONDITION")
        other = f"projects/any/regions/{ZONE.rpartition('-')[0]}/disks/two"
        node("c", other, "READ_ONLY", "v6e-16").execute()
        node("d", other, "READ_ONLY").execute()
        assert refusal(node("e", other, "READ_WRITE").execute) == (400, "FAILED_PRECONDITION")
        spec = {"parent": PARENT, "nodeId": "f", "node": NODE | {"dataDisks": [{"sourceDisk": path}]}}
        assert refusal(lambda: queue(tpu, spec=spec)) == (400, "FAILED_PRECONDITION")
        assert {look.name for look in tpu.cloud.live()} == {"a", "c", "d"}
        shown = service(tpu, "v2").nodes().get(name=f"{PARENT}/nodes/c").execute()
        assert shown["dataDisks"] == [{"sourceDisk": other, "mode": "READ_ONLY"}]
