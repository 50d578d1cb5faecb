"""`orch down` of another process while a command drives the cluster, in both orders of taking the lease."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.driving import Listener
from support.simulated import SimHome, sim_launch, sim_task, use_home
from support.slice_names import short_names

from orchestrator.engine.loop.drive import drive_cluster
from orchestrator.engine.loop.overtaken import YIELD_SECONDS
from orchestrator.engine.loop.queue import end_jobs
from orchestrator.engine.preparation import commands
from orchestrator.engine.preparation.prepared import CommandResult
from orchestrator.engine.state.opening import open_store
from orchestrator.exits import Exit
from orchestrator.next_step import NextStep
from orchestrator.paths import load_paths
from orchestrator.plan.steps import GiveUp
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.programs import Program
from orchestrator.simulator.scenario import Durations, Scenario


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ORCH_HOME", "ORCH_STORE"):
        monkeypatch.setenv(name, "")
    use_home(tmp_path)


class Interplay(ManualClock):
    """Time in which something else happens whenever the command sleeps. seconds: how long it is about to sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[float], None] = lambda seconds: None

    def sleep(self, seconds: float) -> None:
        self.meanwhile(seconds)
        super().sleep(seconds)


def launched(*, started: bool, down: Callable[[SimHome], None]) -> tuple[SimHome, CommandResult]:
    """A launch during which another process announces `down`, and does it when the launch has made way.

    started: only when the program is at work; else while the machines are being made.
    """
    clock = Interplay()
    home = SimHome(InMemory(Scenario(durations=Durations(create=40.0, end=2.0, contact=0.01, jitter=0.0)), clock))
    with home.access.open() as cloud:
        cloud.set_program("*", Program(seconds=None))

    def announce(_: float) -> None:
        """What `orch down` does before it has the lease."""
        with open_store(load_paths(), home.services()) as store:
            cluster = store.cluster("c")
            if cluster is not None and cluster.last_state and [job.started for job in store.jobs(cluster)] == [started]:
                store.set_desired_state(cluster, "down")
                end_jobs(store, cluster, "cluster 'c' is taken down", lambda _: NextStep(), waiting=True, begun=False)
                clock.meanwhile = made_way

    def made_way(seconds: float) -> None:
        if seconds == YIELD_SECONDS:
            down(home)

    clock.meanwhile = announce
    return home, drive_cluster(sim_launch(sim_task()), Listener(), services=home.services())


def take_down(home: SimHome) -> None:
    home.clock.meanwhile = lambda seconds: None
    assert drive_cluster(commands.prepare_down("c"), Listener(), services=home.services()).status == 0


def living(home: SimHome) -> list[str]:
    with home.access.open() as cloud:
        return short_names(look.name for look in cloud.live())


@pytest.mark.parametrize(
    ("started", "words"),
    [(True, "job 1 ended: cluster 'c' was taken down"), (False, "job 1 is not started: cluster 'c' is taken down")],
)
def test_a_command_that_reads_of_a_down_before_its_lease_ends_as_its_job_does(started: bool, words: str) -> None:
    home, ending = launched(started=started, down=take_down)
    assert isinstance(ending.step, GiveUp)
    assert (ending.status, ending.step.code, ending.step.what) == (Exit.INTERRUPTED, "cancelled", words)
    assert living(home) == []


def test_an_announced_down_that_never_starts_is_reported_after_a_while() -> None:
    home, ending = launched(started=True, down=lambda home: None)
    assert isinstance(ending.step, GiveUp)
    assert (ending.status, ending.step.next_step.command) == (Exit.CONFLICT, "orch down c"), ending
    assert living(home) == ["c-1"], "only `down` ends machines"


def test_a_continued_job_does_not_create_the_machines_again_that_a_down_was_ending() -> None:
    """The unattended engine gets the lease between the announcement of `down` and its work, or after its death."""
    home = SimHome(
        InMemory(Scenario(durations=Durations(create=4.0, end=2.0, contact=0.01, jitter=0.0)), ManualClock())
    )
    with home.access.open() as cloud:
        cloud.set_program("*", Program(seconds=60.0))
    drive_cluster(sim_launch(sim_task()), Listener(), services=home.services(), follow=False)
    with open_store(load_paths(), home.services()) as store:
        (cluster,) = store.clusters()
        (job,) = store.jobs(cluster)
        store.set_desired_state(cluster, "down")
    ready = replace(commands.prepare_continuation("c", job), continued_uid=cluster.uid)
    ending = drive_cluster(ready, Listener(), services=home.services())
    assert isinstance(ending.step, GiveUp) and ending.status == Exit.INTERRUPTED
    assert living(home) == []
    with open_store(load_paths(), home.services()) as store:
        assert store.clusters() == ()
