"""Evaluations on rows that are not trained on, and the best checkpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trainer_ranks import SMALL, Launcher

from trainer.checkpoint.manifest import Manifest, StepFolder
from trainer.checkpoint.pointer import advance_latest, prune_checkpoints
from trainer.checkpoint.store import open_store
from trainer.config import Config
from trainer.data.corpus import open_corpus
from trainer.data.held_out import hold_out_rows
from trainer.errors import DataError
from trainer.options import parse_config
from trainer.order import RowOrder
from trainer.shape.mesh import RowShare

EVAL = ("eval.every=4", "eval.batches=2", "eval.share=0.1")


def _config(corpus: Path, *words: str) -> Config:
    return parse_config([*SMALL, f"data={corpus}", *words])


def _ignore(_line: str) -> None:
    """Nothing is to be said."""


def test_no_row_that_is_evaluated_is_trained_on(corpus: Path) -> None:
    config = _config(corpus, "eval.every=1", "eval.batches=1000", "eval.share=0.25")
    text = open_corpus(config.data, _ignore)
    trained, rows = hold_out_rows(config, text, _ignore)
    assert rows is not None
    order = RowOrder(total=trained, batch=config.batch, seq_len=config.seq_len, seed=0)
    last = max(order.positions(step, 0, config.batch).max() for step in range(order.windows // config.batch + 1))
    assert last + config.seq_len == trained - 1 == rows.first, "the first evaluated token is the last one predicted"
    assert 0.24 < 1 - trained / text.total_tokens < 0.26
    assert rows.batches * config.batch <= rows.windows < (rows.batches + 1) * config.batch
    read = np.concatenate([rows.read(batch, RowShare(0, 1, 1)) for batch in range(rows.batches)])
    end = text.read(np.array([rows.first]), config.seq_len + 1)
    assert (read[0] == end[0]).all()


def test_each_rank_reads_its_rows_of_the_same_batches(corpus: Path) -> None:
    config = _config(corpus, *EVAL)
    _, rows = hold_out_rows(config, open_corpus(config.data, _ignore), _ignore)
    assert rows is not None
    alone = rows.read(1, RowShare(0, 1, 1))
    assert (np.concatenate([rows.read(1, RowShare(rank, 1, 4)) for rank in range(4)]) == alone).all()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("eval.share=0.001",), "raise eval.share"),
        (("batch=100000",), "one batch needs 3,200,000"),
    ],
)
def test_too_little_text_is_refused_with_what_helps(corpus: Path, words: tuple[str, ...], said: str) -> None:
    config = _config(corpus, "eval.every=1", *words)
    with pytest.raises(DataError, match=said):
        hold_out_rows(config, open_corpus(config.data, _ignore), _ignore)


def test_evaluations_change_no_step_and_are_the_same_on_two_ranks(launch: Launcher, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("the sum of one and two is three\n" * 200)
    plain = launch.toy(1, "steps=10").ok()
    one = launch.toy(1, "steps=10", *EVAL, f"eval.source={other}").ok()
    two = launch.toy(2, "steps=10", *EVAL, f"eval.source={other}").ok()
    assert plain.losses() == one.losses() == two.losses()
    evaluated = {record["step"]: record["eval_loss"] for record in one.metrics() if record["eval_loss"] is not None}
    assert sorted(evaluated) == [4, 8, 10]
    assert evaluated == {r["step"]: r["eval_loss"] for r in two.metrics() if r["eval_loss"] is not None}
    assert all(record["eval_loss"] is None for record in plain.metrics())
    assert f"evaluated after step 8: loss {evaluated[8]:.4f}" in one.text(0)


def test_held_out_rows_stay_held_out_when_a_run_resumes(launch: Launcher, tmp_path: Path) -> None:
    place = (f"checkpoint.uri={tmp_path}/run/checkpoints", "checkpoint.every=4")
    launch.toy(1, "steps=4", *place, *EVAL).ok()
    refused = launch.toy(1, "steps=8", *place)
    assert refused.wait() == [3], refused.text()
    assert "corpus tokens that are trained on 80225 -> 89151" in refused.text()
    assert (
        "eval.every=0 eval.share=0.01, but the checkpoint was made with eval.every=4 eval.share=0.1" in refused.text()
    )
    assert "give eval.every=4 eval.share=0.1, or accept" in refused.text()
    assert "resumed from step 4" in launch.toy(1, "steps=8", *place, *EVAL).ok().text(0)


def test_the_best_checkpoint_is_kept_beside_the_newest(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), create=True)
    losses = {2: 3.0, 4: 1.5, 6: 1.5, 8: 2.5, 10: None, 12: 2.0}
    known: dict[StepFolder, float | None] = {}
    for step, loss in losses.items():
        folder = StepFolder(step)
        manifest: dict[str, Any] = {
            "format": 2, "step": step, "run_id": "run", "attempt": 1, "epoch": 0, "world": 1, "eval_loss": loss,
            "time": "2026-11-20T18:30:00Z", "weights_only": False, "data": None, "config": {},
            "parts": [{"name": "part-00000-000.safetensors", "size": 8, "header": 0, "sha256": "0" * 64}],
        }  # fmt: skip
        path = tmp_path / folder.manifest
        path.parent.mkdir()
        path.write_text(json.dumps(manifest))
        assert Manifest.from_json(path.read_bytes(), folder).eval_loss == loss
        advance_latest(store, folder)
        prune_checkpoints(store, 1, losses=known)
    assert known == {StepFolder(step): loss for step, loss in losses.items()}, "each was read once"
    assert sorted(name for name in store.list_folders() if StepFolder.parse(name)) == ["step-00000006", "step-00000012"]
    (tmp_path / "step-00000006" / "manifest.json").write_text("damaged")
    prune_checkpoints(store, 1, losses={})
    assert [name for name in store.list_folders() if StepFolder.parse(name)] == ["step-00000012"]


def test_a_checkpoint_is_evaluated_by_itself_as_in_its_run(launch: Launcher, tmp_path: Path) -> None:
    place = tmp_path / "run/checkpoints"
    run = launch(1, "steps=4", f"checkpoint.uri={place}", *EVAL).ok()
    (expected,) = [record["eval_loss"] for record in run.metrics() if record["eval_loss"] is not None]
    command = [sys.executable, "-m", "trainer", "eval", str(place), "device=cpu", "threads=1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ}, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["step"], found["loss"]) == (4, pytest.approx(expected, abs=1e-6))
    assert found["tokens"] == 2 * 8 * 32


def test_text_that_a_checkpoint_was_trained_on_is_refused(launch: Launcher, tmp_path: Path) -> None:
    place = tmp_path / "run/checkpoints"
    launch(1, "steps=2", f"checkpoint.uri={place}").ok()
    other = tmp_path / "other.txt"
    other.write_text("the sum of one and two is three\n" * 200)
    command = [sys.executable, "-m", "trainer", "eval", str(place), "device=cpu", "threads=1"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2, refused.stdout
    assert "name other text as eval.source" in refused.stderr
    done = subprocess.run([*command, f"eval.source={other}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "that are not trained on" in done.stdout
