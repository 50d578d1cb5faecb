"""Ends: complete, safe for what is not ours, and possible without a record."""

from __future__ import annotations

import pytest
from google_bench import NODE, QUEUED, SPOT, Bench
from google_cases import candidate, spec
from google_fake import Answer, Fault

from orchestrator.errors import OrchError
from orchestrator.providers.core.driver import SETTLE_SECONDS
from orchestrator.providers.google import client, session
from orchestrator.providers.google.provider import TpuProvider
from orchestrator.slices import SliceState, SliceView


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


def test_what_is_stuck_in_its_end_is_asked_again_and_a_refusal_of_that_is_no_error(bench: Bench) -> None:
    provider = bench.ready(spec())
    bench.fake.nodes[NODE]["state"] = "DELETING"
    bench.fake.faults = [Fault("DELETE", Answer(400, "it is being deleted", "FAILED_PRECONDITION"))]
    provider.end("demo-1")
    assert NODE in bench.fake.nodes
    provider.end("demo-1")
    bench.clock += SETTLE_SECONDS + 1
    assert provider.observe("demo-1").state is SliceState.ABSENT


def test_a_refusal_to_end_what_is_well_is_an_error(bench: Bench) -> None:
    provider = bench.ready(spec())
    bench.fake.faults = [Fault("DELETE", Answer(400, "it belongs to a queued resource", "FAILED_PRECONDITION"))]
    with pytest.raises(OrchError, match="queued resource"):
        provider.end("demo-1")


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


def test_a_slice_of_the_same_name_that_is_another_installations_is_never_ended(bench: Bench) -> None:
    theirs = bench.ready(spec(token="theirs-1"))
    other = TpuProvider(client.open_api(session.open_session()), bench.state / "another computer", lambda: bench.clock)
    other.end("demo-1", "ours-1")
    assert other.observe("demo-1", "ours-1") == SliceView(state=SliceState.ABSENT)
    assert theirs.observe("demo-1").state is SliceState.READY
    other.end("demo-1", "theirs-1")
    assert other.observe("demo-1", "theirs-1") == SliceView(state=SliceState.ABSENT)
