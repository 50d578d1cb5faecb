"""Steps of a rehearsed program that only prints them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.engine.rehearsal.rehearse import check_step_pattern
from orchestrator.engine.rehearsal.resumption import HeartbeatWatch, LogSteps
from orchestrator.errors import UserError


def test_the_last_complete_line_with_a_step_becomes_the_heartbeat(tmp_path: Path) -> None:
    job = tmp_path / "local" / "one" / "hosts" / "0" / "home" / ".orch/hosts/one-1-0-abc/jobs" / "one-1-a2"
    job.mkdir(parents=True)
    log, beat = job / "log", job / "heartbeat"
    steps = LogSteps(tmp_path, re.compile(r"^step (\d+)", re.MULTILINE))
    log.write_text("loading\nstep 1\n")
    steps.write_heartbeats()
    assert beat.read_text() == "1\n"
    with log.open("a") as file:
        file.write("no step 9\nstep 2\nstep 3")  # the last line is still being written
    steps.write_heartbeats()
    assert beat.read_text() == "2\n"
    with log.open("a") as file:
        file.write("0\n")
    steps.write_heartbeats()
    assert beat.read_text() == "30\n"


@pytest.mark.parametrize("pattern", [r"step (\S+)", r"step( \d+)?"])
def test_what_a_group_matches_beside_numbers_is_no_step(tmp_path: Path, pattern: str) -> None:
    job = tmp_path / "local" / "one" / "hosts" / "0" / "home" / ".orch/hosts/one-1-0-abc/jobs" / "one-1-a2"
    job.mkdir(parents=True)
    (job / "log").write_text(f"step one\nstep {'9' * 5000}\n")
    LogSteps(tmp_path, re.compile(pattern)).write_heartbeats()
    assert not (job / "heartbeat").exists()


@pytest.mark.parametrize("pattern", ["step [0-9]+", "step (", "(s)tep (1)"])
def test_a_pattern_without_exactly_one_group_is_refused(pattern: str) -> None:
    assert check_step_pattern(r"step (\d+)") == r"step (\d+)"
    with pytest.raises(UserError, match="--step-pattern"):
        check_step_pattern(pattern)


def test_a_rehearsal_sees_the_steps_of_the_log(tmp_path: Path) -> None:
    job = tmp_path / "local" / "one" / "hosts" / "0" / "home" / ".orch/hosts/one-1-0-abc/jobs" / "one-1-a2"
    job.mkdir(parents=True)
    (job / "log").write_text("step 4\n")
    with HeartbeatWatch(tmp_path, tmp_path / "bucket", re.compile(r"step (\d+)")) as watch:
        for _ in range(600):
            if watch.attempts or watch._stop.wait(0.05):
                break
    assert watch.attempts[2].first == 4 and not watch.attempts[2].found_saved
