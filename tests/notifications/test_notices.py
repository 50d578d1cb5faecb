"""Which events people are notified of, from the events that the store itself writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_history import FAILURE, SUCCESS, History

from orchestrator.notifications.messages import make_messages
from orchestrator.notifications.notices import Kind, Notice
from orchestrator.notifications.reading import read_notices
from orchestrator.notifications.webhook import message_as_json
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import IntentState, Outcome
from orchestrator.store.channel_records import CONDITION, ENGINE
from orchestrator.store.read import Reader


def notices(home: Path, after: int = 0) -> tuple[Notice, ...]:
    with Reader(home / "state" / "orch.db") as reader:
        return read_notices(reader, after)[0]


def test_a_run_that_succeeds_is_one_notice(history: History, own_home: Path) -> None:
    history.run()
    (notice,) = notices(own_home)
    assert (notice.kind, notice.title, notice.status) == (Kind.ENDED, "run run-of-mine on 'mine' succeeded", 0)
    assert (notice.cluster, notice.job, notice.run_id, notice.project) == ("mine", 1, "run-of-mine", "default")


def test_a_failure_has_the_cause_the_next_command_and_no_control_characters(history: History, own_home: Path) -> None:
    history.run(outcome=FAILURE)
    (notice,) = notices(own_home)
    assert notice.kind is Kind.FAILED and notice.status == 1
    assert notice.title == "run run-of-mine on 'mine' failed: program failed on worker1"
    assert "out of memory" in notice.why and "\x1b" not in notice.why and "\x07" not in notice.why
    assert notice.next_step.command == "orch logs mine 1"


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (Outcome(status=130, code="cancelled", what="job 1 was cancelled"), Kind.ENDED),
        (Outcome(status=130, code="abandoned", what="job 1 was never started"), Kind.FAILED),
        (Outcome(status=12, code="limit", what="limit of $5.00 reached"), Kind.LIMIT),
        (Outcome(status=9, code="host-lost", what="hosts were lost 3 times"), Kind.FAILED),
    ],
)
def test_the_kind_follows_from_how_a_job_ended(history: History, own_home: Path, outcome: Outcome, kind: Kind) -> None:
    history.run(outcome=outcome)
    assert [one.kind for one in notices(own_home)] == [kind]


def test_a_notice_of_a_run_has_what_its_output_says(history: History, own_home: Path) -> None:
    history.run(outcome=FAILURE)
    with Reader(own_home / "state" / "orch.db") as reader:
        (notice,), _ = read_notices(reader, 0, lambda job: f"step {job.id}, loss 2.31 (from output)\x1b[2J")
    assert notice.progress == "step 1, loss 2.31 (from output)\\x1b[2J"
    (message,) = make_messages([notice], "team", "abc", notice.at)
    assert f"progress: {notice.progress}" in message.lines
    sent: Any = message_as_json(message, "abc")
    assert sent["items"][0]["progress"] == notice.progress


def test_commands_on_hosts_are_no_runs(history: History, own_home: Path) -> None:
    cluster = history.cluster()
    job = history.job(cluster, "", kind="exec")
    history.start(cluster, job)
    history.end(cluster, job, FAILURE)
    assert notices(own_home) == ()


@pytest.mark.parametrize("cause", [EndCause.PREEMPTED, EndCause.HOST_DIED, EndCause.UNREACHABLE, EndCause.HUNG])
def test_each_loss_is_one_notice_though_the_slice_ends_too(history: History, own_home: Path, cause: EndCause) -> None:
    cluster = history.cluster()
    job = history.job(cluster)
    history.slice(cluster, 1, IntentState.ACCEPTED)
    history.start(cluster, job)
    history.lose(cluster, job, cause)
    history.slice(cluster, 1, IntentState.ENDING, IntentState.DELETED, cause=cause)
    (notice,) = notices(own_home)
    assert notice.kind is Kind.LOST and "(attempt 1)" in notice.title
    assert notice.why == "the provider took host 3 back"


def test_a_run_that_moves_to_better_machines_is_one_notice_and_no_loss(history: History, own_home: Path) -> None:
    cluster = history.cluster()
    job = history.job(cluster)
    history.slice(cluster, 1, IntentState.ACCEPTED)
    history.start(cluster, job)
    history.lose(cluster, job, EndCause.GROWN)
    history.slice(cluster, 1, IntentState.ENDING, IntentState.DELETED, cause=EndCause.GROWN)
    (notice,) = notices(own_home)
    assert notice.kind is Kind.GROWN
    assert notice.title == "run llama-1 on 'mine' leaves its machines for better ones (attempt 1)"
    assert notice.why and notice.next_step.command == "orch events mine"


def test_a_failed_program_that_is_started_again_is_no_notice_until_the_run_ends(
    history: History, own_home: Path
) -> None:
    cluster = history.cluster()
    job = history.job(cluster)
    history.start(cluster, job)
    history.lose(cluster, job, EndCause.PROGRAM)
    assert notices(own_home) == ()
    history.end(cluster, job, FAILURE)
    assert [one.kind for one in notices(own_home)] == [Kind.FAILED]


def test_machines_without_a_job_that_are_lost_are_one_notice(history: History, own_home: Path) -> None:
    job = history.run()
    cluster = history.cluster()
    history.clock.at += 60
    history.slice(cluster, 1, IntentState.ACCEPTED)
    history.slice(cluster, 1, IntentState.ENDING, IntentState.DELETED, cause=EndCause.PREEMPTED)
    ended, lost = notices(own_home)
    assert (ended.job, lost.job) == (job.id, None)
    assert lost.kind is Kind.LOST and lost.title == "'mine' was preempted"


def test_machines_that_a_person_takes_down_are_no_notice(history: History, own_home: Path) -> None:
    cluster = history.cluster()
    history.slice(cluster, 1, IntentState.ACCEPTED)
    history.slice(cluster, 1, IntentState.ENDING, IntentState.DELETED, cause=EndCause.REQUESTED)
    assert notices(own_home) == ()


def test_a_pipeline_ends_with_a_notice_of_its_own(history: History, own_home: Path) -> None:
    history.store.open_pipeline("nightly", ("{}",), uid="p1")
    history.store.end_pipeline("p1", "ended", 1, "stage 1 failed")
    (notice,) = notices(own_home)
    assert (notice.kind, notice.title) == (Kind.FAILED, "pipeline nightly ended: stage 1 failed")


def test_a_condition_is_recorded_once_and_is_one_notice(history: History, own_home: Path) -> None:
    cluster = history.cluster()
    job = history.job(cluster)
    cause = f"waiting: attempt {cluster.uid}/{job.id}/1"
    assert history.store.record_condition("mine", "job 1 has waited for 30 min", cause)
    assert not history.store.record_condition("mine", "job 1 has waited for 31 min", cause)
    (notice,) = notices(own_home)
    assert (notice.kind, notice.title, notice.run_id) == (Kind.WAITING, "job 1 has waited for 30 min", "llama-1")


def test_what_only_a_newer_orch_knows_is_passed_over(history: History, own_home: Path) -> None:
    cluster = history.cluster()
    for cause in (f"moonphase: attempt {cluster.uid}/1/1", "waiting: nothing", "", "waiting: job x"):
        history.store.event("mine", CONDITION, "text", cause=cause or "requested")
    history.end(cluster, history.job(cluster), SUCCESS)
    assert [one.kind for one in notices(own_home)] == [Kind.ENDED]


def test_what_keeps_the_engine_from_its_work_is_a_notice(history: History, own_home: Path) -> None:
    history.store.event("", ENGINE, "job c/1: expired; it continues once you have run: aws sso login")
    (notice,) = notices(own_home)
    assert notice.kind is Kind.STUCK and notice.title.endswith("aws sso login")
