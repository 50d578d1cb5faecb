"""Profiles: which ranks record, when they begin, a withdrawn request, and a run that fails."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from support.toy_engine import ToyEngine

from trainer.config import Config
from trainer.console import Console
from trainer.engine import Numbers
from trainer.environment import World
from trainer.errors import PeerError
from trainer.profiling import REQUEST, Profiler
from trainer.tcp_team import SingleProcessTeam


def profiler(folder: Path, rank: int) -> Profiler:
    alone = World()
    engine = ToyEngine(Config(), alone, SingleProcessTeam(alone))
    world = World(rank=rank, size=2)
    return Profiler(folder, engine, world, Console(world))


def test_ranks_that_are_not_requested_record_nothing(tmp_path: Path) -> None:
    (tmp_path / REQUEST).write_text(json.dumps({"id": "p", "steps": 1, "ranks": [0]}))
    for rank in (1, 0):
        one = profiler(tmp_path, rank)
        one.poll(1)
        one.poll(2)
    assert sorted(path.name for path in (tmp_path / "profiles/p").iterdir()) == ["done-0.json", "rank-0"]


@pytest.mark.promise("P41")
@pytest.mark.parametrize("steps", [1, 900])
def test_withdrawn_request_discards_the_recording(tmp_path: Path, steps: int) -> None:
    (tmp_path / REQUEST).write_text(json.dumps({"id": "p", "steps": steps}))
    one = profiler(tmp_path, 0)
    one.poll(1)
    assert (tmp_path / "profiles/p/rank-0").is_dir()
    (tmp_path / REQUEST).unlink()
    time.sleep(0.6)
    one.poll(2)
    assert not (tmp_path / "profiles/p").exists()
    one.close(3)
    assert not (tmp_path / "profiles/p").exists(), "nothing is recorded any more"


def test_ranks_begin_at_the_requested_time_unless_it_is_of_another_clock(tmp_path: Path) -> None:
    at = time.time() + 0.3
    (tmp_path / REQUEST).write_text(json.dumps({"id": "p", "steps": 1, "at": at}))
    seen, late = profiler(tmp_path, 0), profiler(tmp_path, 1)
    seen.poll(1)
    assert not (tmp_path / "profiles").exists()
    time.sleep(0.3)
    for one in (seen, late):  # one has known of it, one sees it only now
        one.poll(2)
    assert sorted(path.name for path in (tmp_path / "profiles/p").iterdir()) == ["rank-0", "rank-1"]
    seen.close(3)
    (tmp_path / REQUEST).write_text(json.dumps({"id": "q", "steps": 1, "at": at + 3600}))
    profiler(tmp_path, 0).poll(4)
    assert (tmp_path / "profiles/q/rank-0").is_dir()


def test_lost_rank_fails_the_run_and_not_the_profile(tmp_path: Path) -> None:
    class Lost(ToyEngine):
        def numbers(self) -> Numbers:
            raise PeerError("rank 0 lost rank 1")

    world = World()
    one = Profiler(tmp_path, Lost(Config(), world, SingleProcessTeam(world)), world, Console(world))
    (tmp_path / REQUEST).write_text(json.dumps({"id": "p", "steps": 1}))
    one.poll(1)
    with pytest.raises(PeerError):
        one.poll(2)
    assert not (tmp_path / "profiles/p/failed-0.json").exists()
