"""The heartbeat: a file that is complete at any time, and whose failure never ends a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainer.console import Console
from trainer.environment import World
from trainer.heartbeat import Heartbeat


def test_heartbeat_is_written_at_most_once_a_second_and_at_the_end(tmp_path: Path) -> None:
    beat = Heartbeat(tmp_path / "beat", World(rank=3), Console(World()).print_on_every)
    for step in range(1, 200):
        beat.beat(step)
    first = json.loads((tmp_path / "beat").read_text())
    assert first["rank"] == 3
    assert first["step"] < 199, "each step would have been too often"
    beat.beat(200, final=True)
    assert json.loads((tmp_path / "beat").read_text())["step"] == 200
    assert [path.name for path in tmp_path.iterdir()] == ["beat"]


def test_each_rank_of_a_host_has_its_own_heartbeat(tmp_path: Path) -> None:
    Heartbeat(tmp_path / "beat", World(rank=9, local_rank=1), Console(World()).print_on_every).beat(1)
    assert [path.name for path in tmp_path.iterdir()] == ["beat.1"]


def test_unwritable_heartbeat_is_reported_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    beat = Heartbeat(tmp_path / "absent/beat", World(rank=1), Console(World()).print_on_every)
    beat.beat(1)
    beat.beat(2, final=True)
    assert capfd.readouterr().out.count("note: no heartbeat from rank 1") == 1
