"""Runs on a mixture of sources: the same rows on any world and after a kill, its shares in metrics and manifest."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from trainer_ranks import Launcher

EVAL = ("eval.every=6", "eval.batches=1", "eval.share=0.1")


@pytest.fixture
def words(corpus: Path) -> tuple[str, ...]:
    """Two sources, of which the second is passed over several times."""
    return (f"data={corpus}/part0.txt,{corpus}/part1.txt", "data.weights=0.6,0.4", "batch=12", "seq_len=128")


def _sources(place: Path, step: int) -> list[dict[str, object]]:
    (manifest,) = place.glob(f"step-{step:08d}*/manifest.json")
    found: list[dict[str, object]] = json.loads(manifest.read_text())["data"]["sources"]
    return found


@pytest.mark.slow
def test_a_mixture_is_the_same_on_any_world_and_after_a_kill(
    launch: Launcher, words: tuple[str, ...], tmp_path: Path
) -> None:
    place = tmp_path / "run/checkpoints"
    whole = launch.toy(1, "steps=30", *words, *EVAL, f"checkpoint.uri={tmp_path}/whole/checkpoints").ok()
    killed = launch.toy(
        3,
        "steps=30",
        *words,
        *EVAL,
        f"checkpoint.uri={place}",
        "checkpoint.every=5",
        environment={"TOY_SECONDS": "0.1"},
    )
    killed.wait_for("step 11/30")
    for rank in range(3):
        killed.signal(rank, signal.SIGKILL)
    killed.wait()
    resumed = launch.toy(2, "steps=30", *words, *EVAL, f"checkpoint.uri={place}").ok()
    assert "resumed from step" in resumed.text(0)
    assert {**killed.losses(), **resumed.losses()} == whole.losses()
    last, again = whole.metrics()[-1], resumed.metrics()[-1]
    assert last["sources"] == again["sources"]
    assert last["epochs"] == max(source["epochs"] for source in last["sources"]) > 1
    assert sum(source["rows"] for source in last["sources"]) == 360
    assert [source["share"] for source in last["sources"]] == pytest.approx([0.6, 0.4], abs=0.03)
    first, second = last["eval_losses"].values()
    assert last["eval_loss"] == pytest.approx(0.6 * first + 0.4 * second)
    assert last["eval_losses"] == again["eval_losses"]
    rows = [source["rows"] for source in last["sources"]]
    for folder in (place, tmp_path / "whole/checkpoints"):
        assert [source["position"] for source in _sources(folder, 30)] == rows
    assert "read so far:" in whole.text(0)


def test_another_mixture_is_refused_when_a_run_resumes(
    launch: Launcher, words: tuple[str, ...], tmp_path: Path
) -> None:
    place = f"checkpoint.uri={tmp_path}/run/checkpoints"
    launch.toy(1, "steps=2", *words, place).ok()
    refused = launch.toy(1, "steps=4", *words, "data.weights=0.5,0.5", place)
    assert refused.wait() == [2]
    assert "data.weights 3:2 -> 1:1" in refused.text()
    accepted = launch.toy(1, "steps=4", *words, "data.weights=0.5,0.5", "data.allow_change=true", place).ok()
    assert "note: data.weights 3:2 -> 1:1; the order of the data is another from here on" in accepted.text()


def test_more_epochs_than_allowed_are_refused_before_the_first_step(launch: Launcher, words: tuple[str, ...]) -> None:
    refused = launch.toy(1, "steps=1000", *words, "data.epochs=1")
    assert refused.wait() == [2]
    assert "data.epochs=1: give steps=" in refused.text()
