"""Pipelines as a person meets them: what continues after a failure or a kill, what ends them, and what is shown."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema.validators import Draft202012Validator
from support.orch_process import Orch, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

OWN = """
name: pipe
---
name: prepare
resources: {infra: "local:1"}
run: echo prepare >> "$MARKS"
---
name: train
resources: {infra: "local:1"}
run: |
  echo train >> "$MARKS"
  while [ ! -e "$GO" ]; do sleep 0.1; done
  exit "$(cat "$GO")"
---
name: score
resources: {infra: "local:1"}
run: echo score >> "$MARKS"
"""
WORDS = ("launch", "pipe.yaml", "--env", "MARKS", "--env", "GO")
DATA = Path(__file__).parents[2] / "orchestrator" / "documents" / "data"


@pytest.fixture
def orch(tmp_path: Path) -> Iterator[Orch]:
    (tmp_path / "pipe.yaml").write_text(OWN)
    orch = Orch(tmp_path, {"MARKS": str(tmp_path / "marks"), "GO": str(tmp_path / "go"), "COLUMNS": "200"})
    yield orch
    (tmp_path / "go").write_text("0")
    orch("cancel", "pipe")
    for name in ("pipe-1", "pipe-2", "pipe-3", "mine"):
        orch("down", name)
    until("the engine ends when nothing is left to do", lambda: not orch.engines(), 40)


def marks(orch: Orch) -> list[str]:
    found = orch.folder / "marks"
    return found.read_text().split() if found.exists() else []


def go(orch: Orch, status: int) -> None:
    (orch.folder / "go.new").write_text(str(status))
    (orch.folder / "go.new").rename(orch.folder / "go")


def read(orch: Orch, command: str, *more: str) -> dict[str, Any]:
    """Return the document of a command, which fits its schema."""
    document = json.loads(orch.ok(command, "-o", "json", *more))
    Draft202012Validator(json.loads((DATA / f"{command}.schema.json").read_text())).validate(document)
    return dict(document)


def pipelines(orch: Orch, *more: str) -> list[tuple[str, int, str]]:
    return [(one["name"], one["stage"], one["state"]) for one in read(orch, "queue", *more)["pipelines"]]


def clusters(orch: Orch) -> list[str]:
    return [one["name"] for one in read(orch, "status")["clusters"]]


def kill_in_training(orch: Orch, *more: str) -> None:
    """Launch it, and kill the process that drives it while its second stage runs."""
    process = orch.start(*WORDS, *more)
    until("the second stage runs", lambda: marks(orch)[-1:] == ["train"])
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_the_same_command_goes_on_at_the_stage_that_failed(orch: Orch) -> None:
    go(orch, 3)
    failed = orch(*WORDS)
    assert failed.returncode == 3, failed.stderr
    assert "next: orch logs pipe-2 1   shows the output of stage 2 of 3 (train)" in failed.stderr
    go(orch, 0)
    again = orch(*WORDS)
    assert again.returncode == 0, again.stderr
    assert again.stderr.startswith(
        "pipeline 'pipe' resumes at stage 2 of 3 (train); stages before it are not run again"
    )
    assert marks(orch) == ["prepare", "train", "train", "score"]
    assert clusters(orch) == []

    from_score = orch(*WORDS, "--from", "score")
    assert from_score.returncode == 0, from_score.stderr
    from_second = orch(*WORDS, "--from", "2", "--dry-run")
    assert (from_second.returncode, "Stage 1 of 3" in from_second.stdout) == (0, False), from_second.stderr
    assert "Stage 2 of 3" in from_second.stdout
    assert marks(orch) == ["prepare", "train", "train", "score", "score"]
    wrong = orch(*WORDS, "--from", "none")
    assert (wrong.returncode, "its stages are 1 (prepare), 2 (train), 3 (score)" in wrong.stderr) == (2, True)
    orch.ok(*WORDS)
    assert marks(orch)[5:] == ["prepare", "train", "score"], "after a success all stages run"


def test_from_is_refused_for_one_task(orch: Orch) -> None:
    (orch.folder / "one.yaml").write_text("name: one\nresources: {infra: 'local:1'}\nrun: 'true'\n")
    refused = orch("launch", "one.yaml", "--from", "1")
    assert (refused.returncode, "--from is for a file with several tasks" in refused.stderr) == (2, True)


def test_watch_goes_on_after_a_kill(orch: Orch) -> None:
    kill_in_training(orch)
    (shown,) = read(orch, "queue")["pipelines"]
    assert (shown["stage"], shown["stage_name"], shown["cluster"]) == (2, "train", "pipe-2")
    assert shown["driven_by"] == "none (orch watch pipe)"
    assert "2 of 3 (train)" in orch.ok("queue", "pipe")
    go(orch, 0)
    watched = orch("watch", "pipe-2")
    assert watched.returncode == 0, watched.stderr
    assert "pipeline 'pipe' resumes at stage 2 of 3 (train)" in watched.stderr
    assert marks(orch) == ["prepare", "train", "score"]
    assert (pipelines(orch), clusters(orch)) == ([], [])


def test_an_engine_takes_what_watch_detach_hands_over(orch: Orch) -> None:
    kill_in_training(orch)
    go(orch, 0)
    orch.ok("watch", "pipe", "--detach")
    until("the engine runs the last stage", lambda: not pipelines(orch))
    assert marks(orch) == ["prepare", "train", "score"]


@pytest.mark.parametrize(("verb", "name"), [("cancel", "pipe"), ("down", "pipe-2")])
def test_a_killed_pipeline_ends_with_its_own_cluster(orch: Orch, verb: str, name: str) -> None:
    kill_in_training(orch)
    planned = orch(verb, name, "--dry-run")
    assert "pipeline 'pipe' ends at stage 2 of 3 (train)" in planned.stdout, planned.stderr
    ended = orch(verb, name, "--yes")
    word = {"cancel": "cancelled", "down": "taken down"}[verb]
    assert ended.returncode == 0, ended.stderr
    assert f"pipeline 'pipe' is {word} at stage 2 of 3 (train); 'pipe-2' is deleted" in ended.stderr
    assert (pipelines(orch), clusters(orch)) == ([], [])
    assert pipelines(orch, "--all") == [("pipe", 2, "cancelled")]
    assert all(job["state"] == "ended" for run in read(orch, "runs")["runs"] for job in run["jobs"])


def test_cancel_ends_a_pipeline_that_a_process_drives(orch: Orch) -> None:
    process = orch.start(*WORDS)
    until("the second stage runs", lambda: marks(orch)[-1:] == ["train"])
    ended = orch("cancel", "pipe")
    assert ended.returncode == 0, ended.stderr
    assert "'pipe-2' is deleted" in ended.stderr
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert (pipelines(orch), clusters(orch)) == ([], [])
    assert marks(orch) == ["prepare", "train"]


def test_an_interrupted_watch_names_the_pipeline_and_the_program_continues(orch: Orch) -> None:
    process = orch.start(*WORDS)
    until("the second stage runs", lambda: marks(orch)[-1:] == ["train"])
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "orch watch pipe   to watch again, and the stages after it" in said
    assert "orch cancel pipe   to end it" in said
    go(orch, 0)
    orch.ok("watch", "pipe")
    assert marks(orch) == ["prepare", "train", "score"]


def test_a_shared_cluster_stays_after_a_cancel_and_keeps_the_files_of_earlier_stages(orch: Orch) -> None:
    kill_in_training(orch, "-c", "mine")
    ended = orch("cancel", "pipe")
    assert ended.returncode == 0, ended.stderr
    assert "the hosts of 'mine' stay, until: orch down mine" in ended.stderr
    assert (pipelines(orch), clusters(orch)) == ([], ["mine"])
    go(orch, 0)
    again = orch(*WORDS, "-c", "mine")
    assert "resumes at stage 2 of 3 (train)" in again.stderr, again.stderr
    assert marks(orch) == ["prepare", "train", "train", "score"]
    go(orch, 3)
    assert orch(*WORDS, "-c", "mine", "--from", "2").returncode == 3
    orch.ok("down", "mine")
    go(orch, 0)
    afresh = orch(*WORDS, "-c", "mine")
    assert "begins at stage 1: the cluster 'mine' of stage 2 of 3 (train) was deleted since" in afresh.stderr
    assert marks(orch)[-3:] == ["prepare", "train", "score"]


def test_an_edited_file_is_a_new_pipeline_only_after_consent(orch: Orch) -> None:
    kill_in_training(orch)
    file = orch.folder / "pipe.yaml"
    file.write_text(OWN.replace("echo score", "echo points"))
    planned = orch(*WORDS, "--dry-run")
    assert (planned.returncode, "note: 'pipe' at stage 2 of 3 (train) ends first" in planned.stderr) == (0, True)
    refused = orch(*WORDS)
    assert refused.returncode == 2, refused.stderr
    assert "it is at stage 2 of 3 (train)" in refused.stderr
    assert marks(orch) == ["prepare", "train"]
    go(orch, 0)
    agreed = orch(*WORDS, "--yes")
    assert agreed.returncode == 0, agreed.stderr
    assert "pipeline 'pipe' is cancelled at stage 2 of 3 (train); 'pipe-2' is deleted" in agreed.stderr
    assert marks(orch)[2:] == ["prepare", "train", "points"]
    assert (pipelines(orch), clusters(orch)) == ([], [])


def test_each_stage_is_shown_by_name(orch: Orch) -> None:
    process = orch.start(*WORDS)
    until("the second stage runs", lambda: marks(orch)[-1:] == ["train"])
    assert "stage 2 of 3 (train) of pipe" in orch.ok("status", "pipe-2")
    assert "pipe 2/3 train" in orch.ok("status")
    assert "pipe 2/3 train" in orch.ok("runs")
    queue = orch.ok("queue")
    assert "2 of 3 (train)" in queue and "pipe-2" in queue
    (cluster,) = read(orch, "status")["clusters"]
    stage = {"pipeline": "pipe", "stage": 2, "stages": 3, "stage_name": "train"}
    assert cluster["jobs"][0]["stage"].items() >= stage.items()
    assert read(orch, "runs")["runs"][0]["stage"].items() >= stage.items()
    (shown,) = read(orch, "queue")["pipelines"]
    assert shown["driven_by"].startswith("process ")
    go(orch, 0)
    process.communicate(timeout=100)
    assert process.returncode == 0
