"""Rehearsals as a person gives them: faults, reports for people and programs, and nothing left behind."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support.orch_process import Orch, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2] / "orchestrator"
SCHEMA = json.loads((ROOT / "cli" / "data" / "rehearsal.schema.json").read_text())
TRAIN = """
name: reh
resources: {accelerators: v5litepod-8, infra: gcp/us-west4/us-west4-a, use_spot: true}
train:
  args: {model.dim: 64, model.layers: 1, model.heads: 2, model.kv_heads: 1, steps: 60, batch: 32, threads: 1}
checkpoint: {bucket: "gs://real/runs", every: 20}
"""
ECHO = "name: plain\nresources: {infra: 'local:2'}\nrun: |\n  echo from-the-program $ORCH_RANK\n  %s\n"
OWN = """
name: own
resources: {accelerators: v5litepod-8, infra: gcp/us-west4/us-west4-a, use_spot: true}
checkpoint: {bucket: "gs://real/runs"}
run: |
  mkdir -p "${ORCH_CHECKPOINT_URI#file://}"
  saved=${ORCH_CHECKPOINT_URI#file://}/newest
  step=0
  [ -z "${ORCH_RESUME_FROM:-}" ] || step=%s
  while [ $step -lt 80 ]; do
    sleep 0.1
    step=$((step + 1))
    echo $step >"$ORCH_HEARTBEAT_FILE"
    %s
  done
"""
TWO_PLACES = """
name: places
resources:
  any_of:
  - {accelerators: v5litepod-8, infra: gcp/us-west4/us-west4-a}
  - {accelerators: v5litepod-8, infra: gcp/us-east5/us-east5-b}
run: echo here
"""


@pytest.fixture
def orch(tmp_path: Path) -> Iterator[Orch]:
    (tmp_path / "tmp").mkdir()
    orch = Orch(tmp_path, {"TMPDIR": str(tmp_path / "tmp")})
    yield orch
    assert not left(orch), "a rehearsal left processes"


def left(orch: Orch) -> list[str]:
    """Command lines of processes that belong to a rehearsal of this test."""
    found: list[str] = []
    for proc in Path("/proc").iterdir():
        try:
            words = (proc / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"{orch.folder}/tmp/orch-rehearsal-" in words:
            found.append(words)
    return found


def folders(orch: Orch) -> list[str]:
    return [path.name for path in (orch.folder / "tmp").glob("orch-rehearsal-*")]


def play(orch: Orch, text: str, *more: str, status: int = 0) -> tuple[dict[str, Any], str]:
    """The report as JSON, valid by its schema, and what was said beside it."""
    (orch.folder / "task.yaml").write_text(text)
    done = orch("rehearse", "task.yaml", "-o", "json", *more, timeout=200)
    assert done.returncode == status, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)  # stdout holds the report alone
    jsonschema.Draft202012Validator(SCHEMA).validate(report)
    assert folders(orch) == []
    return report, done.stderr


BUCKETS = """
name: books
resources: {accelerators: v5litepod-8, infra: gcp/us-west4/us-west4-a}
num_nodes: 2
file_mounts:
  ~/in: {source: "gs://real/books", mode: COPY}
  ~/out: {source: "gs://real/out", mode: MOUNT}
run: |
  [ "$(cat ~/in/a.txt)" = sample ]
  echo changed >~/in/a.txt
  touch ~/out/$ORCH_RANK
  for try in $(seq 50); do [ -e ~/out/0 ] && [ -e ~/out/1 ] && exit 0; sleep 0.1; done
  exit 9
"""


def test_folders_stand_for_the_buckets_that_a_task_mounts(orch: Orch) -> None:
    (orch.folder / "sample").mkdir()
    (orch.folder / "sample" / "a.txt").write_text("sample")
    report, said = play(orch, BUCKETS, "--bucket-folder", "gs://real/books=./sample")
    assert report["status"] == 0, said
    assert "note: ~/out is an empty folder here, not gs://real/out" in said
    assert (orch.folder / "sample" / "a.txt").read_text() == "sample"
    done = orch("rehearse", "task.yaml")
    assert done.returncode == 2 and "--bucket-folder gs://real/books=./FOLDER" in done.stderr


def test_a_launcher_that_is_killed_three_times_loses_no_work(orch: Orch) -> None:
    # A seed whose kills come within seconds of each other: the program must not be faster than they are.
    report, said = play(orch, TRAIN.replace("steps: 60", "steps: 400"), "--crash-launcher", "3", "--seed", "1128")
    assert said.count("was killed; it is started again") == 3
    assert (report["launcher_crashes"], report["status"], report["steps"]) == (3, 0, 400)
    assert report["resumes"] == [], "a launcher's end is no loss of the program"


def test_a_preemption_is_reported_with_what_it_cost(orch: Orch) -> None:
    report, _ = play(orch, TRAIN.replace("steps: 60", "steps: 400"), "--preempt", "step=25")
    (resume,) = report["resumes"]
    assert resume["cause"] == "preempted"
    assert 1.0 <= resume["seconds"] <= 60.0, "the cloud alone takes a second"
    assert resume["lost_steps"] is not None
    assert report["loss_continued"] is not False
    assert report["dollars"] > 0


@pytest.mark.parametrize(
    ("load", "save", "why"),
    [
        ("$(cat $saved)", "echo $step >$saved", None),
        ("0", "echo $step >$saved", "holds files"),
        ("0", "true", "had saved nothing"),
    ],
)
def test_an_own_program_that_does_not_resume_is_named(orch: Orch, load: str, save: str, why: str | None) -> None:
    report, said = play(orch, OWN % (load, save), "--preempt", "step=40", status=0 if why is None else 13)
    assert report["status"] == 0, "the program itself succeeded"
    assert "on another computer" not in said, "no other computer has this bucket"
    (resume,) = report["resumes"]
    assert (report["resumed"], resume["began_again"]) == (why is None, why is not None)
    assert ("error[not-resumed]: your program does not resume" in said) is (why is not None)
    assert why is None or why in said
    assert (resume["lost_steps"] >= 20) is (why is not None)


def test_a_fault_that_did_not_happen_is_reported(orch: Orch) -> None:
    _, said = play(orch, TRAIN, "--preempt", "step=100000", status=13)
    assert "error[not-preempted]: 0 of 1 preemption happened" in said
    assert "choose an earlier step" in said


def test_a_program_without_heartbeats_cannot_be_preempted_and_that_is_the_reason(orch: Orch) -> None:
    (orch.folder / "task.yaml").write_text(ECHO % "true")
    done = orch("rehearse", "task.yaml", "--preempt", "0@2")
    assert done.returncode == 13
    assert "0 of 1 preemption happened" in done.stderr
    assert "your program writes no steps to $ORCH_HEARTBEAT_FILE" in done.stderr
    assert "add --preempt" not in done.stdout + done.stderr


def test_a_stockout_moves_the_task_to_its_next_choice(orch: Orch) -> None:
    report, _ = play(orch, TWO_PLACES, "--stockout", "us-west4-a")
    moments = " ".join(moment["what"] for moment in report["moments"])
    assert "us-west4-a has 0 hosts" in moments
    assert "us-east5-b" in moments
    refused, said = play(orch, TWO_PLACES, "--stockout", "us-west4-a", "--stockout", "us-east5-b", status=5)
    assert refused["status"] == 5
    assert "error[capacity]" in said


def test_a_scenario_file_can_be_played_to_its_end(orch: Orch) -> None:
    path = ROOT / "simulator" / "scenarios" / "calm.toml"
    text = TWO_PLACES.replace("echo here", "echo here; sleep 1")
    (orch.folder / "task.yaml").write_text(text)
    done = orch("rehearse", "task.yaml", "-o", "json", "--scenario", str(path), timeout=280)
    report = json.loads(done.stdout)
    jsonschema.Draft202012Validator(SCHEMA).validate(report)
    assert done.returncode == report["status"], done.stderr
    assert folders(orch) == []


def test_a_program_that_fails_is_the_exit_status_and_its_output_is_not_in_the_report(orch: Orch) -> None:
    report, said = play(orch, ECHO % "[ $ORCH_RANK = 0 ] || exit 4", status=4)
    assert "job 1 failed on worker1 (rank 1): exit 4" in report["what"]
    assert "from-the-program 1" in said
    assert "orch logs" not in said, "its cluster is gone: such advice leads nowhere"


def test_a_setup_that_fails_is_reported_once_and_ends_it(orch: Orch) -> None:
    report, said = play(orch, ECHO % "true" + "setup: exit 3\n", status=7)
    assert report["what"].startswith("setup failed on")
    assert "error[setup-failed]" in said
    done = orch("rehearse", "task.yaml", "--preempt", "step=2")
    assert done.returncode == 7
    assert "resuming was not tried: the task failed before a loss" in done.stdout
    assert "preemption happened" not in done.stderr


def test_several_tasks_are_refused_and_leave_no_folder(orch: Orch) -> None:
    (orch.folder / "two.yaml").write_text(f"{ECHO % 'true'}---\n{(ECHO % 'true').replace('plain', 'second')}")
    done = orch("rehearse", "two.yaml")
    assert done.returncode == 2
    assert "a rehearsal runs one" in done.stderr
    assert len(done.stderr.splitlines()) <= 5
    refused = orch("rehearse", "two.yaml", "--preempt", "nonsense")
    assert (refused.returncode, folders(orch)) == (2, [])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_rehearsal_leaves_no_process_and_no_folder(orch: Orch, number: signal.Signals) -> None:
    (orch.folder / "task.yaml").write_text(ECHO % "sleep 100")
    process = orch.start("rehearse", "task.yaml")
    try:
        assert process.stdout is not None
        process.stdout.readline()  # the program runs
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert "Traceback" not in said
    until("its processes are gone", lambda: not left(orch), 20)
    assert folders(orch) == []


def test_a_kept_rehearsal_prints_its_folder(orch: Orch) -> None:
    (orch.folder / "task.yaml").write_text(ECHO % "true")
    done = orch("rehearse", "task.yaml", "--keep")
    assert done.returncode == 0, done.stderr
    (folder,) = folders(orch)
    assert folder in done.stderr
    assert "from-the-program 0" in done.stdout
    assert "result        job 1 on 'plain' succeeded" in done.stdout
