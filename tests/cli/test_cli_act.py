"""Showing and carrying out a command: the preview does nothing, and money is only spent after consent."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from orchestrator.cli.drawing.outcomes import ending_as_json, failed_host_table
from orchestrator.engine.preparation.prepared import CommandResult
from orchestrator.hosts import Failure, HostOutcome
from orchestrator.next_step import NextStep
from orchestrator.plan.steps import Done, GiveUp

Orch = Callable[..., Any]
ROOT = Path(__file__).parents[2]
TASK = """
name: mine
resources: {infra: "local:2"}
envs: {GREETING: hello}
secrets: {TOKEN: null}
run: echo $GREETING
"""
# A launch of machines that cost, on the one provider that always exists; the drive itself is never reached.
ASK = """
import os, sys
from dataclasses import replace
from orchestrator.cli.execution.act import PerformMode, carry_out
from orchestrator.cli.failures import print_error
from orchestrator.engine.loop import drive
from orchestrator.engine.preparation.commands import prepare_launch
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.task.parse import parse_task

price = None if sys.argv[1] == "unknown" else float(sys.argv[1])
task = parse_task("run: echo hi\\nresources: {infra: local}", file="t", env={}).only
ready = prepare_launch(task, cluster="mine", after=TeardownPolicy.KEEP)
priced = tuple(replace(one, price_per_hour=price, price_note="list price") for one in ready.desired.candidates)
ready = replace(ready, desired=replace(ready.desired, candidates=priced))
class Reached(Exception): pass
def reached(*_a, **_k): raise Reached()
drive.drive_cluster = reached
try:
    carry_out(ready, PerformMode(consent="--yes" in sys.argv))
except Reached:
    print("BEGUN")
except Exception as error:
    sys.exit(print_error(error, debug=False))
"""


@pytest.fixture
def task(tmp_path: Path) -> Path:
    path = tmp_path / "task.yaml"
    path.write_text(TASK)
    return path


def test_a_preview_does_nothing_and_ends_with_the_command_that_does(orch: Orch, task: Path, home: Path) -> None:
    said = orch("launch", str(task), "--secret", "TOKEN=hunter2", "--dry-run")
    assert said.status == 0 and all(line.startswith("note: ") for line in said.err.splitlines())
    assert "2 hosts" in said.out and "echo $GREETING" not in said.out
    verbose = orch("launch", str(task), "--secret", "TOKEN=hunter2", "--dry-run", "-v")
    assert "echo $GREETING" in verbose.out and "TOKEN=****" in verbose.out
    for shown in (said.out, verbose.out):
        assert shown.rstrip().endswith(f"orch launch {task} --secret TOKEN")
        assert "hunter2" not in shown
    assert not (home / "state" / "orch.db").exists()


def test_plan_is_the_dry_run_of_launch(orch: Orch, task: Path) -> None:
    words = (str(task), "--secret", "TOKEN=hunter2")
    assert orch("plan", *words).out == orch("launch", *words, "--dry-run").out


def test_the_preview_in_all_forms_needs_no_network(orch: Orch, task: Path) -> None:
    words = ("plan", str(task), "--secret", "TOKEN=hunter2", "-o")
    found = json.loads(orch(*words, "json").out)
    schema = json.loads((ROOT / "orchestrator" / "plan" / "data" / "plan.schema.json").read_text())
    jsonschema.validate(found, schema)
    script = orch(*words, "sh").out
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert "hunter2" not in script and "hunter2" not in json.dumps(found)


def test_flags_override_the_file(orch: Orch, task: Path) -> None:
    out = orch(
        "plan", str(task), "--secret", "TOKEN=x", "--infra", "local:3", "--env", "GREETING=bye", "-c", "other", "-v"
    ).out
    assert "3 hosts" in out and "GREETING=bye" in out and "'other'" in out and "'mine'" not in out


def test_train_needs_no_file(orch: Orch) -> None:
    said = orch("train", "local:2", "model=tiny", "steps=7", "--bucket", "file:///tmp/b", "--dry-run", "-v")
    assert said.status == 0, said.err
    assert "steps=7" in said.out and "2 hosts" in said.out and "file:///tmp/b" in said.out


def test_train_with_a_setting_in_place_of_hosts_is_refused(orch: Orch) -> None:
    said = orch("train", "steps=7")
    assert said.status == 2 and "where to train" in said.err
    assert orch("train", "local:2", "steps").status == 2


def test_the_preview_of_a_pipeline_shows_every_stage_on_its_own_cluster(orch: Orch, tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text("name: both\n---\nrun: echo a\n---\nrun: echo b\n")
    said = orch("launch", str(path), "--dry-run")
    assert said.status == 0, said.err
    assert [line for line in said.out.splitlines() if line.startswith(("Stage", "Plan to run"))] == [
        "Stage 1 of 2",
        "Plan to run cluster 'both-1'",
        "Stage 2 of 2",
        "Plan to run cluster 'both-2'",
    ]


def test_the_json_preview_of_a_pipeline_is_one_document(orch: Orch, tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text("name: both\n---\nrun: echo a\n---\nrun: echo b\n")
    said = orch("plan", str(path), "-o", "json")
    assert said.status == 0, said.err
    found = json.loads(said.out)
    schema = json.loads((ROOT / "orchestrator" / "plan" / "data" / "plan.schema.json").read_text())
    jsonschema.validate(found, schema)
    assert (found["version"], found["kind"], found["name"]) == (1, "plans", "both")
    assert [(one["kind"], one["wanted"]["cluster"]) for one in found["plans"]] == [
        ("plan", "both-1"),
        ("plan", "both-2"),
    ]
    assert orch("launch", str(path), "--dry-run", "-o", "json").out == said.out.replace("orch plan", "orch launch")


def test_a_secret_without_value_is_refused_before_anything(orch: Orch, task: Path) -> None:
    said = orch("launch", str(task), "--dry-run")
    assert said.status == 2 and "TOKEN" in said.err


@pytest.mark.parametrize("option", [("-o", "sh"), ("-v",)])
def test_options_of_the_preview_are_refused_without_it(orch: Orch, task: Path, option: tuple[str, ...]) -> None:
    said = orch("launch", str(task), *option)
    assert said.status == 2 and "--dry-run" in said.err


REFUSED = """
resources: {infra: aws/us-east-1, accelerators: "H100:8"}
file_mounts: {/data: {source: "s3://books", mode: MOUNT, read_only: true}}
run: echo hi
"""


@pytest.mark.parametrize("form", ["text", "json", "sh"])
def test_a_preview_of_what_launch_refuses_exits_as_launch_does(orch: Orch, tmp_path: Path, form: str) -> None:
    path = tmp_path / "refused.yaml"
    path.write_text(REFUSED)
    launched, planned = orch("launch", str(path), "--yes"), orch("plan", str(path), "-o", form)
    assert launched.status == planned.status == 4 and "no instance profile" in launched.err
    if form == "json":
        refusal = json.loads(planned.out)["refusal"]
        assert refusal["status"] == 4 and refusal["code"] == "permission" and "s3://books" in refusal["what"]
    else:
        assert "no instance profile" in planned.out + planned.err


def test_a_preview_that_cannot_succeed_exits_as_the_command_does(orch: Orch, filled: Path) -> None:
    stopped = orch("stop", "mine-without-machines", "--dry-run")
    assert stopped.status == 3


@pytest.mark.parametrize("verb", ["stop", "start", "down", "cancel", "exec"])
def test_a_command_on_an_unknown_cluster_is_exit_3(orch: Orch, filled: Path, verb: str) -> None:
    said = orch(verb, "nine", *(["--", "ls"] if verb == "exec" else []))
    assert said.status == 3 and said.out == "" and "nine" in said.err


@pytest.mark.parametrize("verb", ["stop", "down", "cancel"])
def test_ending_commands_can_be_previewed_without_a_change(orch: Orch, filled: Path, verb: str) -> None:
    before = json.loads(orch("events", "-o", "json").out)["events"]
    said = orch(verb, "mine", "--dry-run")
    assert said.status == 0 and said.out
    assert json.loads(orch(verb, "mine", "--dry-run", "-o", "json").out)["kind"] == "plan"
    assert json.loads(orch("events", "-o", "json").out)["events"] == before


def test_exec_keeps_arguments_apart_and_a_single_one_is_a_line(orch: Orch, filled: Path) -> None:
    assert (
        "python -c 'print(\"a b\")'"
        in orch("exec", "mine", "--dry-run", "-v", "--", "python", "-c", 'print("a b")').out
    )
    assert "df -h | tail -1" in orch("exec", "mine", "--dry-run", "-v", "--", "df -h | tail -1").out


def test_exec_hides_secrets_and_requires_values(orch: Orch, filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_SHELL", "seen")
    said = orch("exec", "mine", "--env", "FROM_SHELL", "--secret", "KEY=hunter2", "--dry-run", "-v", "--", "ls")
    assert "FROM_SHELL=seen" in said.out and "KEY=****" in said.out and "hunter2" not in said.out
    missing = orch("exec", "mine", "--env", "NOT_SET_HERE", "--dry-run", "-v", "--", "ls")
    assert missing.status == 2 and "export NOT_SET_HERE" in missing.err


def test_several_clusters_are_all_tried_and_the_first_failure_counts(orch: Orch, filled: Path) -> None:
    said = orch("down", "nine", "mine", "--dry-run")
    assert said.status == 3
    assert "nine" in said.err and "mine-2" in said.out


# --- money ------------------------------------------------------------------------------------------------


def ask_process(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", ASK, *words]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, check=False)


@pytest.mark.parametrize("price", ["12.5", "unknown"])
def test_money_is_not_spent_without_a_terminal_or_yes(home: Path, price: str) -> None:
    done = ask_process(price)
    assert done.returncode == 2 and "BEGUN" not in done.stdout
    assert "--yes" in done.stderr
    assert ("$12.50/h" if price == "12.5" else "price not known") in done.stderr


@pytest.mark.parametrize("words", [("12.5", "--yes"), ("unknown", "--yes"), ("0",)])
def test_consent_or_a_price_of_nothing_needs_no_question(home: Path, words: tuple[str, ...]) -> None:
    done = ask_process(*words)
    assert done.returncode == 0 and done.stdout == "BEGUN\n", done.stderr


def on_a_terminal(answer: bytes) -> tuple[int, bytes]:
    """The question on a real terminal, answered by typing."""
    process, terminal = pty.fork()
    if process == 0:
        os.execv(sys.executable, [sys.executable, "-c", ASK, "12.5"])
    seen = b""
    while b"[y/N]" not in seen and select.select([terminal], [], [], 60)[0]:
        seen += os.read(terminal, 4096)
    os.write(terminal, answer)
    while True:
        # Long enough for an interpreter to end on a busy machine: a second signal in its last steps would kill it.
        if not select.select([terminal], [], [], 10.0)[0] and answer == b"\x03":
            os.write(terminal, answer)  # a signal just before read(2) begins is seen only when it returns: press again
            continue
        try:
            block = os.read(terminal, 4096)
        except OSError:  # Linux says EIO when the other side has closed
            break
        if not block:
            break
        seen += block
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), seen


def test_the_question_shows_the_price_and_may_be_confirmed(home: Path) -> None:
    status, seen = on_a_terminal(b"y\n")
    assert status == 0 and b"$12.50/h" in seen and b"BEGUN" in seen
    head = seen[: seen.index(b"[y/N]")]
    for piece in (b"machines   local", b"price      $12.50/h", b"restarts", b"afterwards"):
        assert piece in head, piece


@pytest.mark.parametrize("answer", [b"n\n", b"\n"])
def test_a_person_may_refuse_and_that_is_what_enter_does(home: Path, answer: bytes) -> None:
    status, seen = on_a_terminal(answer)
    assert status == 1 and b"nothing was done" in seen and b"BEGUN" not in seen


def test_ctrl_c_at_the_question_is_130(home: Path) -> None:
    status, seen = on_a_terminal(b"\x03")
    assert status == 130 and b"BEGUN" not in seen


# --- the ending -------------------------------------------------------------------------------------------


def outcome(rank: int, **how: Any) -> HostOutcome:
    return HostOutcome(rank=rank, host=f"10.0.0.{rank}", seconds=1.5, **how)


def test_the_table_names_host_rank_verdict_seconds_and_last_line() -> None:
    lines = failed_host_table(
        (
            outcome(0, exit_code=0),
            outcome(1, exit_code=3, last_line="no space left"),
            outcome(2, signal="SEGV"),
            outcome(3, failure=Failure.LOST, detail="connection reset"),
            outcome(4, exit_code=0),
        )
    )
    assert lines[0].split() == ["HOST", "RANK", "RESULT", "TOOK", "LAST", "LINE"]
    assert lines[1].split("  ")[0] == "worker1 (10.0.0.1)" and "exit 3" in lines[1] and "no space left" in lines[1]
    assert "signal SEGV" in lines[2]
    assert "lost" in lines[3] and "connection reset" in lines[3]
    assert lines[4] == "hosts 0,4: exit 0"


def test_a_thousand_failed_hosts_are_counted_not_listed() -> None:
    lines = failed_host_table(tuple(outcome(rank, exit_code=rank % 2 + 1) for rank in range(1000)))
    assert len(lines) < 50
    assert "968 more failed hosts" in lines[-1] and "exit 1: 484" in lines[-1]


def test_a_last_line_cannot_move_the_cursor() -> None:
    lines = failed_host_table((outcome(1, exit_code=1, last_line="a\x1b[2Jb\rc"),))
    assert "\x1b" not in lines[1] and "\r" not in lines[1]


def test_endings_as_json_keep_their_schema() -> None:
    schema = json.loads((ROOT / "orchestrator" / "cli" / "data" / "ending.schema.json").read_text())
    hosts = (outcome(0, exit_code=0), outcome(1, signal="TERM"), outcome(2, failure=Failure.FROZEN, detail="no answer"))
    endings = [
        CommandResult(step=Done("all is well"), outcomes=hosts[:1], job_id=1, run_id="run-1"),
        CommandResult(
            step=GiveUp(
                code="host-lost", status=8, what="a host was lost", why="frozen", next_step=NextStep("orch resume")
            ),
            outcomes=hosts,
            job_id=2,
            run_id="run-2",
        ),
        CommandResult(step=GiveUp(code="conflict", status=6, what="another owner")),
    ]
    for ending in endings:
        document = ending_as_json("mine", "launch", ending)
        jsonschema.validate(json.loads(json.dumps(document)), schema)
        assert document["status"] == ending.status
    broken = {**ending_as_json("mine", "launch", endings[0]), "status": "0"}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, schema)


def test_a_giveup_keeps_its_message_and_status() -> None:
    error = GiveUp(code="host-lost", status=8, what="a", why="b", next_step=NextStep(words="c")).make_error()
    assert error.lines() == ["error[host-lost]: a", "  why:  b", "  next: c"] and error.exit_status == 8
