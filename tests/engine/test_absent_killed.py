"""An engine that finds its machines absent after hours is killed at every point: the next ones rent no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_matrix import Counts, Place, kill, points_of
from crash_verbs import CLUSTER, Verb, matrix_folder
from support.simulated import SimHome, sim_launch, sim_task, simulated
from support.slice_names import slice_name

from orchestrator.engine.preparation import commands
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.recorded import open_reader
from orchestrator.exits import Exit
from orchestrator.paths import load_paths
from orchestrator.plan.observed import FINAL_STATES
from orchestrator.simulator.programs import Program
from orchestrator.simulator.scenario import Deed
from orchestrator.store.records import JobRecord, NewJob

HOURS = 3 * 3600.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with matrix_folder(monkeypatch) as root:
        yield root


def jobs() -> tuple[JobRecord, ...]:
    with open_reader() as reader:
        cluster = reader.cluster(CLUSTER) or reader.deleted_cluster(CLUSTER)
        assert cluster is not None
        return reader.jobs(cluster)


def vanished(home: SimHome) -> None:
    """Let one job run and two wait for unattended engines; then the machines vanish, and no engine looks for hours."""
    with home.access.open() as cloud:
        cloud.set_program("*", Program(seconds=60.0))
    home.drive(sim_launch(sim_task()), follow=False)
    (first,) = jobs()
    with open_store(load_paths(), home.services(), "launch") as store:
        cluster = store.cluster(CLUSTER)
        assert cluster is not None
        for number in (2, 3):
            waiting = NewJob(
                kind=first.kind,
                run_id=f"{first.run_id}-{number}",
                digest=f"{first.digest}-{number}",
                task=first.task,
                bucket="",
                ranks=None,
                after_end=first.after_end,
                launch_request=first.launch_request,
                watch="engine",
            )
            store.queue_job(cluster, waiting)
    with home.access.open() as cloud:
        cloud.do(slice_name(CLUSTER), Deed.VANISH)
    home.pass_time(HOURS)


def drive_all(home: SimHome) -> None:
    """Act as unattended engines do: drive the first job that is not over, until all are."""
    while left := [job for job in jobs() if job.state != "ended"]:
        home.drive(simulated(commands.prepare_continuation(CLUSTER, left[0])))


def wrong(home: SimHome) -> list[str]:
    """Return what must not be: other machines, another end of a job, an open intent."""
    with home.access.open() as cloud:
        made = [one.name for one in cloud.state.resources.values()]
    found = [f"{made} were rented"] if made != [slice_name(CLUSTER)] else []
    found += [f"job {job.id}: {job.what}" for job in jobs() if job.status != Exit.HOST_LOST]
    with open_reader() as reader:
        live = [i.name for one in reader.clusters() for i in reader.intents(one) if i.state not in FINAL_STATES]
    return [*found, f"{live} are on record"] if live else found


@pytest.mark.promise("P1")
def test_an_engine_that_is_killed_anywhere_after_the_silence_leaves_nothing_that_is_rented_again(folder: Path) -> None:
    place, verb = Place(folder), Verb("return", vanished, drive_all, {}, 0)
    place.begin(verb)
    names, counts = points_of(place, "base", verb), Counts()
    assert wrong(place.home()) == []
    for number in range(1, len(names) + 1):
        name = kill(place, "base", verb, number, counts)
        drive_all(place.home())
        counts.violations += [f"killed at {number} {name}: {what}" for what in wrong(place.home())]
    assert counts.violations == [], "\n".join(counts.violations)
    assert len(names) > 4
