"""Complete runs: the same losses on any number of ranks, and after any interruption."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from trainer_ranks import REPOSITORY, SMALL, Launcher, free_port

from trainer.checkpoint.epoch import Epoch
from trainer.config import OptimConfig
from trainer.schedule import learning_rate

TOLERANCE = 2e-5


def test_the_loss_falls_and_is_bitwise_the_same_twice(launch: Launcher) -> None:
    first = launch(1, "steps=12").ok()
    second = launch(1, "steps=12").ok()
    losses = [record["loss"] for record in first.metrics()]
    assert losses[-1] < losses[0] - 0.5
    assert first.losses() == second.losses()
    assert all(float.fromhex(r["loss_hex"]) == r["loss"] for r in first.metrics())


@pytest.mark.promise("P32")
def test_four_ranks_twice_and_resumed_are_bitwise_the_same(launch: Launcher, tmp_path: Path) -> None:
    straight = launch(4, "steps=14").ok()
    place = f"checkpoint.uri={tmp_path}/run/checkpoints"
    launch(4, "steps=14", place, "checkpoint.every=5").ok()
    for name in ("step-00000010-e0001-a0001", "step-00000014-e0001-a0001"):
        (tmp_path / "run/checkpoints" / name / "manifest.json").unlink()
    again = launch(4, "steps=14", place, environment={"ORCH_ATTEMPT": "2"}).ok()
    assert "resumed from step 5 of attempt 1, data position 40 rows" in again.text(0)
    assert min(again.losses()) == 6
    assert again.losses() == {step: loss for step, loss in straight.losses().items() if step > 5}


def test_a_run_resumed_with_other_arithmetic_says_so_in_its_log_and_trains_on(launch: Launcher, tmp_path: Path) -> None:
    place = f"checkpoint.uri={tmp_path}/run/checkpoints"
    launch(1, "steps=3", place).ok()  # dtype=auto: fp32 on processors
    resumed = launch(1, "steps=5", place, "dtype=bf16", "residual=bf16").ok()
    (note,) = [line for line in resumed.text(0).splitlines() if line.startswith("note: dtype=")]
    assert note.startswith("note: dtype=bf16 residual=bf16, but the checkpoint was made with dtype=fp32 residual=fp32;")
    assert sorted(resumed.losses()) == [4, 5]
    assert "note: dtype=" not in launch(1, "steps=6", place, "dtype=bf16", "residual=bf16").ok().text(0)


@pytest.mark.promise("P34")
def test_sigterm_to_one_rank_saves_and_all_exit_75_and_the_curve_continues(launch: Launcher, tmp_path: Path) -> None:
    straight = launch(2, "steps=60").ok()
    place = f"checkpoint.uri={tmp_path}/run/checkpoints"
    stopped = launch(2, "steps=60", place, "checkpoint.every=1000")
    stopped.wait_for("step 10/60")
    stopped.signal(1, signal.SIGTERM)
    assert stopped.wait() == [75, 75], stopped.text()
    done = max(stopped.losses())
    assert f"stopped by SIGTERM after step {done}; checkpoint saved" in stopped.text(0)
    assert 10 <= done < 60
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    resumed = launch(2, "steps=60", place, environment={"ORCH_ATTEMPT": "2"}).ok()
    assert min(resumed.losses()) == done + 1
    assert stopped.losses() | resumed.losses() == straight.losses()
    # With another number of hosts the same rows come in the same order; only the sums are rounded otherwise.
    fewer = launch(1, "steps=60", f"checkpoint.uri={tmp_path}/copy/checkpoints", environment={"ORCH_ATTEMPT": "2"}).ok()
    assert [r["loss"] for r in fewer.metrics()] == pytest.approx([r["loss"] for r in resumed.metrics()], abs=2e-4)


@pytest.mark.promise("P34")
def test_sigterm_without_a_place_to_save_is_distinguished_from_a_saved_stop(launch: Launcher) -> None:
    ranks = launch.toy(1, "steps=100000", environment={"TOY_SECONDS": "0.01"})
    ranks.wait_for("step 3/")
    ranks.signal(0, signal.SIGTERM)
    assert ranks.wait() == [143]
    assert "nothing saved" in ranks.text()


def test_changed_corpus_is_refused_unless_allowed(launch: Launcher, tmp_path: Path) -> None:
    text = tmp_path / "book.txt"
    text.write_text("one two three four five six seven " * 200)
    place = f"checkpoint.uri={tmp_path}/checkpoints"
    launch.toy(1, "steps=4", place, f"data={text}").ok()
    text.write_text(text.read_text() + "more")
    refused = launch.toy(1, "steps=8", place, f"data={text}")
    assert refused.wait() == [3]
    assert "corpus tokens that are trained on 6800 -> 6804" in refused.text()
    allowed = launch.toy(1, "steps=8", place, f"data={text}", "data.allow_change=true").ok()
    assert min(allowed.losses()) == 5


@pytest.mark.promise("P32")
@pytest.mark.parametrize("word", ["model.dim=64", "batch=16"])
def test_another_model_or_order_is_not_resumed_silently(launch: Launcher, tmp_path: Path, word: str) -> None:
    place = f"checkpoint.uri={tmp_path}/checkpoints"
    launch(1, "steps=2", place).ok()
    refused = launch(1, "steps=4", place, word)
    assert refused.wait() == [2]
    assert word.partition("=")[0].removeprefix("model.") in refused.text()


def test_resume_required_and_resume_never(launch: Launcher, tmp_path: Path) -> None:
    place = f"checkpoint.uri={tmp_path}/checkpoints"
    required = launch.toy(1, "steps=2", place, "resume=required")
    assert required.wait() == [10]
    assert "no intact checkpoint" in required.text()
    assert "is checkpoint.uri spelled right?" in required.text()
    assert not (tmp_path / "checkpoints").exists()
    launch.toy(1, "steps=2", place, "resume=never").ok()
    never = launch.toy(1, "steps=2", place, "resume=never")
    assert never.wait() == [2]
    assert "already holds checkpoints" in never.text()


def test_resume_from_a_step_of_this_run_and_of_another(launch: Launcher, tmp_path: Path) -> None:
    first = tmp_path / "first/checkpoints"
    launch.toy(1, "steps=6", f"checkpoint.uri={first}", "checkpoint.every=2").ok()
    named = {"ORCH_RESUME_FROM": f"file://{first}/step-00000004"}
    back = launch.toy(1, "steps=8", f"checkpoint.uri={first}", environment=named)
    assert back.wait() == [2]
    assert "this run has later checkpoints" in back.text()
    second = tmp_path / "second/checkpoints"
    tuned = launch.toy(1, "steps=7", f"checkpoint.uri={second}", environment=named).ok()
    assert min(tuned.losses()) == 5
    further = launch.toy(1, "steps=9", f"checkpoint.uri={second}", environment=named).ok()
    assert min(further.losses()) == 8, "its own checkpoint is further than the one it came from"


def test_a_bucket_that_fails_midway_ends_the_run_with_status_10(launch: Launcher, tmp_path: Path) -> None:
    place = tmp_path / "run/checkpoints"
    ranks = launch.toy(
        2,
        "steps=100000",
        f"checkpoint.uri={place}",
        "checkpoint.every=20",
        "checkpoint.retry_minutes=0.01",
        "checkpoint.failures=2",
        "dist.timeout=20",
        environment={"TOY_SECONDS": "0.01"},
    )
    ranks.wait_for("checkpoint 20 written")
    place.rename(tmp_path / "run/moved")
    place.write_text("a file where the folder was")
    statuses = ranks.wait(timeout=60)
    assert 10 in statuses, ranks.text()
    assert 0 not in statuses
    assert "training continues, and saves again soon (failed saves in a row: 1 of 2)" in ranks.text(0)
    assert "was not written" in ranks.text()


@pytest.mark.promise("P37")
def test_metrics_reach_the_bucket_with_the_same_lines(launch: Launcher, tmp_path: Path) -> None:
    run = tmp_path / "run"
    environment = {
        "ORCH_CHECKPOINT_URI": f"file://{run}/checkpoints",
        "ORCH_RUN_ID": "run-7",
        "ORCH_ATTEMPT": "3",
        "ORCH_HEARTBEAT_FILE": str(tmp_path / "beat"),
    }
    ranks = launch(2, "steps=9", "checkpoint.every=4", environment=environment).ok()
    parts = sorted((run / "metrics/attempt-0003").iterdir())
    assert parts[0].name == "part-00001.jsonl"
    assert "".join(part.read_text() for part in parts) == (ranks.folder / "metrics.jsonl").read_text()
    record = ranks.metrics()[4]
    assert record["step"] == 5
    assert record["tokens"] == 5 * 8 * 32
    assert (record["run_id"], record["attempt"], record["rank"]) == ("run-7", 3, 0)
    assert record["mfu"] is None
    assert record["tokens_per_s"] > 0
    rates = [learning_rate(OptimConfig(warmup=3), 9, step) for step in range(9)]
    assert [line["lr"] for line in ranks.metrics()] == rates
    assert 0 < record["data_s"] < record["step_s"] and 0 < record["compute_s"] < record["step_s"]
    assert json.loads((tmp_path / "beat").read_text())["step"] == 9
    about = json.loads((run / "environment-0003.json").read_text())
    assert [rank["rank"] for rank in about["ranks"]] == [0, 1]
    assert about["versions"]["torch"]


def test_a_loss_that_is_not_a_number_stops_before_it_is_saved(launch: Launcher, tmp_path: Path) -> None:
    ranks = launch(1, "steps=50", "optim.lr=1e30", "grad_clip=0", f"checkpoint.uri={tmp_path}/c", "checkpoint.every=1")
    assert ranks.wait() == [1]
    assert "lower optim.lr" in ranks.text()
    found = re.search(r"at step (\d+): lower", ranks.text())
    assert found is not None
    last = tmp_path / f"c/step-{int(found[1]) - 1:08d}-e0001-a0001/manifest.json"
    assert last.exists() or found[1] == "1", "the upload under way is finished first"


@pytest.mark.promise("P34")
def test_saved_stop_exits_75_also_when_the_metrics_cannot_be_written(launch: Launcher, tmp_path: Path) -> None:
    words = ("steps=100000", f"checkpoint.uri={tmp_path}/c", "metrics.file=/dev/full")
    ranks = launch.toy(1, *words, environment={"TOY_SECONDS": "0.01"})
    ranks.wait_for("step 3/")
    ranks.signal(0, signal.SIGTERM)
    assert ranks.wait() == [75], ranks.text()
    assert "note: the last metrics are lost: " in ranks.text()
    assert launch.toy(1, "steps=2", "metrics.file=/dev/full").wait() == [10], "a run that is over has lost them"


@pytest.mark.promise("P34")
def test_engine_that_fails_after_the_run_is_done_does_not_fail_it(launch: Launcher, tmp_path: Path) -> None:
    ranks = launch.toy(2, "steps=2", f"checkpoint.uri={tmp_path}/c/checkpoints", environment={"TOY_LEAVES": "broken"})
    ranks.ok()
    assert "note: while leaving: RuntimeError: no way out" in ranks.text(1)
    reported = json.loads((tmp_path / "c/diagnostics.json").read_text())["ranks"]
    assert reported == [{"rank": rank, "error": "RuntimeError: no counters here"} for rank in (0, 1)]


@pytest.mark.parametrize("count", [1, 2])
def test_a_later_start_of_the_run_ends_this_one_with_its_name(launch: Launcher, tmp_path: Path, count: int) -> None:
    words = ("steps=5000", "checkpoint.every=5")
    third = {"ORCH_EPOCH": "3", "ORCH_CHECKPOINT_URI": f"file://{tmp_path}/c/checkpoints", "TOY_SECONDS": "0.02"}
    ranks = launch.toy(count, *words, environment=third)
    ranks.wait_for("checkpoint 5 written")
    taker = Epoch(epoch=4, attempt=2, installation="0123456789", host="laptop", job="", time="2026-11-23T18:30:00Z")
    (tmp_path / "c/epoch.json").write_bytes(taker.to_json())
    assert ranks.wait() == [6] * count, ranks.text()
    assert "error[taken-over]: another start of this run has taken it over: laptop (orch 01234567)" in ranks.text()
    latest = json.loads((tmp_path / "c/checkpoints/latest.json").read_text())
    assert latest["epoch"] == 3 and latest["manifest"].endswith("-e0003-a0001/manifest.json")
    refused = launch.toy(count, *words, environment=third)
    assert refused.wait() == [6] * count


def test_run_continues_when_its_output_is_closed(tmp_path: Path, corpus: Path) -> None:
    words = [*SMALL, f"data={corpus}", "steps=9", f"checkpoint.uri={tmp_path}/c", f"metrics.file={tmp_path}/m"]
    command = shlex.join([sys.executable, "-m", "support.toy_engine", *words])
    done = subprocess.run(
        ["bash", "-c", f"{command} | head -n 1; exit ${{PIPESTATUS[0]}}"],
        cwd=REPOSITORY / "tests", env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "TOY_SECONDS": "0.1"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "note: standard output was closed; the run continues without it\n")
    assert (tmp_path / "c/step-00000009-e0001-a0001/manifest.json").exists()


def test_torchrun_variables_are_understood(launch: Launcher) -> None:
    alone = launch(1, "steps=4").ok()
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [
        launch(1, "steps=4", environment={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in (0, 1)
    ]
    for one in ranks:
        one.ok()
    assert [r["loss"] for r in ranks[0].metrics()] == pytest.approx([r["loss"] for r in alone.metrics()], abs=TOLERANCE)
    assert not (ranks[1].folder / "metrics.jsonl").exists()
