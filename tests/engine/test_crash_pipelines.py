"""A command of a pipeline is killed anywhere: given again it ends as if nothing had happened. Others end it, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_matrix import Database, Place, empty_store, matrix, nothing_left
from crash_pipelines import OTHERS, STAGE_DOWN, VERBS, finish_pipeline, finish_with, make_spec, read_pipelines
from crash_verbs import Verb, matrix_folder
from support.driving import Listener
from support.lanes import FULL

from orchestrator.engine.preparation import commands
from orchestrator.engine.services import real_services
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.unattended.pipeline import run_pipeline
from orchestrator.paths import load_paths

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with matrix_folder(monkeypatch) as root:
        yield root


@pytest.mark.promise("P1")
@pytest.mark.parametrize("database", ["SQLite", pytest.param("PostgreSQL", marks=pytest.mark.full)])
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name.replace(" ", "-"))
def test_the_same_command_finishes_what_a_kill_left(folder: Path, verb: Verb, database: Database) -> None:
    with empty_store(database) as server:
        counts = matrix(Place(folder, server=server), [verb], points="distinct", kills=6, then=finish_pipeline)
    counts.report(f"SIGKILL at every crash point of the commands of pipelines, {database}")
    assert counts.violations == [], "\n".join(counts.violations[:20])


@pytest.mark.promise("P1")
@pytest.mark.parametrize("other", OTHERS)
def test_another_command_finishes_a_killed_launch(folder: Path, other: str) -> None:
    def finish(place: Place, verb: Verb, where: str) -> list[str]:
        wrong = finish_with(place, verb, where, OTHERS[other])
        outcomes = {(record.state, record.status) for record, _ in read_pipelines()}
        right = {("ended", 0)} if other == "watch" else {("cancelled", 130), ("ended", 0)}
        return wrong + [f"{verb.name}, killed {where}: {one}" for one in outcomes - right]

    counts = matrix(Place(folder), VERBS[:1], points="distinct", kills=6, turn=list(OTHERS).index(other), then=finish)
    counts.report("a killed launch of a pipeline, finished by watch, cancel and down")
    assert counts.violations == [], "\n".join(counts.violations[:20])
    assert not FULL or counts.singles > 25, counts


@pytest.mark.promise("P1")
def test_a_teardown_of_the_cluster_of_a_stage_ends_the_pipeline(folder: Path) -> None:
    counts = matrix(Place(folder), [STAGE_DOWN], points="distinct", kills=6, then=finish_pipeline)
    assert counts.violations == [], "\n".join(counts.violations[:20])


def test_a_cancel_of_the_job_of_a_stage_ends_the_pipeline(folder: Path) -> None:
    place = Place(folder)
    place.begin(VERBS[1])
    place.home().drive(commands.prepare_cancel("pipe-2", None))
    ((record, _),) = read_pipelines()
    assert (record.state, record.status, record.what) == ("ended", 130, "stage 2 of 2 (train): job 1 was cancelled")


class _EndsBeforeTheLastStage(Listener):
    """Asks for the end of the pipeline when its driver has decided on the last stage, and not opened it."""

    def note(self, text: str) -> None:
        super().note(text)
        if text.startswith("stage 2 of 2"):
            ((record, _),) = read_pipelines()
            with open_store(load_paths(), real_services(load_paths())) as store:
                store.request_pipeline_end(record.uid, "cancel")


def test_a_request_between_two_stages_leaves_no_cluster(folder: Path) -> None:
    place = Place(folder)
    place.begin(VERBS[0])
    ending = run_pipeline(make_spec(), _EndsBeforeTheLastStage(), place.home().services())
    ((record, jobs),) = read_pipelines()
    assert (ending.status, record.state, record.what) == (130, "cancelled", "stage 2 of 2 (train) was cancelled")
    assert ([job.stage for job in jobs], nothing_left(place)) == ([0], [])
