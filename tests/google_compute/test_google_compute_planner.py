"""What is planned on Compute Engine: which requests, in which order, and what is refused with which words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compute_bench import PROJECT, keyed, spec, wanted
from compute_cases import FAMILIES
from google_cases import candidate

from orchestrator.errors import UserError
from orchestrator.providers.google.body import revealed
from orchestrator.providers.google.compute.parameters import known_values
from orchestrator.providers.google.compute.parts import parts
from orchestrator.providers.google.compute.planner import PLANNER
from orchestrator.providers.google.sending import fill
from orchestrator.slices import Candidate, FlexStart, Request, Reservation, Spot

PLACE = f"projects/{PROJECT}"
GROUPS = "zones/us-east5-b/instanceGroupManagers"


def kinds(request: Request) -> list[str]:
    return [one.target.partition("?")[0].removeprefix(f"{PLACE}/") for one in request.in_order]


def sent(of: Candidate) -> list[Any]:
    """The bodies as they are sent, in order."""
    known = known_values(spec(of), keyed(spec(of), Path("/nowhere")))
    return [revealed(fill(one, known).body) for one in PLANNER.create_request(spec(of)).in_order]


def properties(**given: Any) -> dict[str, Any]:
    (body,) = sent(wanted("v6e-8", **given))
    return body


def test_one_host_is_an_instance() -> None:
    request = PLANNER.create_request(spec(wanted("v6e-8")))
    assert kinds(request) == ["zones/us-east5-b/instances"]
    assert request.why == "requested: api is compute"
    assert kinds(PLANNER.end_request("demo-1", wanted("v6e-8"))) == ["zones/us-east5-b/instances/demo-1"]


def test_several_hosts_are_a_policy_a_template_and_a_group() -> None:
    of = wanted("tpu7x-32", zone="us-central1-c")
    request = PLANNER.create_request(spec(of))
    assert kinds(request) == [
        "regions/us-central1/resourcePolicies",
        "global/instanceTemplates",
        "zones/us-central1-c/instanceGroupManagers",
    ]
    policy, template, group = sent(of)
    assert policy["workloadPolicy"] == {"acceleratorTopology": "2x2x4", "type": "HIGH_THROUGHPUT"}
    assert template["properties"]["machineType"] == "tpu7x-standard-4t"
    assert (group["targetSize"], group["targetSizePolicy"]) == (4, {"mode": "BULK"})
    assert "only on Compute Engine" in request.why
    end = PLANNER.end_request("demo-1", wanted("tpu7x-32", zone="us-central1-c"))
    assert kinds(end)[0].endswith("instanceGroupManagers/demo-1"), "what costs money goes first"
    assert kinds(end)[1:] == ["global/instanceTemplates/demo-1", "regions/us-central1/resourcePolicies/demo-1"]


def test_several_slices_are_so_many_groups_each_with_its_own_keys() -> None:
    of = wanted("v6e-16", slices=2)
    one = ["regions/us-east5/resourcePolicies", "global/instanceTemplates", "zones/us-east5-b/instanceGroupManagers"]
    assert kinds(PLANNER.create_request(spec(of))) == one * 2
    bodies = sent(of)
    packed = [_metadata(body)["orch-host-keys-0"] for body in bodies if "properties" in body]
    assert [sorted(word.partition(":")[0] for word in one.split(",")) for one in packed] == [list("0123")] * 2
    assert packed[0] != packed[1]
    assert _metadata(bodies[1])["orch-resource"].split() == [
        f"{PLACE}/zones/us-east5-b/instanceGroupManagers/demo-1-s{index}" for index in (0, 1)
    ]


def test_flex_start_group_begins_empty_and_is_resized() -> None:
    request = PLANNER.create_request(spec(wanted("v6e-16", FlexStart(4.0))))
    assert kinds(request)[-2:] == [GROUPS, f"{GROUPS}/demo-1/resize"]
    assert request.before[-1].body["targetSize"] == 0
    assert request.target.endswith("&size=4")


def test_markets_are_worded_as_compute_engine_words_them() -> None:
    assert properties()["scheduling"] == {"onHostMaintenance": "TERMINATE"}
    spot = properties(market=Spot())["scheduling"]
    assert (spot["provisioningModel"], spot["instanceTerminationAction"]) == ("SPOT", "DELETE")
    flex = properties(market=FlexStart(4.0), valid_hours="6")
    assert flex["scheduling"]["maxRunDuration"] == {"seconds": "14400"}
    assert flex["params"] == {"requestValidForDuration": {"seconds": "7200"}}, "an instance waits two hours at most"
    held = properties(market=Reservation("my-res"))
    assert held["reservationAffinity"]["values"] == ["my-res"]
    assert "provisioningModel" not in held["scheduling"]
    bound = properties(market=Reservation("my-res"), reservation_bound="yes")
    assert bound["scheduling"]["provisioningModel"] == "RESERVATION_BOUND"


def test_machines_without_tpus_are_plain_instances() -> None:
    of = replace(candidate("e2-standard-4", zone="us-central1-a"), hosts=2, disk_gib=20)
    request = PLANNER.create_request(spec(of))
    assert kinds(request) == ["zones/us-central1-a/instances"] * 2
    assert request.why == "only Compute Engine has machines without TPUs"
    bodies = sent(of)
    assert [body["name"] for body in bodies] == ["demo-1-s0", "demo-1-s1"]
    disk = bodies[0]["disks"][0]["initializeParams"]
    assert disk["sourceImage"] == "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64"
    assert (disk["diskSizeGb"], disk["diskType"].rpartition("/")[2]) == ("20", "pd-balanced")
    assert bodies[0]["scheduling"] == {}, "it may move to another host"
    entries = [{item["key"]: item["value"] for item in body["metadata"]["items"]} for body in bodies]
    assert entries[0]["orch-host-keys-0"] != entries[1]["orch-host-keys-0"]
    with pytest.raises(UserError, match="only a single one"):
        PLANNER.stop_request("demo-1", of)
    assert kinds(PLANNER.stop_request("demo-1", replace(of, hosts=1))) == ["zones/us-central1-a/instances/demo-1/stop"]
    (spot,) = sent(candidate("e2-standard-4", Spot(), zone="us-central1-a"))
    assert spot["scheduling"]["onHostMaintenance"] == "TERMINATE", "as Google demands of spot"
    assert PLANNER.host_facts(of).env == ()


@pytest.mark.parametrize("kind", ["g2-standard-4", "a2-highgpu-8g", "a2-megagpu-16g", "a2-ultragpu-1g"])
def test_a_gpu_comes_with_its_type_and_its_image_has_the_driver(kind: str) -> None:
    (body,) = sent(candidate(kind, zone="us-central1-a"))
    assert body["machineType"].endswith(f"/machineTypes/{kind}")
    assert "guestAccelerators" not in body
    assert body["scheduling"] == {"onHostMaintenance": "TERMINATE"}
    assert body["disks"][0]["initializeParams"]["sourceImage"].endswith("ubuntu-accelerator-2404-amd64-with-nvidia-580")
    (spot,) = sent(candidate(kind, Spot(), zone="us-central1-a"))
    assert spot["scheduling"]["provisioningModel"] == "SPOT"
    mine = "projects/my-images/global/images/mine-1"
    (own,) = sent(candidate(kind, zone="us-central1-a", runtime_version=mine))
    assert own["disks"][0]["initializeParams"]["sourceImage"] == mine


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (candidate("e2-standard-4", FlexStart(4.0)), "orch rents no e2-standard-4 as 'flex start"),
        (candidate("e2-standard-4", api="tpu"), "'api: tpu' has no meaning for e2-standard-4"),
        (candidate("g2-standard-4", topology="2x2"), "'topology' has no meaning for g2-standard-4"),
        (candidate("g2-standard-4", queued="yes"), "'queued' is not available on Compute Engine"),
        (candidate("g2-standard-4", runtime_version="v2-alpha-tpuv6e"), "is not an image of Compute Engine"),
    ],
)
def test_what_machines_without_tpus_lack_is_refused(of: Candidate, words: str) -> None:
    with pytest.raises(UserError) as caught:
        PLANNER.create_request(spec(of))
    assert words in f"{caught.value}"


def test_a_stop_that_would_lose_local_disks_is_refused() -> None:
    with pytest.raises(UserError, match="its local disks would be lost"):
        PLANNER.stop_request("demo-1", candidate("a2-ultragpu-1g", zone="us-central1-a"))


@pytest.mark.parametrize(
    ("accelerator", "kind", "family"),
    [
        ("v5p-8", "pd-balanced", "v5e-v5p-v6e"),
        ("v6e-8", "hyperdisk-balanced", "v5e-v5p-v6e"),
        ("tpu7x-8", "hyperdisk-balanced", "tpu-tpu7x"),
    ],
)
def test_boot_disk_has_the_type_and_the_image_of_the_family(accelerator: str, kind: str, family: str) -> None:
    of = replace(wanted(accelerator, zone=FAMILIES[accelerator]), disk_gib=300)
    boot = sent(of)[0]["disks"][0]["initializeParams"]
    assert boot["diskSizeGb"] == "300"
    assert boot["diskType"].endswith(f"/{kind}")
    assert boot["sourceImage"].endswith(family)
    assert properties()["disks"][0]["initializeParams"]["diskSizeGb"] == "100"


def test_image_may_be_a_path_or_a_family() -> None:
    for word, image in (
        ("projects/my-images/global/images/mine-1", "projects/my-images/global/images/mine-1"),
        ("ubuntu-accel-2404-amd64-tpu-v6e", "/family/ubuntu-accel-2404-amd64-tpu-v6e"),
    ):
        assert properties(runtime_version=word)["disks"][0]["initializeParams"]["sourceImage"].endswith(image)
    with pytest.raises(UserError, match="not an image of Compute Engine") as caught:
        properties(runtime_version="v2-alpha-tpuv6e")
    assert "projects/PROJECT/global/images" in caught.value.why


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"queued": "yes"}, "'queued' is not available on Compute Engine"),
        ({"tier": "best-effort"}, "'tier' is not available on Compute Engine"),
        ({"market": Reservation("-")}, "has a name"),
    ],
)
def test_what_only_the_tpu_api_has_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        properties(**given)


def test_names_are_deterministic_and_fit() -> None:
    assert parts("demo-1", 1, 4)[0].instances == ("demo-1-w-001", "demo-1-w-002", "demo-1-w-003", "demo-1-w-004")
    longest = parts("d" * 45, 64, 1400)[-1]
    assert max(len(name) for name in longest.instances) <= 63
    assert len(longest.base.rstrip("#").rstrip("-")) <= 52, "so far a base with hashes may go (compute v1)"
    for name in ("d" * 46, "Demo", "1-demo", "demo-"):
        with pytest.raises(UserError, match="cannot name"):
            parts(name, 1, 4)


def test_request_ids_differ_by_step_and_not_by_call() -> None:
    of = spec(wanted("v6e-16", slices=2))
    first, again = ([one.target for one in PLANNER.create_request(of).in_order] for _ in range(2))
    assert first == again
    assert len({target.partition("requestId=")[2] for target in first}) == len(first)
    other = PLANNER.create_request(spec(wanted("v6e-16", slices=2), token="another-2"))
    assert not {one.target for one in other.in_order} & set(first)


def test_nothing_unknown_is_sent_and_no_secret_is_shown() -> None:
    from orchestrator.providers.google.compute.api import place_of

    of = spec()
    for one in PLANNER.create_request(of).in_order:
        words = " ".join(word.preview() for word in one.command)
        assert keyed(of, Path("/nowhere")).host_private[0].splitlines()[1] not in words
    unnamed: Candidate = wanted("v6e-8", project="")
    with pytest.raises(ValueError, match="not a whole path"):
        place_of(PLANNER.create_request(spec(unnamed)).target)


def test_power_is_for_single_hosts_that_are_kept() -> None:
    assert PLANNER.stop_request("demo-1", wanted("v6e-8")).target.endswith("/instances/demo-1/stop")
    for of in (wanted("v6e-16"), wanted("v6e-8", Spot()), wanted("v6e-8", FlexStart(1.0))):
        with pytest.raises(UserError, match="cannot be stopped and kept"):
            PLANNER.start_request("demo-1", of)


def test_hosts_get_what_the_tpu_api_would_give_them() -> None:
    facts = PLANNER.host_facts(wanted("v6e-8"))
    assert facts.env == (("PJRT_DEVICE", "TPU"),)
    assert "compute.googleapis.com" in facts.end_command


def _metadata(body: Any) -> dict[str, str]:
    return {item["key"]: item["value"] for item in body["properties"]["metadata"]["items"]}
