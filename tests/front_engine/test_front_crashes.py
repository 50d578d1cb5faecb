"""Killed by SIGKILL around every request to a cloud, every verb ends as if nothing had happened.

The providers are the real ones, with the libraries of the vendors; the clouds are simulated, behind their APIs on the
loopback.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import compute_verbs
import ec2_verbs
import pytest
import tpu_verbs
from crash_matrix import empty_store, finish, finish_after, matrix, points_passed, take_down
from crash_verbs import Verb, matrix_folder
from front_matrix import Broken, Case, FrontMatrix, cases_of, front_place
from support.lanes import by_lane, share_of, spread
from support.slice_names import slice_name

MATRICES = (ec2_verbs.MATRIX, tpu_verbs.MATRIX, compute_verbs.MATRIX)
BROKEN = (*ec2_verbs.BROKEN, *tpu_verbs.BROKEN, *compute_verbs.BROKEN)
LAUNCHES = [
    pytest.param(found, *one.values, id=f"{found.front.name}-{one.id}", marks=one.marks)
    for found in MATRICES
    for one in spread(share_of(found.taken_down, 1))
]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with matrix_folder(monkeypatch) as root:
        yield root


@pytest.mark.slow
@pytest.mark.promise("P1")
@pytest.mark.promise("P2")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", cases_of(MATRICES))
def test_every_command_killed_around_a_request_leaks_nothing(folder: Path, case: Case) -> None:
    of, on_server = case.matrix, case.database == "PostgreSQL"
    with empty_store(case.database) as store, front_place(folder, of, store=store) as place:
        points = of.points_on_server if on_server else "all"
        counts = matrix(
            place, [case.verb], points=points, doubles=by_lane(0.0, of.doubles), kills=of.kills, turn=case.turn
        )
    counts.report(of.proof_of(case.database))
    assert counts.violations == [], "\n".join(counts.violations[:20])


@pytest.mark.slow
@pytest.mark.promise("P1")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("of", "verb"), LAUNCHES)
def test_what_a_killed_launch_has_left_is_taken_down(folder: Path, of: FrontMatrix, verb: Verb) -> None:
    with front_place(folder, of) as place:
        counts = matrix(place, [verb], points="distinct", kills=1, turn=of.taken_down.index(verb), then=take_down)
    assert counts.violations == [], "\n".join(counts.violations[:20])


@pytest.mark.slow
@pytest.mark.parametrize(
    "of",
    [
        pytest.param(ec2_verbs.MATRIX, id="EC2"),
        pytest.param(tpu_verbs.MATRIX, id="TPU API"),
        pytest.param(compute_verbs.MATRIX, id="Compute Engine"),
    ],
)
def test_the_commands_send_every_changing_request(folder: Path, of: FrontMatrix) -> None:
    verbs = by_lane(of.senders or of.verbs, of.verbs)
    with front_place(folder, of) as place:
        passed = {name for verb in verbs for name in points_passed(place, verb)}
    around = {name for name in passed if name.startswith(("sending", "answered"))}
    assert around == {f"{when} {what}" for when in ("sending", "answered") for what in of.requests}


@pytest.mark.slow
@pytest.mark.promise("P1")
@pytest.mark.promise("P2")
@pytest.mark.parametrize("broken", [pytest.param(one, id=f"{one.matrix.front.name}-{one.name}") for one in BROKEN])
def test_the_matrix_finds_what_a_broken_provider_leaves(
    folder: Path, broken: Broken, monkeypatch: pytest.MonkeyPatch
) -> None:
    for target, name, value in broken.patches:
        monkeypatch.setattr(target, name, value)
    with front_place(folder, broken.matrix, broken.kind) as place:
        if broken.killed:
            wrong = finish_after(place, broken.verb, broken.killed)
        else:
            place.begin(broken.verb)
            wrong = finish(place, broken.verb, "nowhere")
    for pattern in broken.finds:
        expected = pattern.replace("{slice}", slice_name("c"))
        assert any(re.search(expected, what) for what in wrong), (expected, wrong)
