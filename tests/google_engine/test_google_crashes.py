"""Killed by SIGKILL around every request to Google, every verb ends as if nothing had happened.

The provider is the real one, with Google's client library; the cloud is simulated, behind the TPU API on the loopback.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_matrix import finish, matrix
from crash_verbs import matrix_folder
from google_matrix import BY_NAME, GOOGLE_VERBS, NotedAfterwards, OnlyNodes, google_place
from support.proof import report


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with matrix_folder(monkeypatch) as root:
        yield root


@pytest.mark.slow
@pytest.mark.promise("P1")
@pytest.mark.promise("P2")
@pytest.mark.timeout(600)
def test_on_google_every_verb_killed_where_something_lasting_changes_leaks_nothing(folder: Path) -> None:
    with google_place(folder) as place:
        counts = matrix(place, GOOGLE_VERBS, points="distinct" if os.environ.get("ORCH_EVERY_POINT") else "alternate")
    report(f"crash matrix on Google's API over sockets: {counts}")
    assert counts.violations == [], "\n".join(counts.violations[:20])
    around = {name for name in counts.passed if name.startswith(("sending", "answered"))}
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
@pytest.mark.promise("P1")
@pytest.mark.promise("P2")
def test_the_matrix_sees_two_slices_where_names_are_made_up_and_noted_afterwards(folder: Path) -> None:
    with google_place(folder, NotedAfterwards) as place:
        counts = matrix(place, [BY_NAME["launch"]], points="distinct")
    assert any("had two slices" in what and "answered POST nodes" in what for what in counts.violations), counts
    assert any("no record wants" in what for what in counts.violations), counts


@pytest.mark.slow
@pytest.mark.promise("P2")
def test_the_matrix_sees_a_queued_resource_that_was_only_stripped_of_its_nodes(folder: Path) -> None:
    with google_place(folder, OnlyNodes) as place:
        place.begin(BY_NAME["recover"])
        wrong = finish(place, BY_NAME["recover"], "nowhere")
    assert any("still live" in what for what in wrong), wrong
