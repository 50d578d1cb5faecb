"""A person's clusters come into a team's store: killed anywhere, no installation ends the other's machines."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import traceback
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from crash_matrix import distinct, live_of, programs, tracked
from crash_verbs import CLUSTER, down, matrix_folder, nothing_yet, reap, recover, task, up
from support.driving import Listener
from support.postgres import PostgresServer, postgres_server
from support.simulated import Points, SharedClock, SimHome, durable, sim_launch, use_home

from orchestrator.engine.operations.end_unrecorded import end_unrecorded
from orchestrator.engine.state.recorded import open_reader
from orchestrator.simulator.programs import Program
from orchestrator.store.failures import StoreError
from orchestrator.store.import_changes import ImportChanges, open_source, read_source, refuse_import
from orchestrator.store.integrity import find_store_faults
from orchestrator.store.location import Location, describe_location
from orchestrator.store.sealing import mark_moved, seal
from orchestrator.store.store import Store

pytestmark = [pytest.mark.promise("P8"), pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@dataclass
class Handover:
    """A laptop and a team, with a store each, that rent machines in one account of a simulated cloud."""

    root: Path
    server: str | None
    clock: SharedClock = field(default_factory=SharedClock)

    @property
    def file(self) -> Path:
        return self.root / "laptop" / "home" / "state" / "orch.db"

    @property
    def target(self) -> Location:
        return self.server or self.root / "team" / "home" / "state" / "orch.db"

    def laptop(self) -> SimHome:
        return self._home("laptop", None)

    def team(self, points: Points | None = None) -> SimHome:
        return self._home("team", self.server, points)

    def _home(self, name: str, server: str | None, points: Points | None = None) -> SimHome:
        use_home(self.root / name, server)
        return SimHome(durable(self.root, self.clock), points or Points())

    def bring(self, points: Points) -> None:
        """Do as `orch store import`."""
        with self.team(points).points.commits():
            refuse_import(self.file, self.target, self.root / "team", wait=False)
            with closing(open_source(self.file, self.clock.now())) as source:
                with ImportChanges(self.target, doing="orch store import") as store:
                    store.refuse_same_slices(read_source(source))
                    seal(source, describe_location(self.target))
                    store.import_records(read_source(source))
                mark_moved(source)

    def killed_at(self, deadly: int) -> str | None:
        """Bring it in a child that kills itself at a point; return the point's name, or None if it came through."""
        said = self.root / "said"
        said.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            try:

                def strike(name: str) -> None:
                    said.write_text(name)
                    os.kill(os.getpid(), signal.SIGKILL)

                self.bring(Points(strike, deadly))
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
        return said.read_text() if os.WIFSIGNALED(status) else None

    def living(self) -> set[str]:
        with self.laptop().access.open() as cloud:
            return {name for name in live_of(cloud) if name.startswith(CLUSTER)}

    def owners(self) -> list[str]:
        """Return the installations whose commands may end the machines."""
        found: list[str] = []
        self.team()
        if tracked():
            found.append("team")
        self.laptop()
        with open_reader() as reader:
            if reader.imported_into() is None:
                found.append("laptop")
        return found

    def sweep_both(self) -> None:
        """Sweep as each of the two, and take down as a laptop whose store cannot be written: nothing may end."""
        reap(self.team())
        if "laptop" in self.owners():
            reap(self.laptop())
            return
        home = self.laptop()
        with pytest.raises(StoreError, match="were imported into"):
            reap(home)
        with pytest.raises(StoreError, match="were imported into") as refused:
            down(home)
        with pytest.raises(StoreError, match="were imported into"):
            end_unrecorded(CLUSTER, refused.value, Listener())


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def handovers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Iterator[Handover]]:
    """Return a laptop and a team, as often as they are asked for."""

    def make(folder: Path) -> Iterator[Handover]:
        for number in itertools.count():
            shutil.rmtree(folder / str(number - 1), ignore_errors=True)
            server: PostgresServer | None = (
                request.getfixturevalue("postgres") if request.param == "PostgreSQL" else None
            )
            yield Handover(folder / str(number), server.new_store() if server is not None else None)

    with matrix_folder(monkeypatch) as folder:
        yield make(folder)


def start_program(home: SimHome) -> None:
    """Leave a job on the hosts whose program runs, and no command that follows it."""
    nothing_yet(home)
    with home.access.open() as cloud:
        cloud.set_program("*", Program(seconds=60.0))
    home.drive(sim_launch(task(), home.candidate(2)), follow=False)


@pytest.mark.slow
@pytest.mark.parametrize("state", ["idle", "running"])
def test_a_handover_that_is_killed_anywhere_leaves_one_owner(handovers: Iterator[Handover], state: str) -> None:
    (up if state == "idle" else start_program)((one := next(handovers)).laptop())
    one.bring(points := Points())
    killed: list[str] = []
    for deadly in [*distinct(points.names), len(points.names) + 1]:
        one = next(handovers)
        (up if state == "idle" else start_program)(one.laptop())
        machines = one.living()
        assert machines
        with open_reader() as reader:
            (job,) = reader.jobs(reader.clusters()[0])
        assert (job.state == "ended") is (state == "idle")
        name = one.killed_at(deadly)
        killed.append(name or "")
        assert len(one.owners()) <= 1, name
        one.sweep_both()
        assert one.living() == machines, f"killed {name}"
        if name is not None:
            one.bring(Points())
            assert one.owners() == ["team"], name
            one.sweep_both()
            assert one.living() == machines, f"killed {name}, and repeated"
        home = one.team()
        with open_reader() as reader:
            (cluster,) = reader.clusters()
            assert cluster.name == CLUSTER and reader.jobs(cluster) == (job,), "its history came, too"
        if state == "running":
            recover(home)
            with open_reader() as reader:
                assert [(job.state, job.code) for job in reader.jobs(cluster)] == [("ended", "ok")]
            with home.access.open() as cloud:
                assert set(programs(cloud).values()) == {1}, "it ran on, and was not started again"
        down(home)
        home.pass_time(1.0)
        assert one.living() == set()
        assert find_store_faults(one.target) == ()
    assert {"after commit seal", "after commit import_records", "after commit mark_moved", ""} <= set(killed), killed


def test_a_folder_comes_into_either_database(handovers: Iterator[Handover]) -> None:
    one = next(handovers)
    up(one.laptop())
    machines = one.living()
    with Store(one.target) as store:
        mine = store.open_cluster(CLUSTER, "that of the team")
    one.bring(Points())
    one.sweep_both()
    assert one.living() == machines
    with Store(one.target) as store:
        assert [cluster.name for cluster in store.clusters()] == [CLUSTER, f"{CLUSTER}-2"]
        assert store.cluster(CLUSTER) == mine
    with pytest.raises(StoreError, match="were imported into"):
        refuse_import(one.file, one.root / "another.db", one.root, wait=False)
    assert not (one.root / "another.db").exists(), "nothing was changed"
