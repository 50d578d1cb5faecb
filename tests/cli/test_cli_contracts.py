"""What the newer verbs print as JSON is what their schemas say; their words for people name the next step."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from orchestrator.cli.drawing.outcomes import attempt_table, ending_as_json
from orchestrator.engine.preparation.candidates import list_candidates
from orchestrator.engine.preparation.prepared import CommandResult
from orchestrator.engine.rehearsal.rehearse import Faults, Played, parse_preemption, prepare_rehearsal
from orchestrator.engine.rehearsal.report import read_report
from orchestrator.errors import UserError
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import EndedAttempt, encode_evidence
from orchestrator.plan.steps import Done
from orchestrator.task.model import Task
from orchestrator.task.parse import parse_task

PACKAGE = Path(__file__).parents[2] / "orchestrator"
Orch = Callable[..., Any]


def valid(name: str, text: str) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(text)
    schema = json.loads(next(PACKAGE.glob(f"*/data/{name}.schema.json")).read_text())
    jsonschema.Draft202012Validator(schema).validate(shown)
    return shown


def test_queue_as_json(orch: Orch, filled: Path) -> None:
    said = orch("queue", "--all", "-o", "json")
    assert said.status == 0, said.err
    shown = valid("queue", said.out)
    assert [(job["id"], job["state"]) for job in shown["jobs"]] == [(1, "ended"), (2, "running")]
    assert "orch logs -f mine 2" in shown["jobs"][1]["driven_by"]


def test_an_empty_queue_is_reported(orch: Orch, home: Path) -> None:
    said = orch("queue")
    assert (said.status, said.out) == (0, "")
    assert "no job is running" in said.err


def test_reap_as_json(orch: Orch, home: Path) -> None:
    said = orch("reap", "--dry-run", "-o", "json")
    assert said.status == 0, said.err
    local, *others = valid("reap", said.out)["places"]
    assert (local["provider"], local["asked"], local["problem"], local["slices"]) == ("local", True, None, [])
    assert [(one["provider"], one["asked"], one["problem"]) for one in others] == [
        ("gcp", False, None),
        ("aws", False, None),
    ]


def test_events_as_json_carry_before_and_after(orch: Orch, filled: Path) -> None:
    said = orch("events", "mine", "-o", "json")
    events = valid("events", said.out)["events"]
    moved = [event for event in events if event["before"] and event["before"].get("state") == "planned"]
    assert moved and all(event["after"]["state"] == "accepted" for event in moved)
    assert len({event["hash"] for event in events}) == len(events)


def test_an_ending_lists_the_attempts_before() -> None:
    past = EndedAttempt(
        attempt=1,
        cause=EndCause.HUNG,
        why="host 1 stopped",
        generation=None,
        at=1e9,
        exit_code=None,
        rank=1,
        evidence=encode_evidence(7),
    )
    shown = ending_as_json(
        "c", "launch", CommandResult(step=Done("fine"), outcomes=(), job_id=1, run_id="run", attempts=(past,))
    )
    assert valid("ending", json.dumps(shown))["attempts"][0]["step"] == 7
    assert attempt_table((past,))[1].split()[0] == "1"
    assert "host 1 stopped" in attempt_table((past,))[1]


def test_watch_without_a_job_names_the_command_that_lists_jobs(orch: Orch, filled: Path) -> None:
    said = orch("watch", "mine")
    assert said.status == 3
    assert "orch queue mine --all" in said.err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--page-only", "--engine-only"), "exclude each other"),
        (("--until-idle",), "add --engine-only"),
        (("--host", "0.0.0.0"), "ssh -L"),  # it must be refused
        (("--host", "example.com"), "without TLS"),
    ],
)
def test_serve_refuses_what_would_open_it_to_others(
    orch: Orch, home: Path, words: tuple[str, ...], reason: str
) -> None:
    said = orch("serve", *words)
    assert (said.status, reason in said.err) == (2, True), said.err


def test_serve_link_needs_a_running_service(orch: Orch, home: Path) -> None:
    said = orch("serve", "--link")
    assert (said.status, "no service answers" in said.err) == (1, True), said.err


def test_an_engine_with_nothing_to_do_ends(orch: Orch, home: Path) -> None:
    assert orch("serve", "--engine-only", "--until-idle").status == 0


@pytest.mark.parametrize(
    ("words", "meant"),
    [("rank=2@step=50", (2, 50)), ("step=7", (0, 7)), ("rank=0 @ step=1", (0, 1)), ("2@50", (2, 50)), ("50", (0, 50))],
)
def test_preemptions_are_written_as_rank_and_step(words: str, meant: tuple[int, int]) -> None:
    assert parse_preemption(words) == meant


@pytest.mark.parametrize("words", ["", "rank=2", "step=", "step=-1", "rank=x@step=3"])
def test_other_forms_of_a_preemption_are_refused(words: str) -> None:
    with pytest.raises(UserError, match="not understood"):
        parse_preemption(words)


def task(text: str) -> Task:
    return parse_task(text, file="t.yaml", env={}).only


REAL = """
resources: {accelerators: v5litepod-16, infra: gcp/us-west4/us-west4-a, use_spot: true}
train: {args: {steps: 3}}
checkpoint: {bucket: "gs://real/runs"}
"""


def test_a_rehearsal_trains_what_does_not_fit_where_the_task_allows_it(tmp_path: Path) -> None:
    real = task(REAL.replace("{args: {steps: 3}}", "{args: {steps: 3}, allow_misfit: true}"))
    played = prepare_rehearsal(tmp_path / "r", real, "c", Faults()).task
    assert played.train is not None and played.train.allow_misfit


def test_a_rehearsal_of_a_task_without_a_zone_is_priced_as_its_first_place(tmp_path: Path) -> None:
    real = task("resources: {accelerators: v5litepod-8, infra: gcp}\nrun: echo hi\n")
    played = prepare_rehearsal(tmp_path / "r", real, "c", Faults()).task
    first, simulated = list_candidates(real)[0], list_candidates(played)[0]
    assert (simulated.region, simulated.zone) == (first.region, first.zone)
    assert simulated.price_per_hour is not None and simulated.price_per_hour == first.price_per_hour


def test_a_rehearsal_keeps_the_shape_and_replaces_cloud_and_bucket(tmp_path: Path) -> None:
    stage = prepare_rehearsal(tmp_path / "r", task(REAL), "c", Faults(stockouts=("us-west4-a",)))
    (choice,) = stage.task.choices
    assert (str(choice.infra), choice.machine.name, choice.use_spot) == (
        "simulated/us-west4/us-west4-a", "v5litepod-16", True,
    )  # fmt: skip
    assert stage.task.count_hosts(choice) == 4
    assert stage.task.checkpoint.bucket == f"file://{tmp_path / 'r' / 'bucket'}"
    assert Task.from_json(stage.task.to_json()) == stage.task
    scenario = (stage.state / "simulated" / "scenario.toml").read_text()
    assert 'zone = "us-west4-a"' in scenario


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        (Faults(preemptions=((4, 1),)), "no rank 4"),
        (Faults(stockouts=('a"\n[[event]]',)), "not a zone"),
        (Faults(scenario="/nowhere.toml"), "cannot be read"),
    ],
)
def test_faults_that_cannot_be_are_refused_before_anything_is_started(
    tmp_path: Path, faults: Faults, words: str
) -> None:
    with pytest.raises(UserError, match=words):
        prepare_rehearsal(tmp_path / "r", task(REAL), "c", faults)


def test_a_slice_that_is_too_large_for_one_computer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="too many"):
        prepare_rehearsal(tmp_path / "r", task(REAL.replace("v5litepod-16", "v5litepod-256")), "c", Faults())


def test_a_rehearsal_in_which_nothing_was_started_has_a_report(home: Path, tmp_path: Path) -> None:
    report = read_report(
        tmp_path / "none.db", tmp_path / "none.jsonl", "c", Played(status=1, kills=0, attempts={}), 5.0
    )
    assert (report.status, report.resumes, report.loss_continued) == (None, (), None)


@pytest.mark.promise("P25")
def test_a_record_that_was_changed_behind_our_back_is_found(orch: Orch, filled: Path) -> None:
    import sqlite3

    assert orch("events", "--verify").status == 0
    with sqlite3.connect(filled / "state" / "orch.db") as raw:
        raw.execute("UPDATE jobs SET status = 0 WHERE id = 1")
    raw.close()
    said = orch("events", "--verify")
    assert said.status == 1
    assert "was changed by another program: status" in said.err
    assert len(said.err.strip().splitlines()) <= 5
