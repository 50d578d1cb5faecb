"""The commit of a workdir on hosts, where there is no .git, and in `orch runs`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from support.orch_process import Orch


def test_setup_and_program_know_the_commit_and_runs_shows_it(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.py").write_text("1")
    git = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "-qb", "dev"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    (tmp_path / "task.yaml").write_text(
        "name: mine\nworkdir: work\nresources: {infra: local}\nenvs: {WANDB_GIT_COMMIT: own}\n"
        "setup: echo setup $ORCH_GIT_COMMIT\nrun: echo run $ORCH_GIT_COMMIT $ORCH_GIT_BRANCH $WANDB_GIT_COMMIT\n"
    )
    orch = Orch(tmp_path)
    done = orch("launch", "task.yaml")
    said = done.stdout + done.stderr
    try:
        assert f"setup {commit}" in said and f"run {commit} dev own" in said, "a person's own variable wins"
        (run,) = json.loads(orch.ok("runs", "-o", "json"))["runs"]
        assert (run["commit"], run["changes"]) == (commit, None)
        (folder / "a.py").write_text("2")
        assert orch("launch", "task.yaml").returncode == 0
        assert f"{commit[:9]}*" in orch.ok("runs")
        assert f"{commit} of dev, with changes since" in " ".join(orch.ok("runs", run_of(orch)).split())
    finally:
        orch("down", "mine", "--yes")


def run_of(orch: Orch) -> str:
    return str(json.loads(orch.ok("runs", "-o", "json"))["runs"][0]["run_id"])
