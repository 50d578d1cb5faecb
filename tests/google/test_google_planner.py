"""What is asked for, by which path, and what is refused with which reason. Nothing is sent here."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from google_cases import PROJECT, candidate, keys, matrix, spec

from orchestrator.errors import UserError
from orchestrator.providers.google import choices, sending
from orchestrator.providers.google.choices import path_of, read, zone_of
from orchestrator.providers.google.planner import PLANNER, request_id
from orchestrator.slices import Candidate, CapacityBlock, OnDemand, Owned, Reservation, Spot
from orchestrator.values import Text, Unknown


@pytest.mark.parametrize(
    ("of", "kind", "word"),
    [
        (candidate(), "node", "at once"),
        (candidate(market=Spot()), "queued", "spot"),
        (candidate(market=Reservation("r")), "queued", "reservation"),
        (candidate(slices=2), "queued", "multislice"),
        (candidate(queued="yes"), "queued", "asked for"),
    ],
)
def test_path_is_chosen_by_rule_and_says_why(of: Candidate, kind: str, word: str) -> None:
    path = path_of(of)
    assert (path.kind, word in path.reason) == (kind, True)


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (replace(candidate(), accelerator="tpu7x-16", hosts=2), "Compute Engine and GKE"),
        (replace(candidate(), accelerator="H100:8"), "not a TPU"),
        (replace(candidate(), hosts=5), "no whole number"),
        (replace(candidate(), hosts=0), "no whole number"),
        (replace(candidate(), market=CapacityBlock("cr-1")), "capacity block"),
        (replace(candidate(), market=Owned()), "your own"),
        (candidate(disk_gib=200), "no field for another size"),
        (candidate("v5p-12288"), "at most 1400 hosts"),
        (candidate(project="NoProject"), "no project id"),
        (candidate(valid_hours="soon"), "number of hours"),
        (candidate(valid_hours="nan"), "number of hours"),
        (candidate(network="a b"), "cannot be a network"),
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


@pytest.mark.parametrize("name", [name for name in matrix() if "spot" in name or "queued" in name or "slices" in name])
def test_every_queued_request_has_an_end(name: str) -> None:
    policy = PLANNER.create_request(matrix()[name]).body["queueingPolicy"]
    assert isinstance(policy, dict)
    assert int(str(policy["validUntilDuration"]).removesuffix("s")) > 0


def test_every_host_is_told_what_to_delete_at_its_limit() -> None:
    for of, expected in (
        (candidate(), f"projects/{PROJECT}/locations/us-west4-a/nodes/demo-1"),
        (candidate(market=Spot()), f"projects/{PROJECT}/locations/us-west4-a/queuedResources/demo-1?force=true"),
    ):
        request = sending.ready(PLANNER, spec(of), keys(4), PROJECT)
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


def test_own_keys_for_every_host_are_needed() -> None:
    with pytest.raises(ValueError, match="need a key pair each"):
        sending.ready(PLANNER, spec(), keys(3), PROJECT)


def test_on_demand_is_no_spot() -> None:
    assert not read(candidate(market=OnDemand())).spot
    assert "spot" not in PLANNER.create_request(spec(candidate(queued="yes"))).body
    assert PLANNER.create_request(spec(candidate(market=Spot()))).body["spot"] == {}


def test_limit_of_hosts_is_below_the_room_for_their_keys() -> None:
    from orchestrator.providers.google.startup import pack_keys

    longest = max(len(value) for value in pack_keys(keys(1).host_private * choices.MOST_HOSTS))
    assert longest < 256 * 1024
    assert sum(len(value) for value in pack_keys(keys(1).host_private * choices.MOST_HOSTS)) < 500 * 1024
