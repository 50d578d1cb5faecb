"""Killed at every point where it could matter and repeated, a command ends as if nothing had happened."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from crash_matrix import Database, empty_store
from support.driving import fulfil
from support.lanes import by_lane
from support.proof import report

from orchestrator.engine.preparation import commands
from orchestrator.engine.state.recorded import open_reader
from orchestrator.plan.observed import FINAL_STATES
from orchestrator.providers.registry import open_provider

CHILD = Path(__file__).with_name("crashing_launch.py")
TESTS = Path(__file__).parent.parent

# Every third point, for the matrix on the simulated cloud takes them all; a quarter of these but in the full lane.
STRIDE = by_lane(12, 3)


@pytest.fixture(params=get_args(Database))
def database(home: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Database]:
    """The store of the test: in the home's folder, or in an own PostgreSQL server."""
    with empty_store(request.param) as address, monkeypatch.context() as patch:
        if address is not None:
            patch.setenv("ORCH_STORE", address)
        yield request.param


def report_kills(database: Database, kills: int) -> None:
    if database == "SQLite":
        report("SIGKILL at every third crash point of launch and down on real local hosts", {"kills": kills})
    else:
        report("SIGKILL at every third crash point on real local hosts, on PostgreSQL", {"kills": kills})


def child(verb: str, point: int, command: str, workdir: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}"}
    argv = [sys.executable, str(CHILD), verb, str(point), command, str(workdir)]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120, check=False)


def owned_slices(home: Path) -> list[str]:
    with open_reader() as reader:
        installation = reader.installation()
    if installation is None:
        return []
    return [found.name for found in open_provider("local", home / "state").owned(installation)]


def recorded_slices() -> list[str]:
    with open_reader() as reader:
        clusters = reader.clusters()
        return [i.name for cluster in clusters for i in reader.intents(cluster) if i.state not in FINAL_STATES]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_launch_killed_at_any_point_continues_when_repeated(home: Path, tmp_path: Path, database: Database) -> None:
    work, marks = tmp_path / "work", tmp_path / "marks"
    work.mkdir()
    (work / "file").write_text("x")
    command = f'echo "$ORCH_RANK" >> {marks}'
    point = 1 - STRIDE
    while True:
        point += STRIDE
        killed = child("launch", point, command, work)
        finished = killed.returncode == 0
        if not finished:
            assert killed.returncode == -signal.SIGKILL, killed.stderr
            again = child("launch", 0, command, work)
            assert "status 0" in again.stdout, f"point {point}: {again.stdout}{again.stderr}"
        # Exactly one slice, and it is the recorded one. The program ran once on each host, or, when the kill came
        # after its end was recorded, once more because the second command is a new launch.
        assert owned_slices(home) == recorded_slices(), f"point {point}"
        assert len(owned_slices(home)) == 1, f"point {point}"
        ranks = sorted(marks.read_text().split())
        assert ranks in (["0", "1"], ["0", "0", "1", "1"]), f"point {point}: {ranks}"
        with open_reader() as reader:
            (cluster,) = reader.clusters()
            jobs = reader.jobs(cluster)
        assert len(ranks) == 2 * len(jobs), f"point {point}: the program ran {ranks} in {len(jobs)} job(s)"
        marks.unlink()
        fulfil(commands.prepare_down("c"))
        assert owned_slices(home) == [], f"point {point}"
        if finished:
            break
    assert point > 15, "the matrix is suspiciously small"
    report_kills(database, (point - 1) // STRIDE)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_down_killed_at_any_point_is_finished_by_the_next(home: Path, tmp_path: Path, database: Database) -> None:
    work = tmp_path / "work"
    work.mkdir()
    point = 1 - STRIDE
    finished = False
    while not finished:
        point += STRIDE
        assert "status 0" in child("launch", 0, "true", work).stdout
        killed = child("down", point, "", work)
        finished = killed.returncode == 0
        if finished:
            assert re.search(r"points \d+ status 0", killed.stdout)
        else:
            assert killed.returncode == -signal.SIGKILL, killed.stderr
            with open_reader() as reader:
                left = reader.clusters()
            if left:
                assert child("down", 0, "", work).returncode == 0, f"point {point}"
        assert owned_slices(home) == [], f"point {point}"
        assert recorded_slices() == [], f"point {point}"
    assert point > 5, "the matrix is suspiciously small"
    report_kills(database, (point - 1) // STRIDE)
