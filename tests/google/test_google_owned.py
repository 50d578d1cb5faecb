"""The list of all that carries our labels."""

from __future__ import annotations

from dataclasses import replace

import pytest
from google_bench import PLACE, Bench
from google_cases import INSTALLATION, PROJECT, TOKEN, candidate, spec
from google_fake import Answer, Fault

from orchestrator.errors import AccessError, CloudError
from orchestrator.slices import SliceState
from orchestrator.values import Text


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


@pytest.mark.promise("P5")
def test_a_person_s_own_node_that_an_earlier_orch_labelled_is_never_listed_and_never_ended(bench: Bench) -> None:
    labels = {"orch-installation": INSTALLATION, "orch-cluster": "demo", "orch-intent": TOKEN, "orch-adopted": "demo-1"}
    place = f"{PLACE}/nodes/theirs"
    bench.fake.nodes[place] = {"name": place, "state": "READY", "labels": labels}
    assert bench.provider().owned(INSTALLATION) == ()
    bench.provider().end("demo-1", TOKEN)
    assert place in bench.fake.nodes and not [one for one in bench.fake.calls if one.startswith("DELETE")]
