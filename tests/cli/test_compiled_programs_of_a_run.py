"""What a run has compiled is found by a later attempt on any computer of the team, and by no one without the key."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.orch_process import Orch
from support.postgres import postgres_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WORDS = ("model=tiny", "model.dim=64", "model.layers=2", "seq_len=32", "batch=4", "threads=1", "steps=3", "engine=jax")


@pytest.mark.promise("P42")
@pytest.mark.full  # minutes of a processor
def test_a_resume_uses_the_programs_of_its_run_on_both_computers_and_none_without_the_key(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a line to learn from\n" * 2000)
    cache, bucket = tmp_path / "cache", f"file://{tmp_path}/bucket"
    settings = (f"JAX_COMPILATION_CACHE_DIR={cache}", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0")
    named = [word for setting in settings for word in ("--env", setting)]
    with postgres_server() as server:
        store = server.new_store()
        for name in ("ann", "bob", "eve"):
            (tmp_path / name).mkdir()
        ann, bob = (Orch(tmp_path / name, {"ORCH_STORE": store}) for name in ("ann", "bob"))
        eve = Orch(tmp_path / "eve")
        words = ["local:1", *WORDS, f"data={tmp_path}/text.txt", "--bucket", bucket, "-c", "first", "--down"]
        assert "compiled programs kept in" in ann.ok("train", *words, *named)
        (run,) = (path.name for path in (tmp_path / "bucket").iterdir() if path.name.startswith("first-"))
        for orch in (ann, bob):
            shutil.rmtree(cache)
            again = orch.ok("resume", run, "-c", "again", "--force", "--down")
            assert "compiled programs of this run fetched" in again
            assert "lack the signature" not in again
        shutil.rmtree(cache)
        foreign = ["--bucket", bucket, "--trust-bucket", "--allow", "infra:local"]
        done = eve("resume", run, *foreign, "-c", "again", "--force", "--down")
        assert done.returncode == 0, done.stderr
        assert "fetched" not in done.stdout and "lack the signature of this run's ranks" in done.stdout
        events = ann.ok("events", "-o", "json")
        assert "run_key" not in events and "ORCH_RUN_KEY" not in events
