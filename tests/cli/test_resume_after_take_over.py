"""A laptop is lost while its training runs: another computer takes its machines over and continues the run on them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.heard import listening, losses
from support.orch_process import Orch

from orch_fronts.google.cloud import SimulatedGoogle
from orchestrator.remote.keys import make_host_key

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SCENARIO = "[durations]\ncreate = 0.2\nend = 0.2\ndetect = 0.2\ncontact = 0\n"
TINY = ("model.dim=32", "model.layers=1", "model.heads=2", "model.kv_heads=1", "batch=8", "threads=1", "steps=100000")
TRAIN = ("train", "v5e-1", "--infra", "gcp/us-west4/us-west4-a", "--backend", "cpu", "-c", "lost", "--yes")


@pytest.mark.promise("P5")
def test_a_training_of_a_lost_computer_continues_on_its_own_machines(tmp_path: Path) -> None:
    for name in ("ann", "bob", "cloud"):
        (tmp_path / name).mkdir()
    (tmp_path / "cloud/scenario.toml").write_text(SCENARIO)
    private, public = make_host_key()
    key = tmp_path / "recovery"
    key.write_text(private)
    key.chmod(0o600)
    with SimulatedGoogle(tmp_path / "cloud") as google:
        ann = Orch(tmp_path / "ann", {**google.env, "ORCH_SSH_RECOVERY_KEY": public})
        bob = Orch(tmp_path / "bob", {**google.env, "ORCH_IDENTITY": str(key)})
        with listening(ann) as start:
            first = start(*TRAIN, "--bucket", "gs://runs", "--checkpoint-every", "20", *TINY)
            first.until(r"checkpoint 40 written(?s:.*)step \d+0/")
            ((job,),) = [one["jobs"] for one in json.loads(ann.ok("status", "lost", "-o", "json"))["clusters"]]
            first.process.kill()
            first.status()
        shutil.rmtree(ann.state.parent)

        done = bob("recover", "lost", "--take-over", "--yes")
        assert "orch resume RUN --bucket BUCKET -c lost --take-over" in done.stderr, done.stderr
        assert done.returncode == 0 and "its hosts obey this installation alone" in done.stderr, done.stderr
        (seen,) = json.loads(bob.ok("status", "-o", "json"))["clusters"]
        assert (seen["name"], seen["state"]) == ("lost", "ready") and seen["machines"]["price_per_hour"] > 0
        with google.cloud.open() as cloud:
            (machine,) = [look.name for look in cloud.live()]

        with listening(bob) as start:
            words = (
                "resume",
                job["run_id"],
                "--bucket",
                "gs://runs",
                "-c",
                "lost",
                "--take-over",
                "--trust-bucket",
                "--yes",
            )
            second = start(*words)
            second.until(r"step \d+0/(?s:.*)checkpoint \d+ written(?s:.*)step \d+0/")
            bob.ok("cancel", "lost")
            assert second.status() == 130, second.text
        with google.cloud.open() as cloud:
            assert [look.name for look in cloud.live()] == [machine], "no others were rented"
        before, after = losses(first.text), losses(second.text)
        assert after[0][0] > 40, "it resumes from a checkpoint that is not older than what was seen"
        assert after[0][0] % 20 == 1, "at the step after a checkpoint"
        curve = dict(before)
        assert after[-1][1] < before[0][1]
        assert all(curve[step] == loss for step, loss in after if step in curve), (before, after)
        bob.ok("down", "lost")
        with google.cloud.open() as cloud:
            assert list(cloud.live()) == []
        assert json.loads(bob("recover", "--all", "-o", "json").stdout)["places"][1]["slices"] == []
        assert json.loads(bob.ok("status", "-o", "json"))["clusters"] == []
