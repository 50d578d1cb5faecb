"""Killed by SIGKILL around every request to Google, every verb ends as if nothing had happened.

The provider is the real one, with Google's client library; the cloud is simulated, behind the TPU API on the loopback.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_matrix import Case, cases_of, empty_store, finish, matrix, points_passed
from crash_verbs import matrix_folder
from google_matrix import BY_NAME, GOOGLE_VERBS, NotedAfterwards, OnlyNodes, google_place
from support.lanes import by_lane


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with matrix_folder(monkeypatch) as root:
        yield root


@pytest.mark.slow
@pytest.mark.promise("P1")
@pytest.mark.promise("P2")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", cases_of(GOOGLE_VERBS, on_server=1))
def test_on_google_every_command_killed_at_a_lasting_change_leaks_nothing(folder: Path, case: Case) -> None:
    with empty_store(case.database) as store, google_place(folder, store=store) as place:
        counts = matrix(place, [case.verb], doubles=by_lane(0.0, 0.4), kills=2, day=case.day)
    if case.database == "SQLite":
        counts.report("SIGKILL around every request to Google's API, over sockets, with Google's client library")
    else:
        counts.report("SIGKILL around every request to Google's API, on PostgreSQL")
    assert counts.violations == [], "\n".join(counts.violations[:20])


@pytest.mark.slow
def test_the_commands_on_google_send_every_changing_request(folder: Path) -> None:
    with google_place(folder) as place:
        passed = {name for verb in GOOGLE_VERBS for name in points_passed(place, verb)}
    around = {name for name in passed if name.startswith(("sending", "answered"))}
    assert around == {
        f"{when} {what}"
        for when in ("sending", "answered")
        for what in (
            "POST nodes",
            "POST queuedResources",
            "DELETE nodes",
            "DELETE queuedResources",
            "POST stop",
            "POST start",
        )
    }


@pytest.mark.slow
@pytest.mark.rotating
@pytest.mark.promise("P1")
@pytest.mark.promise("P2")
def test_the_matrix_finds_two_slices_when_names_are_recorded_after_the_create(folder: Path) -> None:
    with google_place(folder, NotedAfterwards) as place:
        counts = matrix(place, [BY_NAME["launch"]], points="distinct")
    assert any("had two slices" in what and "answered POST nodes" in what for what in counts.violations), counts
    assert any("no record wants" in what for what in counts.violations), counts


@pytest.mark.slow
@pytest.mark.rotating
@pytest.mark.promise("P2")
def test_the_matrix_finds_a_queued_resource_whose_nodes_alone_were_deleted(folder: Path) -> None:
    with google_place(folder, OnlyNodes) as place:
        place.begin(BY_NAME["recover"])
        wrong = finish(place, BY_NAME["recover"], "nowhere")
    assert any("still live" in what for what in wrong), wrong
