"""orch_run: a wrong argument is a ConfigError, before anything is written."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from program_crash import open_run

from trainer.errors import ConfigError
from trainer.program import init
from trainer.program.arguments import parse_numbers, parse_whole


class Whole:
    """As numpy's and torch's whole numbers."""

    def __index__(self) -> int:
        return 7


WRONG = [math.nan, 7.5, 7.0, "7", True, None, -1, 2**70, 10**5000, [7]]


@pytest.mark.parametrize("value", WRONG, ids=range(len(WRONG)))
def test_a_step_is_a_whole_number(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"step=.*: a whole number from 1"):
        parse_whole("step", value, 1)


def test_whole_numbers_of_other_libraries_are_taken() -> None:
    assert parse_whole("step", Whole(), 1) == 7 and parse_whole("step", 0, 0) == 0


METRICS: list[Any] = [{"loss": None}, {"loss": 10**400}, {"loss": 10**5000}, {"loss": [1]}, {"loss": "1"}, {1: 1}, [1]]


@pytest.mark.parametrize("metrics", METRICS, ids=range(len(METRICS)))
def test_metrics_are_numbers(metrics: Any) -> None:
    with pytest.raises(ConfigError, match="heartbeat"):
        parse_numbers(metrics)
    assert parse_numbers({"loss": math.inf, "tokens": Whole()}) == {"loss": None, "tokens": 7.0}


def test_calls_refuse_them(tmp_path: Path) -> None:
    run = open_run(f"file://{tmp_path}/bucket", tmp_path, epoch=1)
    folder = run.new_folder()
    (folder / "state").touch()
    wrong: Any
    for wrong in (math.nan, "7", 7.5, 2**70):
        with pytest.raises(ConfigError, match="step"):
            run.save(folder, wrong)
        with pytest.raises(ConfigError, match="step"):
            run.heartbeat(wrong)
    wrong = {"loss": None}
    with pytest.raises(ConfigError, match="a number"):
        run.heartbeat(1, wrong)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ConfigError, match="JSON"):
        run.save(folder, 1, {"deep": deep})


def test_init_refuses_wrong_numbers(tmp_path: Path) -> None:
    place, wrong = f"file://{tmp_path}/bucket", True
    with pytest.raises(ConfigError, match="keep=True"):
        init(place, keep=wrong, environ={})
    with pytest.raises(ConfigError, match="keep_every=-5"):
        init(place, keep_every=-5, environ={})
    with pytest.raises(ConfigError, match="ORCH_CHECKPOINT_EVERY='x'"):
        init(place, environ={"ORCH_CHECKPOINT_EVERY": "x"})
    assert not (tmp_path / "bucket").exists()
    run = init(place, environ={"ORCH_CHECKPOINT_EVERY": "50"})
    assert run.every == 50
    run.close()
