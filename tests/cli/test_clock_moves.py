"""A laptop whose clock is two days wrong: that ends no program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TASK = """
name: mine
resources: {infra: "local:1"}
limits: {max_hours: 4}
run: echo begun; sleep 2; echo ended
"""
SLOW = TASK.replace("sleep 2", "sleep 6")
WRONG = "import time\n_true = time.time\ntime.time = lambda: _true() {} 2 * 86400\n"  # as the setting of a computer
A_MINUTE = WRONG.format("-").replace("2 * 86400", "53.7")  # less than what is corrected and reported
IN_CLOUD = TASK.replace("local:1", "gcp/us-west4/us-west4-a").replace("infra", "accelerators: v5litepod-1, infra")

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    for name, wrong in (("ahead", WRONG.format("+")), ("behind", WRONG.format("-")), ("minute", A_MINUTE)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sitecustomize.py").write_text(wrong)
    (tmp_path / "slow.yaml").write_text(SLOW)
    (tmp_path / "task.yaml").write_text(TASK)
    env = {name: value for name, value in os.environ.items() if not name.startswith("ORCH_")}
    env |= {"ORCH_HOME": str(tmp_path / "orch"), "HOME": str(tmp_path)}

    def orch(*words: str, ahead: bool = False, wrong: str = "") -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "orchestrator", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            cwd=tmp_path,
            env=env | ({"PYTHONPATH": str(tmp_path / (wrong or "ahead"))} if ahead or wrong else {}),
        )

    yield orch
    orch("down", "mine", "--yes").communicate(timeout=60)


def test_a_limit_is_not_reached_by_setting_the_clock(start: Start) -> None:
    first = start("launch", "task.yaml")
    assert first.communicate(timeout=90) and first.returncode == 0
    again = start("launch", "task.yaml", ahead=True)
    out, err = again.communicate(timeout=90)
    assert again.returncode == 0, err
    assert "ended" in out and "limit of" not in err
    assert "this computer's clock is 48 h ahead" in err


def test_a_clock_that_is_behind_until_the_clouds_first_answer_makes_no_machine_older(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "cloud.yaml").write_text(IN_CLOUD)
    behind = ["env", f"PYTHONPATH={tmp_path / 'behind'}", sys.executable, "-m", "orchestrator"]
    run = start("simulate", "gcp", "--", *behind, "launch", "cloud.yaml", "--yes", "--down")
    out, err = run.communicate(timeout=120)
    assert run.returncode == 0, err
    assert "ended" in out
    assert "limit of" not in err
    assert "this computer's clock is 48 h behind" in err


def read_seconds(orch: subprocess.Popen[str]) -> float:
    out, err = orch.communicate(timeout=60)
    assert orch.returncode == 0, err
    (run,) = json.loads(out)["runs"]
    return float(run["seconds"])


def wait_for_begin(launch: subprocess.Popen[str]) -> float:
    assert launch.stdout is not None
    while "begun" not in launch.stdout.readline():
        assert launch.poll() is None
    return time.monotonic()


def test_a_setting_that_is_almost_a_minute_behind_makes_no_run_shorter(start: Start) -> None:
    launch = start("launch", "slow.yaml")
    begun = wait_for_begin(launch)
    time.sleep(2)
    seconds = read_seconds(start("runs", "-o", "json", wrong="minute"))
    assert 2 <= seconds <= time.monotonic() - begun + 10
    assert launch.communicate(timeout=60) and launch.returncode == 0
    assert 6 <= read_seconds(start("runs", "-o", "json", wrong="minute")) < 30


def test_a_run_that_ended_unwatched_took_what_its_host_measured(start: Start) -> None:
    launch = start("launch", "slow.yaml")
    wait_for_begin(launch)
    launch.kill()
    launch.communicate(timeout=60)
    time.sleep(16)  # it ended long before a command sees it
    seen = start("exec", "mine", "--", "true", wrong="minute")
    assert seen.communicate(timeout=60) and seen.returncode == 0
    assert 6 <= read_seconds(start("runs", "-o", "json")) < 11
