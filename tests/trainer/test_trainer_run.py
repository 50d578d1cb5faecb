"""Whole runs: the same losses on any number of ranks, and after any interruption."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest
from trainer_ranks import Launcher, free_port

from trainer.checkpoint.layout import part_name, step_folder

TOLERANCE = 2e-5


def test_the_loss_falls_and_is_bitwise_the_same_twice(launch: Launcher) -> None:
    first = launch(1, "steps=12").ok()
    second = launch(1, "steps=12").ok()
    losses = [record["loss"] for record in first.metrics()]
    assert losses[-1] < losses[0] - 0.5
    assert first.losses() == second.losses()
    assert all(float.fromhex(r["loss_hex"]) == r["loss"] for r in first.metrics())


def test_one_two_and_four_ranks_have_the_same_losses(launch: Launcher) -> None:
    runs = [launch(size, "steps=8").ok() for size in (1, 2, 4)]
    alone = [record["loss"] for record in runs[0].metrics()]
    for other in runs[1:]:
        assert [record["loss"] for record in other.metrics()] == pytest.approx(alone, abs=TOLERANCE)
        assert [r["grad_norm"] for r in other.metrics()] == pytest.approx(
            [r["grad_norm"] for r in runs[0].metrics()], rel=1e-3
        )


def test_a_model_of_several_gradient_buffers_has_the_same_losses_on_two_ranks(launch: Launcher) -> None:
    # 11 million weights are 44 MB: two buffers, of which the first is sent during the backward pass.
    wide = ("model.dim=512", "model.layers=4", "model.heads=8", "model.kv_heads=2", "steps=3")
    alone, two = launch(1, *wide).ok(), launch(2, *wide).ok()
    assert [r["loss"] for r in two.metrics()] == pytest.approx([r["loss"] for r in alone.metrics()], abs=TOLERANCE)


def test_accumulation_changes_nothing_but_the_rounding(launch: Launcher) -> None:
    whole = launch(2, "steps=6").ok()
    parts = launch(2, "steps=6", "accumulate=4").ok()
    assert [r["loss"] for r in parts.metrics()] == pytest.approx([r["loss"] for r in whole.metrics()], abs=TOLERANCE)


def test_four_ranks_twice_and_resumed_are_bitwise_the_same(launch: Launcher, tmp_path: Path) -> None:
    straight = launch(4, "steps=14").ok()
    place = f"checkpoint.uri={tmp_path}/run/checkpoints"
    launch(4, "steps=14", place, "checkpoint.every=5").ok()
    for name in ("step-00000010", "step-00000014"):
        (tmp_path / "run/checkpoints" / name / "manifest.json").unlink()
    again = launch(4, "steps=14", place, environment={"ORCH_ATTEMPT": "2"}).ok()
    assert "resumed from step 5 of attempt 1, data position 40 rows" in again.text(0)
    assert min(again.losses()) == 6
    assert again.losses() == {step: loss for step, loss in straight.losses().items() if step > 5}


def test_resume_on_other_numbers_of_ranks_keeps_order_and_losses(launch: Launcher, tmp_path: Path) -> None:
    straight = launch(1, "steps=12").ok()
    place = f"checkpoint.uri={tmp_path}/run/checkpoints"
    merged: dict[int, float] = {}
    for size, stop in ((4, 4), (2, 8), (1, 12)):
        # The rate follows the number of steps, so each run has 12 of them and is cut by removing what is later.
        ranks = launch(size, "steps=12", place, "checkpoint.every=4", "checkpoint.keep=9").ok()
        for folder in (tmp_path / "run/checkpoints").glob("step-*"):
            if int(folder.name[5:]) > stop:
                (folder / "manifest.json").unlink()
        merged |= {r["step"]: r["loss"] for r in ranks.metrics() if stop - 4 < r["step"] <= stop}
    assert list(merged) == list(range(1, 13))
    assert list(merged.values()) == pytest.approx([r["loss"] for r in straight.metrics()], abs=TOLERANCE)


def test_sigterm_to_one_rank_saves_and_all_exit_75_and_the_curve_goes_on(launch: Launcher, tmp_path: Path) -> None:
    straight = launch(2, "steps=60").ok()
    place = f"checkpoint.uri={tmp_path}/run/checkpoints"
    stopped = launch(2, "steps=60", place, "checkpoint.every=1000")
    stopped.wait_for("step 10/60")
    stopped.signal(1, signal.SIGTERM)
    assert stopped.wait() == [75, 75], stopped.text()
    done = max(stopped.losses())
    assert f"stopped by SIGTERM after step {done}; checkpoint saved" in stopped.text(0)
    assert 10 <= done < 60
    resumed = launch(2, "steps=60", place, environment={"ORCH_ATTEMPT": "2"}).ok()
    assert min(resumed.losses()) == done + 1
    assert stopped.losses() | resumed.losses() == straight.losses()


def test_sigterm_without_a_place_to_save_is_told_from_a_saved_stop(launch: Launcher) -> None:
    ranks = launch(1, "steps=100000")
    ranks.wait_for("step 3/")
    ranks.signal(0, signal.SIGTERM)
    assert ranks.wait() == [143]
    assert "nothing saved" in ranks.text()


def test_second_sigterm_ends_at_once(launch: Launcher, tmp_path: Path) -> None:
    # A step of this size takes about half a second, so the second signal falls into the same step.
    big = ("model.dim=384", "model.layers=4", "model.heads=6", "batch=8", "seq_len=128")
    ranks = launch(1, "steps=1000", *big, f"checkpoint.uri={tmp_path}/checkpoints")
    ranks.wait_for("step 1/")
    ranks.signal(0, signal.SIGTERM)
    time.sleep(0.1)
    ranks.signal(0, signal.SIGTERM)
    assert ranks.wait() == [143]
    assert not list((tmp_path / "checkpoints").glob("step-*/manifest.json"))


def test_killed_rank_does_not_leave_the_others_hanging(launch: Launcher) -> None:
    ranks = launch(4, "steps=100000")
    ranks.wait_for("step 5/")
    ranks.signal(2, signal.SIGKILL)
    statuses = ranks.wait(timeout=60)
    assert statuses[2] == -9
    assert [statuses[i] for i in (0, 1, 3)] == [1, 1, 1]
    assert "error[peer]: rank 0 lost another rank" in ranks.text(0)


def test_frozen_rank_is_given_up_after_the_time_limit(launch: Launcher) -> None:
    ranks = launch(2, "steps=100000", "dist.timeout=3")
    ranks.wait_for("step 5/")
    ranks.signal(1, signal.SIGSTOP)
    ranks.processes[0].join(60)
    assert ranks.processes[0].exitcode == 1
    assert "(limit 3 s)" in ranks.text(0)


def test_missing_rank_is_an_error_that_names_the_coordinator(launch: Launcher) -> None:
    ranks = launch(1, "dist.join_timeout=2", environment={"ORCH_NUM_HOSTS": "2"})
    assert ranks.wait() == [1]
    assert "rank 0 of 2 could not meet the others at 127.0.0.1:" in ranks.text()
    assert "Traceback" not in ranks.text()


def test_ranks_that_read_other_files_refuse_to_start(launch: Launcher, tmp_path: Path, corpus: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "part0.txt").write_text((corpus / "part0.txt").read_text())
    meet = {"ORCH_NUM_HOSTS": "2", "ORCH_COORDINATOR": f"127.0.0.1:{free_port()}"}
    one = launch(1, "steps=3", f"data={corpus}", environment={**meet, "ORCH_RANK": "0"})
    two = launch(1, "steps=3", f"data={other}", environment={**meet, "ORCH_RANK": "1"})
    assert one.wait() == [3]
    assert two.wait() == [3]
    assert "rank 1 reads another corpus" in one.text()


def test_ranks_with_other_settings_refuse_to_start(launch: Launcher) -> None:
    meet = {"ORCH_NUM_HOSTS": "2", "ORCH_COORDINATOR": f"127.0.0.1:{free_port()}"}
    one = launch(1, "steps=3", environment={**meet, "ORCH_RANK": "0"})
    two = launch(1, "steps=4", environment={**meet, "ORCH_RANK": "1"})
    assert one.wait() == [2]
    assert two.wait() == [2]
    assert "rank 1 has steps=4, rank 0 has steps=3" in two.text()


def test_changed_corpus_is_refused_unless_allowed(launch: Launcher, tmp_path: Path) -> None:
    text = tmp_path / "book.txt"
    text.write_text("one two three four five six seven " * 200)
    place = f"checkpoint.uri={tmp_path}/checkpoints"
    launch(1, "steps=4", place, f"data={text}").ok()
    text.write_text(text.read_text() + "more")
    refused = launch(1, "steps=8", place, f"data={text}")
    assert refused.wait() == [3]
    assert "corpus bytes 6800 -> 6804" in refused.text()
    allowed = launch(1, "steps=8", place, f"data={text}", "data.allow_change=true").ok()
    assert min(allowed.losses()) == 5


@pytest.mark.parametrize("word", ["model.dim=64", "batch=16", "seed=1"])
def test_another_model_or_order_is_not_resumed_silently(launch: Launcher, tmp_path: Path, word: str) -> None:
    place = f"checkpoint.uri={tmp_path}/checkpoints"
    launch(1, "steps=2", place).ok()
    refused = launch(1, "steps=4", place, word)
    assert refused.wait() == [2]
    assert word.partition("=")[0].removeprefix("model.") in refused.text()


def test_resume_required_and_resume_never(launch: Launcher, tmp_path: Path) -> None:
    place = f"checkpoint.uri={tmp_path}/checkpoints"
    required = launch(1, "steps=2", place, "resume=required")
    assert required.wait() == [10]
    assert "no intact checkpoint" in required.text()
    launch(1, "steps=2", place, "resume=never").ok()
    never = launch(1, "steps=2", place, "resume=never")
    assert never.wait() == [2]
    assert "already holds checkpoints" in never.text()


def test_corrupt_and_partial_checkpoints_are_passed_over_with_a_reason(launch: Launcher, tmp_path: Path) -> None:
    place = tmp_path / "checkpoints"
    launch(2, "steps=8", f"checkpoint.uri={place}", "checkpoint.every=2", "checkpoint.keep=9").ok()
    corrupt = place / step_folder(8) / part_name(1, 2)
    data = bytearray(corrupt.read_bytes())
    data[-1] ^= 1
    corrupt.write_bytes(data)
    shorter = place / step_folder(6) / part_name(0, 2)
    shorter.write_bytes(shorter.read_bytes()[:-1])
    (place / step_folder(4) / "manifest.json").write_text("{}")
    resumed = launch(2, "steps=9", f"checkpoint.uri={place}").ok()
    assert "skipped checkpoint 8: part-00001-of-00002.safetensors does not have its checksum" in resumed.text(0)
    assert "skipped checkpoint 6: part-00000-of-00002.safetensors has" in resumed.text(0)
    assert "skipped checkpoint 4: the manifest" in resumed.text(0)
    assert "resumed from step 2" in resumed.text(0)
    # `latest` never went back, and the steps that were passed again are whole now.
    assert json.loads((place / "latest.json").read_text())["step"] == 9
    whole = launch(2, "steps=9", f"checkpoint.uri={place}").ok()
    assert "skipped" not in whole.text(0)


def test_resume_from_a_step_of_this_run_and_of_another(launch: Launcher, tmp_path: Path) -> None:
    first = tmp_path / "first/checkpoints"
    launch(1, "steps=6", f"checkpoint.uri={first}", "checkpoint.every=2").ok()
    back = launch(
        1, "steps=8", f"checkpoint.uri={first}", environment={"ORCH_RESUME_FROM": f"file://{first}/step-00000004"}
    ).ok()
    assert min(back.losses()) == 5
    second = tmp_path / "second/checkpoints"
    named = {"ORCH_RESUME_FROM": f"file://{first}/step-00000004"}
    tuned = launch(1, "steps=7", f"checkpoint.uri={second}", environment=named).ok()
    assert min(tuned.losses()) == 5
    further = launch(1, "steps=9", f"checkpoint.uri={second}", environment=named).ok()
    assert min(further.losses()) == 8, "its own checkpoint is further than the one it came from"


def test_a_bucket_that_fails_midway_ends_the_run_with_status_10(launch: Launcher, tmp_path: Path) -> None:
    place = tmp_path / "run/checkpoints"
    ranks = launch(2, "steps=100000", f"checkpoint.uri={place}", "checkpoint.every=20", "dist.timeout=20")
    ranks.wait_for("checkpoint 20 written")
    place.rename(tmp_path / "run/moved")
    place.write_text("a file where the folder was")
    statuses = ranks.wait(timeout=60)
    assert 10 in statuses, ranks.text()
    assert 0 not in statuses
    assert "was not written" in ranks.text()


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
    assert json.loads((tmp_path / "beat").read_text())["step"] == 9
    about = json.loads((run / "environment-0003.json").read_text())
    assert [rank["rank"] for rank in about["ranks"]] == [0, 1]
    assert about["versions"]["torch"]


def test_a_loss_that_is_not_a_number_stops_before_it_is_saved(launch: Launcher, tmp_path: Path) -> None:
    ranks = launch(1, "steps=50", "optim.lr=1e30", "grad_clip=0", f"checkpoint.uri={tmp_path}/c", "checkpoint.every=1")
    assert ranks.wait() == [1]
    assert "lower optim.lr" in ranks.text()


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


def test_bf16_trains(launch: Launcher) -> None:
    ranks = launch(1, "steps=12", "dtype=bf16").ok()
    losses = [record["loss"] for record in ranks.metrics()]
    assert losses[-1] < losses[0] - 0.5
