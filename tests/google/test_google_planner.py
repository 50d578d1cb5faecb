"""What is asked for, by which path, and what is refused with which reason. Nothing is sent here."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from google_cases import PROJECT, candidate, filled, keys, matrix, spec

from orchestrator.errors import UserError
from orchestrator.providers.google import choices
from orchestrator.providers.google.choices import path_of, read, zone_of
from orchestrator.providers.google.planner import PLANNER, request_id
from orchestrator.slices import Candidate, CapacityBlock, FlexStart, OnDemand, Owned, Reservation, Spot
from orchestrator.values import Text, Unknown


@pytest.mark.parametrize(
    ("of", "kind", "word"),
    [
        (candidate(), "node", "immediately"),
        (candidate(market=Spot()), "queued", "spot"),
        (candidate(market=Reservation("r")), "queued", "reservation"),
        (candidate(slices=2), "queued", "multislice"),
        (candidate(queued="yes"), "queued", "requested"),
        (candidate(tier="guaranteed"), "queued", "guaranteed"),
        (candidate(data_disks="data-1:ro"), "node", "immediately"),
        (candidate(disk_gib=100), "node", "immediately"),
    ],
)
def test_path_is_chosen_by_rule_and_says_why(of: Candidate, kind: str, word: str) -> None:
    path = path_of(of)
    assert (path.kind, word in path.reason, path.api) == (kind, True, "v2")


@pytest.mark.parametrize(
    ("of", "kind", "word"),
    [
        (candidate(disk_gib=101), "node", "size of the boot disk"),
        (candidate(market=FlexStart(1.0)), "queued", "flex-start"),
        (candidate(max_run_hours="1"), "queued", "run duration"),
        (candidate(tier="best-effort"), "queued", "best-effort"),
        (candidate(market=Reservation("r"), reservation_bound="yes"), "queued", "bound to the reservation"),
        (candidate(market=Spot(), disk_gib=200, max_run_hours="1"), "queued", "run duration and the size"),
    ],
)
def test_what_only_the_newer_version_can_say_is_asked_of_it_and_the_plan_says_why(
    of: Candidate, kind: str, word: str
) -> None:
    path, request = path_of(of), PLANNER.create_request(spec(of))
    assert (path.kind, path.api, word in path.reason) == (kind, "v2alpha1", True)
    assert (request.service, request.why) == ("tpu.v2alpha1", path.reason)
    assert "requestId=" in request.target, "here a node has one too"
    assert PLANNER.end_request("demo-1", of).service == "tpu.v2"


@pytest.mark.parametrize(
    ("of", "word"),
    [
        (replace(candidate(), accelerator="tpu7x-16", hosts=2), "only on Compute Engine"),
        (candidate("v6e-8", api="compute"), "requested"),
        (candidate("v5p-8", FlexStart(1.0), api="compute"), "requested"),
    ],
)
def test_what_goes_to_compute_engine_and_why(of: Candidate, word: str) -> None:
    path = path_of(of)
    assert (path.api, word in path.reason) == ("compute", True)
    assert path_of(candidate("v6e-8", api="tpu")).api == "v2"


def test_several_slices_and_shapes_have_their_hosts_counted() -> None:
    assert (read(candidate("v5litepod-16", slices=3)).slices, read(candidate("v5litepod-16")).hosts_per_slice) == (3, 4)
    shaped = read(candidate("v4-32", topology="2x2x4", slices=2))
    assert (shaped.slices, shaped.hosts_per_slice, shaped.topology) == (2, 4, "2x2x4")


@pytest.mark.parametrize(("access", "internal"), [("external", False), ("internal", True), ("iap", True), ("", False)])
def test_ways_of_access_decide_about_external_addresses(access: str, internal: bool) -> None:
    assert read(candidate(access=access)).internal_ips is internal


def test_disks_are_named_by_name_or_by_path() -> None:
    disks = read(candidate("v6e-8", data_disks="one,two:ro, projects/a.com:p/zones/z-a/disks/three")).data_disks
    paths = [disk.path(Text.of("mine"), "us-west4-a").reveal() for disk in disks]
    assert paths == [
        "projects/mine/zones/us-west4-a/disks/one",
        "projects/mine/zones/us-west4-a/disks/two",
        "projects/a.com:p/zones/z-a/disks/three",
    ]
    assert [disk.mode for disk in disks] == ["READ_WRITE", "READ_ONLY", "READ_WRITE"]


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (replace(candidate(), accelerator="H100:8"), "not a machine of Google"),
        (replace(candidate(), hosts=5), "not a whole number"),
        (replace(candidate(), hosts=0), "not a whole number"),
        (replace(candidate(), market=CapacityBlock("cr-1")), "capacity block"),
        (replace(candidate(), market=Owned()), "your own"),
        (replace(candidate(), accelerator="tpu7x-16", hosts=2, details=(("api", "tpu"),)), "Compute Engine and GKE"),
        (candidate("v4-8", api="compute"), "not available through Compute Engine: it has v5p, "),
        (candidate(api="rest"), "tpu and compute"),
        (candidate(market=FlexStart(169.0)), "at most 168 hours"),
        (candidate(market=FlexStart(0.0)), "is not possible"),
        (candidate(market=FlexStart(2.0), max_run_hours="3"), "has its own hours"),
        (candidate(max_run_hours="200"), "at most 168"),
        (candidate(tier="premium"), "guaranteed or best-effort"),
        (candidate(market=Spot(), tier="guaranteed"), "exclude each other"),
        (candidate(market=Reservation("r"), tier="best-effort"), "exclude each other"),
        (candidate(reservation_bound="yes"), "without a reservation"),
        (candidate(market=Reservation("my reservation")), "reservation is"),
        (candidate(topology="2x4"), "16 chips, usually as 4x4"),
        (candidate(topology="4by4"), "not a shape"),
        (candidate(data_disks="scratch"), "can only be read"),
        (candidate("v5litepod-8", slices=2, data_disks="scratch"), "can only be read"),
        (candidate("v5litepod-8", data_disks="Scratch!"), "is not a disk"),
        (candidate("v5p-12288"), "at most 1400 hosts"),
        (candidate(project="NoProject"), "not a project id"),
        (candidate(valid_hours="soon"), "number of hours"),
        (candidate(valid_hours="nan"), "number of hours"),
        (candidate(network="a b"), "network is"),
        (candidate(netwrok="a"), "netwrok"),
        (replace(candidate(), zone="us-west4"), "not a zone"),
        (replace(candidate(), zone="", region="asia-east9"), "no zone is known"),
    ],
)
def test_what_cannot_be_had_is_refused_with_the_reason(of: Candidate, words: str) -> None:
    with pytest.raises(UserError) as caught:
        read(of)
    assert words in f"{caught.value}"


@pytest.mark.parametrize("name", ["Demo-1", "1-demo", "demo_1", "d" * 63, "demo-", ""])
def test_a_name_that_no_node_can_have_is_refused(name: str) -> None:
    with pytest.raises(UserError):
        PLANNER.create_request(spec(name=name))


def test_a_small_disk_is_what_hosts_have_anyway() -> None:
    assert read(candidate(disk_gib=100)).tpu.name == "v5litepod-16"


def test_zone_that_is_not_named_is_the_first_listed_one_of_the_region() -> None:
    assert zone_of(replace(candidate("v6e-8"), zone="", region="us-east5")) == "us-east5-a"
    assert zone_of(replace(candidate("v6e-8"), zone="", region="")) == "us-central1-b"


def test_request_id_is_the_same_for_the_same_token_only() -> None:
    assert request_id(Text.of("a-1")) == request_id(Text.of("a-1"))
    assert request_id(Text.of("a-1")) != request_id(Text.of("a-2"))
    assert not request_id(Text.of(Unknown("cluster id"), "-1")).is_known


@pytest.mark.parametrize(
    "name", [name for name in matrix() if "spot" in name or "queued" in name or "slices" in name or "flex" in name]
)
def test_every_queued_request_has_an_end(name: str) -> None:
    policy = PLANNER.create_request(matrix()[name]).body["queueingPolicy"]
    assert isinstance(policy, dict)
    assert int(str(policy["validUntilDuration"]).removesuffix("s")) > 0


def test_every_host_is_told_what_to_delete_at_its_limit() -> None:
    for of, expected in (
        (candidate(), f"projects/{PROJECT}/locations/us-west4-a/nodes/demo-1"),
        (candidate(market=Spot()), f"projects/{PROJECT}/locations/us-west4-a/queuedResources/demo-1?force=true"),
    ):
        request = filled(spec(of), keys(4))
        assert expected in str(request.body)
        assert PLANNER.end_request("demo-1", of).target == expected, "the host and the launcher end the same thing"


def test_stop_of_a_pod_is_refused_in_the_preview_too() -> None:
    with pytest.raises(UserError, match="one host"):
        PLANNER.stop_request("demo-1", candidate())
    assert PLANNER.stop_request("demo-1", candidate("v5litepod-8")).command


def test_hosts_end_themselves_and_run_on_tpu() -> None:
    facts = PLANNER.host_facts(candidate())
    assert ("PJRT_DEVICE", "TPU") in facts.env
    assert "DELETE" in facts.end_command
    assert facts.python == ""


def test_planning_loads_no_library_of_google() -> None:
    program = (
        "import sys; from orchestrator.providers.google.planner import PLANNER; "
        "print([name for name in sys.modules if name.split('.')[0] in ('google', 'grpc', 'requests', 'tenacity')])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout.strip() == "[]"


def test_preview_of_an_unlaunched_cluster_shows_its_unknowns() -> None:
    unknown = Text.of(Unknown("cluster id, made at launch"), "-1")
    of = replace(spec(candidate(market=Spot())), token=unknown, labels=(("orch-intent", unknown),))
    request = PLANNER.create_request(of)
    assert "requestId=(request id, made from the cluster id)" in request.target
    assert any("(cluster id, made at launch)" in word.preview() for word in request.command)


def test_on_demand_is_no_spot() -> None:
    assert not read(candidate(market=OnDemand())).spot
    assert "spot" not in PLANNER.create_request(spec(candidate(queued="yes"))).body
    assert PLANNER.create_request(spec(candidate(market=Spot()))).body["spot"] == {}


def test_limit_of_hosts_is_below_the_room_for_their_keys() -> None:
    from orchestrator.providers.google.startup import pack_keys

    longest = max(len(value) for value in pack_keys(keys(1).host_private * choices.MOST_HOSTS))
    assert longest < 256 * 1024
    assert sum(len(value) for value in pack_keys(keys(1).host_private * choices.MOST_HOSTS)) < 500 * 1024
