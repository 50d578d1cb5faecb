"""A profile that is for some ranks only, and one that is taken back while it is recorded."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from support.toy_engine import ToyEngine

from trainer.config import Config
from trainer.console import Console
from trainer.environment import World
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
