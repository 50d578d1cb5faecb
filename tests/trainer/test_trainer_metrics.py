"""Metrics and the heartbeat: nothing is lost in an outage, nothing is written over, nothing is swallowed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trainer.checkpoint.store import open_store
from trainer.console import Console
from trainer.environment import World
from trainer.errors import StorageError
from trainer.heartbeat import Heartbeat
from trainer.metrics import MetricsLog, StepRecord


def record(step: int) -> StepRecord:
    return StepRecord(
        step=step,
        loss=0.1,
        loss_hex=(0.1).hex(),
        lr=1e-3,
        grad_norm=1.0,
        tokens=step,
        tokens_per_s=41_000.4,
        step_s=0.1,
        data_s=0.0,
        checkpoint_stall_s=0.0,
        mfu=None,
        mfu_formula="",
        time="2026-11-20T18:30:00Z",
        attempt=1,
        rank=0,
        run_id="r",
    )


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def parts(run: Path) -> list[list[int]]:
    folder = run / "metrics/attempt-0001"
    return [[json.loads(line)["step"] for line in p.read_text().splitlines()] for p in sorted(folder.glob("part-*"))]


def test_lines_wait_out_an_outage_in_order(tmp_path: Path) -> None:
    run, notes = tmp_path / "run", list[str]()
    store = open_store(str(run), create=True)
    (run / "metrics").write_text("in the way")
    with MetricsLog(None, store, 1, notes.append) as log:
        log.write(record(1))
        log.flush()
        until(lambda: notes)
        log.write(record(2))
        (run / "metrics").unlink()
    assert "metrics are kept back" in notes[0]
    assert [step for part in parts(run) for step in part] == [1, 2]


def test_an_outage_to_the_end_is_an_error(tmp_path: Path) -> None:
    run = tmp_path / "run"
    store = open_store(str(run), create=True)
    (run / "metrics").write_text("in the way")
    with pytest.raises(StorageError, match="metrics"), MetricsLog(None, store, 1, lambda _: None) as log:
        log.write(record(1))


def test_the_first_error_is_the_one_that_is_shown(tmp_path: Path) -> None:
    run = tmp_path / "run"
    store = open_store(str(run), create=True)
    (run / "metrics").write_text("in the way")
    with pytest.raises(KeyError, match="first"), MetricsLog(None, store, 1, lambda _: None) as log:
        log.write(record(1))
        raise KeyError("first")


def test_parts_of_an_earlier_start_of_the_attempt_are_kept(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), create=True)
    for step in (1, 2):
        with MetricsLog(None, store, 1, lambda _: None) as log:
            log.write(record(step))
    assert parts(tmp_path) == [[1], [2]]


def test_a_local_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(StorageError, match=r"metrics\.file="),
        MetricsLog(tmp_path / "file/below", None, 1, lambda _: None) as log,
    ):
        log.write(record(1))


def test_the_line_for_people() -> None:
    assert record(120).for_people(200) == "step 120/200  loss 0.1000  lr 1.00e-03  41,000 tok/s  grad 1.00"


def test_a_heartbeat_is_written_at_most_once_a_second_and_at_the_end(tmp_path: Path) -> None:
    beat = Heartbeat(tmp_path / "beat", World(rank=3), Console(World()))
    for step in range(1, 200):
        beat.beat(step)
    first = json.loads((tmp_path / "beat").read_text())
    assert first["rank"] == 3
    assert first["step"] < 199, "each step would have been too often"
    beat.beat(200, final=True)
    assert json.loads((tmp_path / "beat").read_text())["step"] == 200
    assert [path.name for path in tmp_path.iterdir()] == ["beat"]


def test_ranks_of_one_host_have_heartbeats_of_their_own(tmp_path: Path) -> None:
    Heartbeat(tmp_path / "beat", World(rank=9, local_rank=1), Console(World())).beat(1)
    assert [path.name for path in tmp_path.iterdir()] == ["beat.1"]


def test_a_heartbeat_that_cannot_be_written_is_said_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    beat = Heartbeat(tmp_path / "absent/beat", World(rank=1), Console(World()))
    beat.beat(1)
    beat.beat(2, final=True)
    assert capfd.readouterr().out.count("note: no heartbeat from rank 1") == 1
