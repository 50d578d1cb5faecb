"""A profile: whose, from when on, taken back while it is recorded, and in a run that fails."""

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
from trainer.tcp_team import Alone


def profiler(folder: Path, rank: int) -> Profiler:
    alone = World()
    engine = ToyEngine(Config(), alone, Alone(alone))
    world = World(rank=rank, size=2)
    return Profiler(folder, engine, world, Console(world))


def test_ranks_that_are_not_asked_record_nothing(tmp_path: Path) -> None:
    (tmp_path / REQUEST).write_text(json.dumps({"id": "p", "steps": 1, "ranks": [0]}))
    for rank in (1, 0):
        one = profiler(tmp_path, rank)
        one.between(1)
        one.between(2)
    assert sorted(path.name for path in (tmp_path / "profiles/p").iterdir()) == ["done-0.json", "rank-0"]


@pytest.mark.promise("P41")
@pytest.mark.parametrize("steps", [1, 900])
def test_a_request_that_is_taken_back_ends_the_recording_without_a_trace(tmp_path: Path, steps: int) -> None:
    (tmp_path / REQUEST).write_text(json.dumps({"id": "p", "steps": steps}))
    one = profiler(tmp_path, 0)
    one.between(1)
    assert (tmp_path / "profiles/p/rank-0").is_dir()
    (tmp_path / REQUEST).unlink()
    time.sleep(0.6)
    one.between(2)
    assert not (tmp_path / "profiles/p").exists()
    one.close(3)
    assert not (tmp_path / "profiles/p").exists(), "nothing is recorded any more"


def test_ranks_begin_at_the_moment_that_was_named_unless_it_is_of_another_clock(tmp_path: Path) -> None:
    at = time.time() + 0.3
    (tmp_path / REQUEST).write_text(json.dumps({"id": "p", "steps": 1, "at": at}))
    seen, late = profiler(tmp_path, 0), profiler(tmp_path, 1)
    seen.between(1)
    assert not (tmp_path / "profiles").exists()
    time.sleep(0.3)
    for one in (seen, late):  # one has known of it, one sees it only now
        one.between(2)
    assert sorted(path.name for path in (tmp_path / "profiles/p").iterdir()) == ["rank-0", "rank-1"]
    seen.close(3)
    (tmp_path / REQUEST).write_text(json.dumps({"id": "q", "steps": 1, "at": at + 3600}))
    profiler(tmp_path, 0).between(4)
    assert (tmp_path / "profiles/q/rank-0").is_dir()


def test_a_rank_that_is_lost_while_it_is_recorded_is_no_failed_profile(tmp_path: Path) -> None:
    class Lost(ToyEngine):
        def numbers(self) -> Numbers:
            raise PeerError("rank 0 lost rank 1")

    world = World()
    one = Profiler(tmp_path, Lost(Config(), world, Alone(world)), world, Console(world))
    (tmp_path / REQUEST).write_text(json.dumps({"id": "p", "steps": 1}))
    one.between(1)
    with pytest.raises(PeerError):
        one.between(2)
    assert not (tmp_path / "profiles/p/failed-0.json").exists()
