"""Killed by SIGKILL around every request to Compute Engine, every verb ends as if nothing had happened.

The provider is the real one, with Google's client library; the cloud is simulated, behind compute v1 on the loopback.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from compute_matrix import BY_NAME, COMPUTE_VERBS, LAUNCHES, SENDERS, NotedAfterwards, compute_place
from crash_matrix import Case, cases_of, empty_store, finish, finish_after, matrix, points_passed, take_down
from crash_verbs import ORPHANS, Verb, matrix_folder
from support.lanes import by_lane, share_of, spread, today
from support.slice_names import slice_name

from orchestrator.providers.google.compute import listing
from orchestrator.providers.google.compute.observing import Observer


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with matrix_folder(monkeypatch) as root:
        yield root


@pytest.mark.slow
@pytest.mark.promise("P1")
@pytest.mark.promise("P2")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", cases_of(COMPUTE_VERBS, on_server=1, on_sqlite=2))
def test_on_compute_engine_every_command_killed_at_a_lasting_change_leaks_nothing(folder: Path, case: Case) -> None:
    with empty_store(case.database) as store, compute_place(folder, store=store) as place:
        points = "all" if case.database == "SQLite" else "distinct"  # an hour for all of them
        counts = matrix(place, [case.verb], points=points, doubles=by_lane(0.0, 0.03), kills=1, day=case.day)
    if case.database == "SQLite":
        counts.report("SIGKILL around every request to Compute Engine's API, over sockets")
    else:
        counts.report("SIGKILL around every request to Compute Engine's API, on PostgreSQL")
    assert counts.violations == [], "\n".join(counts.violations[:20])


@pytest.mark.slow
@pytest.mark.promise("P1")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("verb", spread(share_of(LAUNCHES, 1)))
def test_what_a_killed_launch_has_left_on_compute_engine_is_taken_down(folder: Path, verb: Verb) -> None:
    with compute_place(folder) as place:
        counts = matrix(place, [verb], points="distinct", kills=1, day=today() // len(LAUNCHES), then=take_down)
    assert counts.violations == [], "\n".join(counts.violations[:20])


@pytest.mark.slow
@pytest.mark.rotating
def test_the_commands_on_compute_engine_send_every_changing_request(folder: Path) -> None:
    """But `setLabels`, which only `orch recover` sends."""
    with compute_place(folder) as place:
        passed = {name for verb in by_lane(SENDERS, COMPUTE_VERBS) for name in points_passed(place, verb)}
    around = {name for name in passed if name.startswith(("sending", "answered"))}
    assert around == {
        f"{when} {what}"
        for when in ("sending", "answered")
        for what in (
            "POST resourcePolicies",
            "POST instanceTemplates",
            "POST instanceGroupManagers",
            "POST resize",
            "POST instances",
            "POST stop",
            "POST start",
            "DELETE instances",
            "DELETE instanceGroupManagers",
            "DELETE instanceTemplates",
            "DELETE resourcePolicies",
        )
    }


@pytest.mark.slow
@pytest.mark.rotating
@pytest.mark.promise("P1")
@pytest.mark.promise("P2")
def test_the_matrix_finds_two_groups_when_names_are_recorded_after_the_create(folder: Path) -> None:
    with compute_place(folder, NotedAfterwards) as place:
        wrong = finish_after(place, BY_NAME["launch a group"], "answered POST instanceGroupManagers")
    assert any("had two slices" in what for what in wrong), wrong
    assert any("no record wants" in what for what in wrong), wrong


@pytest.mark.slow
@pytest.mark.rotating
@pytest.mark.promise("P2")
def test_the_matrix_finds_a_template_and_a_policy_that_are_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Observer, "list_left", lambda *_: [])
    with compute_place(folder) as place:
        place.begin(BY_NAME["down a group"])
        wrong = finish(place, BY_NAME["down a group"], "nowhere")
    for kind in ("instanceTemplates", "resourcePolicies"):
        assert any(f"{kind}/{slice_name('c')} is left" in what for what in wrong), wrong


@pytest.mark.slow
@pytest.mark.rotating
@pytest.mark.promise("P2")
def test_the_matrix_finds_a_template_and_a_policy_that_the_sweep_leaves(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "KINDS", (listing.GROUPS, listing.INSTANCES))
    with compute_place(folder) as place:
        place.begin(BY_NAME["reap"])
        wrong = finish(place, BY_NAME["reap"], "nowhere")
    for kind in ("instanceTemplates", "resourcePolicies"):
        assert any(f"{kind}/{ORPHANS[0]} is left" in what for what in wrong), wrong
