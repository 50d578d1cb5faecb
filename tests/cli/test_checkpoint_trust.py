"""`orch resume` of an own program: what its run did not sign is loaded only after someone has agreed to it."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from support.bucket_attack import (
    hide_in_shards,
    list_saved,
    newest_checkpoint,
    pickle_command,
    remove_signature,
    replace_file,
    save_command,
)
from support.orch_process import Orch
from support.terminal import on_terminal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

EXAMPLES = Path(__file__).parents[2] / "examples" / "own-programs"
# It unpickles what it restores. Its second start ends before it saves and asks to be started again.
PROGRAM = """
import os, pickle, orch_run
run = orch_run.init()
step = run.restore("restored") or 0
if step:
    print("state", pickle.load(open("restored/state", "rb")), flush=True)
if os.environ.get("ORCH_ATTEMPT") == "2":
    raise SystemExit(orch_run.STOPPED)
folder = run.new_folder()
(folder / "state").write_bytes(pickle.dumps(f"of step {step + 1}"))
run.save(folder, step + 1)
run.wait()
print("saved", step + 1, flush=True)
"""


def write_task(folder: Path, program: str, run: str = "$PYTHON program.py") -> Path:
    """Write a task with its own bucket; return the bucket's folder."""
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "program.py").write_text(program)
    (folder / "task.yaml").write_text(
        "name: mine\nworkdir: src\nresources: {infra: local:1}\n"
        f"checkpoint: {{bucket: 'file://{folder.parent}/bucket'}}\n"
        f"envs: {{PYTHON: '{sys.executable}', OMP_NUM_THREADS: '1'}}\nrun: {run}\n"
    )
    return folder.parent / "bucket"


@pytest.fixture
def mine(tmp_path: Path) -> tuple[Orch, Path, str]:
    """A run that has saved its first step; its bucket, and its id."""
    bucket = write_task(tmp_path / "ann", PROGRAM)
    orch = Orch(tmp_path / "ann")
    assert "saved 1" in orch.ok("launch", "task.yaml", "--yes")
    (run_id,) = (path.name for path in bucket.iterdir() if path.is_dir() and (path / "task.json").exists())
    return orch, bucket, run_id


@pytest.mark.promise("P42")
def test_a_replaced_pickle_is_refused_before_a_host_loads_it_and_a_consent_is_for_the_digests_shown(
    mine: tuple[Orch, Path, str], tmp_path: Path
) -> None:
    orch, bucket, run_id = mine
    checkpoint, marker = newest_checkpoint(bucket), tmp_path / "code-of-the-bucket-ran"
    saved = list_saved(checkpoint)["state"].read_bytes()
    replace_file(checkpoint, "state", pickle_command(f"touch {marker}"))
    done = orch("resume", "mine", "--force", "--yes")
    assert done.returncode == 12 and not marker.exists(), done.stderr
    said, error = done.stderr.split("error[untrusted-checkpoint]: ")
    assert f"checkpoint 1 of run {run_id} does not carry the signature of its run" in error
    assert "--trust-bucket" in error and len(error.splitlines()) <= 5
    assert "another signature, manifest sha256:" in said and "have put code into them" in said
    assert orch("resume", "mine", "--force", "--dry-run", "-o", "json").returncode == 12
    assert not marker.exists()

    replace_file(checkpoint, "state", saved)
    remove_signature(checkpoint)  # as a start without orch leaves it
    refused = orch("resume", "mine", "--force", "--yes")
    assert refused.returncode == 12 and "no signature" in refused.stderr, refused.stderr
    trusted = orch("resume", "mine", "--force", "--yes", "--trust-bucket")
    assert trusted.returncode == 0, trusted.stdout + trusted.stderr
    # Attempt 2 ended before it saved, and attempt 3 was not asked about the same checkpoint again.
    assert trusted.stdout.count("state of step 1") == 2 and "saved 2" in trusted.stdout
    events = json.loads(orch.ok("events", "-o", "json"))["events"]
    digest = re.search(r"sha256:([0-9a-f]{64})", trusted.stderr)
    assert digest is not None
    (consent,) = [event for event in events if event["kind"] == "trust"]
    assert f"checkpoint 1 of {run_id} is loaded without its run's signature: {digest[0]}" in consent["what"]
    again = orch("resume", "mine", "--force", "--yes")
    assert again.returncode == 0 and "state of step 2" in again.stdout, "what it saved since is signed"
    assert "ORCH_RUN_KEY" not in json.dumps(events) and not marker.exists()


@pytest.mark.promise("P42")
def test_without_the_key_a_resume_asks_in_words_and_does_what_is_answered(
    mine: tuple[Orch, Path, str], tmp_path: Path
) -> None:
    orch, bucket, run_id = mine
    (tmp_path / "eve").mkdir()
    shutil.copytree(orch.folder / "src", tmp_path / "eve" / "src")
    eve = Orch(tmp_path / "eve")
    from_bucket = ("resume", run_id, "--bucket", f"file://{bucket}", "--force")
    digest = re.search(r"sha256:[0-9a-f]{64}", eve(*from_bucket).stderr)
    assert digest is not None
    allowed = ("--expect", digest[0], "--allow", "infra:local", "--allow", "src")
    refused = eve(*from_bucket, *allowed, "--yes")
    assert refused.returncode == 12 and "error[untrusted-checkpoint]" in refused.stderr, refused.stderr
    assert "the key of this run is not on record here" in refused.stderr
    with on_terminal(eve.command(*from_bucket, *allowed), env=eve.env, cwd=eve.folder) as terminal:
        shown = terminal.expect(r"load them\? \[y/N\]")
        terminal.type("n")
        assert terminal.finish() == 1
    assert "whoever can write to the bucket can have put code into them" in shown.replace("\n", " ")
    assert not list(bucket.rglob("step-00000002-*"))
    done = eve(*from_bucket, *allowed, "--trust-bucket", "--yes")
    assert done.returncode == 0 and "state of step 1" in done.stdout, done.stdout + done.stderr
    assert "error[untrusted-checkpoint]" in orch("resume", run_id, "--force", "--yes").stderr, "another key signed it"


FRAMEWORKS = {
    "torch_dcp": (hide_in_shards, "values of DCP"),
    "lightning_loop": (lambda at, command: replace_file(at, "last.ckpt", save_command(command)), "last.ckpt"),
}


@pytest.mark.promise("P42")
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_frameworks_load_nothing_of_a_forged_checkpoint_on_hosts(tmp_path: Path, name: str) -> None:
    program = (EXAMPLES / f"{name}.py").read_text().replace("STEPS, EVERY, ROWS = 40", "STEPS, EVERY, ROWS = 10")
    bucket = write_task(tmp_path / "ann", program)
    orch, marker = Orch(tmp_path / "ann"), tmp_path / "code-of-the-bucket-ran"
    assert "done: step" in orch.ok("launch", "task.yaml", "--yes", timeout=300)
    FRAMEWORKS[name][0](newest_checkpoint(bucket), f"touch {marker}")
    refused = orch("resume", "mine", "--force", "--yes")
    assert refused.returncode == 12 and "error[untrusted-checkpoint]" in refused.stderr, refused.stderr
    trusted = orch("resume", "mine", "--force", "--yes", "--trust-bucket", timeout=300)
    assert trusted.returncode != 0 and "is not loaded" in trusted.stdout, trusted.stdout + trusted.stderr
    assert not marker.exists()
