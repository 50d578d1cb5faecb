"""Jobs that are left alone: an unattended engine recovers them, runs the queue in order, and ends by itself."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.orch_process import Orch, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LONG = """
name: mine
resources: {infra: "local:2"}
workdir: work
run: |
  cat word.txt
  echo "attempt $ORCH_ATTEMPT rank $ORCH_RANK" >> "$MARKS"
  for i in $(seq 150); do [ -e "$GO" ] && exit 0; sleep 0.2; done
  exit 9
"""


@pytest.fixture
def orch(tmp_path: Path) -> Iterator[Orch]:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "word.txt").write_text("first words\n")
    (tmp_path / "long.yaml").write_text(LONG)
    orch = Orch(tmp_path, {"MARKS": str(tmp_path / "marks"), "GO": str(tmp_path / "go")})
    yield orch
    for name in ("mine", "pipe-1", "pipe-2"):
        orch("down", name)
    (tmp_path / "go").write_text("")
    until("the engine ends when nothing is left to do", lambda: not orch.engines(), 40)


def queue(orch: Orch, *more: str) -> dict[int, dict[str, Any]]:
    jobs = json.loads(orch.ok("queue", "-o", "json", *more))["jobs"]
    return {job["id"]: job for job in jobs}


def launch(orch: Orch, *more: str) -> None:
    names = [word for name in ("MARKS", "GO") for word in ("--env", name)]
    orch.ok("launch", "long.yaml", "--detach", *names, *more)


def test_a_detached_job_survives_a_preemption_with_the_files_it_was_launched_with(orch: Orch) -> None:
    launch(orch)
    (orch.folder / "work" / "word.txt").write_text("other words\n")  # must not reach the second attempt
    marks = orch.folder / "marks"
    until("both ranks run", lambda: marks.exists() and len(marks.read_text().split("\n")) == 3)
    orch.ok("local", "preempt", "mine", "1")
    until("a second attempt runs", lambda: "attempt 2 rank 1" in marks.read_text())
    (orch.folder / "go").write_text("")
    until("job 1 succeeds", lambda: queue(orch, "--all")[1]["status"] == 0)
    assert orch.ok("logs", "mine", "1").count("first words") == 2
    assert "other words" not in orch.ok("logs", "mine", "1")
    assert "attempt 1 ended (preempted" in orch.ok("status", "mine")


def test_an_engine_that_is_killed_leaves_the_job_to_the_next(orch: Orch) -> None:
    launch(orch)
    assert not queue(orch)[1]["driven_by"].startswith("none"), "the queue knows of the engine when launch returns"
    until("an engine is there", lambda: len(orch.engines()) == 1)
    os.kill(orch.engines()[0], signal.SIGKILL)
    until("it is gone", lambda: not orch.engines())
    (orch.folder / "go").write_text("")
    watching = orch("watch", "mine")
    assert watching.returncode == 0, watching.stderr
    assert queue(orch, "--all")[1]["status"] == 0


def test_jobs_on_one_cluster_run_in_order_and_a_queued_one_can_be_cancelled(orch: Orch) -> None:
    launch(orch)
    for word in ("two", "three"):
        (orch.folder / f"{word}.yaml").write_text(f"name: mine\nresources: {{infra: 'local:2'}}\nrun: echo {word}\n")
        said = orch("launch", f"{word}.yaml", "--detach")
        assert (said.returncode, "is queued" in said.stderr) == (0, True), said.stderr
    assert [job["state"] for job in queue(orch).values()] == ["running", "queued", "queued"]
    refused = orch("launch", "three.yaml", "--env", "OTHER=1")
    assert refused.returncode == 6
    assert "--detach" in refused.stderr
    orch.ok("cancel", "mine", "2")
    (orch.folder / "go").write_text("")
    until("job 3 succeeds", lambda: queue(orch, "--all")[3]["status"] == 0)
    after = queue(orch, "--all")
    assert {number: job["status"] for number, job in after.items()} == {1: 0, 2: 130, 3: 0}


def test_cancel_of_a_running_job_is_final_also_with_an_engine_at_it(orch: Orch) -> None:
    launch(orch, "--max-failures", "3")
    marks = orch.folder / "marks"
    until("both ranks run", lambda: marks.exists() and len(marks.read_text().split("\n")) == 3)
    orch.ok("cancel", "mine")
    until("it is over", lambda: queue(orch, "--all")[1]["state"] == "ended")
    assert queue(orch, "--all")[1]["status"] == 130
    assert marks.read_text().count("attempt") == 2, "it was started again"


PIPELINE = """
name: pipe
---
name: one
resources: {infra: "local:1"}
run: echo one >> "$MARKS"
---
name: two
resources: {infra: "local:1"}
run: |
  echo two >> "$MARKS"
  exit $CODE
"""


@pytest.mark.parametrize("detached", [False, True])
def test_a_pipeline_runs_its_stages_in_order_and_ends_each_cluster(orch: Orch, detached: bool) -> None:
    (orch.folder / "pipe.yaml").write_text(PIPELINE)
    more = ["--detach"] if detached else []
    done = orch("launch", "pipe.yaml", "--env", "MARKS", "--env", "CODE=3", *more)
    assert done.returncode == (0 if detached else 3), done.stderr

    def over() -> bool:
        shown = json.loads(orch.ok("queue", "-a", "-o", "json"))["pipelines"]
        return bool(shown) and shown[0]["state"] == "ended"

    until("the pipeline is over", over)
    (pipeline,) = json.loads(orch.ok("queue", "-a", "-o", "json"))["pipelines"]
    assert (pipeline["stage"], pipeline["status"]) == (2, 3)
    assert (orch.folder / "marks").read_text() == "one\ntwo\n"
    until("both clusters are gone", lambda: not json.loads(orch.ok("status", "-o", "json"))["clusters"])


def test_an_interrupted_pipeline_resumes_at_its_stage(orch: Orch) -> None:
    slow = PIPELINE.replace('echo two >> "$MARKS"', 'echo two >> "$MARKS"; while [ ! -e "$GO" ]; do sleep 0.1; done')
    (orch.folder / "pipe.yaml").write_text(slow)
    words = ("launch", "pipe.yaml", "--env", "MARKS", "--env", "GO", "--env", "CODE=0")
    first = orch.start(*words)
    marks = orch.folder / "marks"
    until("stage two runs", lambda: marks.exists() and marks.read_text() == "one\ntwo\n")
    first.kill()
    first.communicate()
    (orch.folder / "go").write_text("")
    orch.ok(*words)
    assert marks.read_text() == "one\ntwo\n"


def test_a_down_that_was_cut_off_is_finished_by_the_next_launch(orch: Orch) -> None:
    (orch.folder / "go").write_text("")
    names = [word for name in ("MARKS", "GO") for word in ("--env", name)]
    orch.ok("launch", "long.yaml", *names)
    from orchestrator.store.store import Store

    with Store(orch.state / "orch.db") as store:
        record = store.cluster("mine")
        assert record is not None
        store.set_desired_state(record, "down")  # what a killed `down` leaves
    again = orch("launch", "long.yaml", *names)
    assert again.returncode == 0, again.stderr
    assert "finished first" in again.stderr
    with Store(orch.state / "orch.db") as store:
        fresh = store.cluster("mine")
        assert fresh is not None
        assert fresh.uid != record.uid
