"""The bundled trainer through the command line on real hosts of this computer: smoke test, JAX, profiles, devices."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support.orch_process import Orch, until

ROOT = Path(__file__).parents[2]
TINY = ("model=tiny", "model.dim=64", "model.layers=2", "seq_len=32", "batch=4", "threads=1", "log_every=1")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def orch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orch]:
    made = Orch(tmp_path_factory.mktemp("training"))
    (made.folder / "text.txt").write_text("a line to learn from\n" * 2000)
    yield made
    made("down", "train")


def train(orch: Orch, *words: str) -> list[str]:
    bucket = f"file://{orch.folder}/bucket"
    return ["train", "local:2", *TINY, f"data={orch.folder}/text.txt", "--bucket", bucket, *words]


def losses(out: str) -> dict[int, str]:
    """Step to loss, from the lines of rank 0."""
    words = [line.split() for line in out.splitlines() if " loss " in line and "rank=0" in line and "step " in line]
    return {int(found[found.index("step") + 1].partition("/")[0]): found[found.index("loss") + 1] for found in words}


@pytest.mark.promise("P41")
def test_jax_trains_is_cancelled_resumed_and_profiled(orch: Orch) -> None:
    log = orch.folder / "first.log"
    with log.open("wb") as sink:
        first = subprocess.Popen(
            [sys.executable, "-m", "orchestrator", *train(orch, "engine=jax", "steps=4000", "checkpoint.every=20")],
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=orch.env,
            cwd=orch.folder,
        )
        try:
            until("a checkpoint", lambda: "checkpoint 40 written" in log.read_text() or first.poll() is not None, 400)
            assert first.poll() is None, log.read_text()
            orch.ok("cancel", "train")
        finally:
            first.terminate()
            first.wait(60)
    said = log.read_text()
    assert "the trainer: engine=jax device=cpu" in said
    begun = losses(said)
    assert list(begun)[:3] == [1, 2, 3]
    saved = re.search(r"after step (\d+); checkpoint saved", orch.ok("logs", "train", "--host", "0", "--no-prefix"))
    assert saved is not None
    refused = orch("resume", "train", "--compile", "--dry-run")
    assert refused.returncode == 2 and "not a TPU slice" in refused.stderr
    again = orch.start("resume", "train")
    try:
        until("the resumed run's steps", lambda: _has_step(orch), 200)
        profile_and_devices(orch)
    finally:
        orch("cancel", "train")
        out, err = again.communicate(timeout=60)
    resumed = losses(out)
    assert min(resumed) == int(saved[1]) + 1, f"{out}\n{err}"
    assert float(begun[1]) > float(resumed[min(resumed)])


def _has_step(orch: Orch) -> bool:
    found: dict[str, Any] = json.loads(orch("status", "-o", "json").stdout)
    jobs = found["clusters"][0]["jobs"]
    logs = orch("logs", "train", "--host", "0", "--no-prefix").stdout
    return jobs[-1]["state"] == "running" and jobs[-1]["kind"] == "resume" and "loss" in logs


def profile_and_devices(orch: Orch) -> None:
    """While it trains: traces of both ranks are downloaded as one, and the devices of both hosts are listed."""
    both = orch.ok("profile", "train", "--steps", "2", "--wait", "3")
    folder = orch.folder / both.strip()
    assert sorted(path.name for path in folder.iterdir()) == ["all-ranks.trace.json.gz", "rank-0", "rank-1"]
    events = json.loads(gzip.decompress((folder / "all-ranks.trace.json.gz").read_bytes()))["traceEvents"]
    names = {event["args"]["name"][:6] for event in events if event.get("name") == "process_name"}
    assert names == {"rank 0", "rank 1"}
    left = orch.ok(
        "exec",
        "train",
        "--no-prefix",
        "--",
        "ls $ORCH_HOST_DIR/jobs/*/profiles $ORCH_HOST_DIR/jobs/*/profile-* || true",
    )
    assert folder.name.removeprefix("train-") not in left, "what was downloaded is deleted there"
    first = orch.folder / orch.ok("profile", "train", "--steps", "1", "--rank", "0", "--into", "one").strip()
    assert [path.name for path in first.glob("rank-*")] == ["rank-0"]

    document = json.loads(orch.ok("exec", "train", "--devices", "-o", "json"))
    schema = json.loads((ROOT / "orchestrator" / "cli" / "data" / "devices.schema.json").read_text())
    jsonschema.validate(document, schema)
    assert [host["rank"] for host in document["hosts"]] == [0, 1]
    table = orch.ok("exec", "train", "--devices").splitlines()
    assert table[0].split()[:3] == ["HOSTS", "DEVICES", "KIND"] and table[1].split()[:3] == ["0-1", "1", "cpu"]


def test_a_profile_of_what_does_not_train_is_refused(orch: Orch) -> None:
    missing = orch("profile", "missing")
    assert missing.returncode == 3 and "no cluster 'missing'" in missing.stderr
    task = orch.folder / "own.yaml"
    task.write_text("name: own\nresources: {infra: 'local:2'}\nrun: echo\n")
    orch.ok("launch", "own.yaml")
    nothing = orch("profile", "own")
    assert nothing.returncode != 0 and "no job runs on 'own'" in nothing.stderr
    task.write_text(task.read_text().replace("echo", "sleep 60"))
    own = orch.start("launch", "own.yaml")
    try:
        until("the program", lambda: '"running"' in orch("status", "-o", "json").stdout)
        refused = orch("profile", "own")
        assert refused.returncode == 2 and "is not the bundled trainer" in refused.stderr
    finally:
        orch("cancel", "own")
        own.communicate(timeout=60)
        orch.ok("down", "own", "--yes")


@pytest.mark.promise("P40")
def test_a_smoke_test_that_fails_stops_before_the_run(orch: Orch) -> None:
    done = orch(*train(orch, "steps=4", "--smoke", f"data={orch.folder}/nothing"), timeout=300)
    assert done.returncode != 0
    assert "the smoke test failed" in done.stdout + done.stderr and not losses(done.stdout)
