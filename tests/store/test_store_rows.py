"""Jobs in a queue, jobs without a terminal, pipelines, limits, and what is known of an attempt."""

from __future__ import annotations

from dataclasses import replace

import pytest
from store_history import LOCAL, forging

from orchestrator.errors import ConflictError, NotFoundError
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import EndedAttempt, IntentState, Outcome
from orchestrator.store.leases import Lease
from orchestrator.store.location import Location
from orchestrator.store.read import open_reader_at
from orchestrator.store.records import NewJob
from orchestrator.store.store import Store

JOB = NewJob(
    kind="launch",
    run_id="run-1",
    digest="digest",
    task="{}",
    bucket="file:///b",
    ranks=None,
    after_end="keep",
    launch_request='{"v": 1}',
    watch="engine",
)


def taken(store: Store, name: str = "cluster:c") -> Lease:
    lease = store.acquire(name, "test")
    assert isinstance(lease, Lease)
    return lease


@pytest.mark.promise("P29")
def test_a_queued_job_waits_until_its_turn_and_keeps_its_launch_request(location: Location) -> None:
    with Store(location) as store:
        cluster = store.open_cluster("c", "")
        job = store.queue_job(cluster, JOB)
        assert (job.state, job.launch_request, job.watch) == ("queued", '{"v": 1}', "engine")
        store.take_from_queue(taken(store), cluster, job.id)
        assert store.job(cluster, job.id).state == "pending"


def test_a_job_that_was_ended_in_the_queue_is_not_taken_from_it(location: Location) -> None:
    with Store(location) as store:
        cluster = store.open_cluster("c", "")
        job = store.queue_job(cluster, JOB)
        store.record_outcome(cluster, job.id, Outcome(status=130, code="cancelled", what="it was cancelled"))
        with pytest.raises(ConflictError, match="left the queue"):
            store.take_from_queue(taken(store), cluster, job.id)
        assert store.job(cluster, job.id).state == "ended"


def test_only_unfinished_unattended_jobs_of_open_clusters_are_listed(location: Location) -> None:
    with Store(location) as store:
        cluster, other = store.open_cluster("c", ""), store.open_cluster("gone", "")
        mine = store.open_job(cluster, JOB)
        foreground = store.open_job(
            cluster, NewJob(kind="exec", run_id="", digest="d", task="", bucket="", ranks=None, after_end="keep")
        )
        over = store.open_job(cluster, JOB)
        store.record_outcome(cluster, over.id, Outcome(status=0, code="", what="done"))
        store.open_job(other, JOB)
        store.close_cluster(taken(store, "cluster:other"), other)
        assert store.unattended_jobs() == ((cluster, mine),)
        store.set_watch(cluster, foreground.id, "engine")
        store.set_watch(cluster, mine.id, "")
        (only,) = store.unattended_jobs()
        assert only[1].id == foreground.id
        with open_reader_at(location) as reader:
            assert reader.unattended_jobs() == store.unattended_jobs()


def test_a_down_that_was_cut_off_is_on_the_list_until_the_record_is_closed(location: Location) -> None:
    with Store(location) as store:
        cluster = store.open_cluster("c", "")
        store.open_cluster("gone", "")
        store.set_desired_state(cluster, "down")
        assert [record.name for record in store.clusters_going_down()] == ["c"]
        with open_reader_at(location) as reader:
            assert reader.clusters_going_down() == store.clusters_going_down()
        store.close_cluster(taken(store), cluster)
        assert store.clusters_going_down() == ()


def test_a_pipeline_goes_forward_only_and_ends_once(location: Location) -> None:
    with Store(location) as store:
        opened = store.open_pipeline("nightly", ("task a", "task b", "task c"), '{"w": 1}')
        assert (opened.stage, opened.state, opened.tasks) == (0, "running", ("task a", "task b", "task c"))
        store.advance_pipeline(opened.uid, 2)
        store.advance_pipeline(opened.uid, 1)
        assert store.pipeline(opened.uid).stage == 2
        store.end_pipeline(opened.uid, "cancelled", 130, "by hand")
        store.end_pipeline(opened.uid, "ended", 0, "too late")
        store.advance_pipeline(opened.uid, 3)
        last = store.pipeline(opened.uid)
        assert (last.state, last.status, last.what, last.stage) == ("cancelled", 130, "by hand", 2)
        with open_reader_at(location) as reader:
            assert reader.pipelines(ended=True) == (last,)
            assert reader.pipeline(opened.uid) == last
            with pytest.raises(NotFoundError):
                reader.pipeline("none")
        with pytest.raises(NotFoundError):
            store.pipeline("none")


def test_no_stage_of_a_pipeline_that_is_being_ended_is_opened(location: Location) -> None:
    with Store(location) as store:
        cluster, pipeline = store.open_cluster("c", ""), store.open_pipeline("p", ("a", "b"), stage=1)
        stage = replace(JOB, pipeline=pipeline.uid, stage=1)
        assert (pipeline.stage, store.open_job(cluster, stage).id) == (1, 1)
        store.request_pipeline_end(pipeline.uid, "cancel")
        store.set_launch_request(pipeline.uid, "{}")
        store.request_pipeline_end(pipeline.uid, "down")
        store.request_pipeline_end(pipeline.uid, "cancel")
        assert store.pipeline(pipeline.uid).requested_end == "down"
        for _ in range(2):
            with pytest.raises(ConflictError, match="pipeline 'p' was ended meanwhile"):
                store.open_job(cluster, stage)
            store.end_pipeline(pipeline.uid, "cancelled", 130, "by hand")
        assert len(store.jobs(cluster)) == 1


def test_a_late_engine_cannot_advance_a_pipeline_or_end_a_job(location: Location) -> None:
    with Store(location) as store:
        cluster = store.open_cluster("c", "")
        job = store.open_job(cluster, JOB)
        pipeline = store.open_pipeline("p", ("a", "b"))
        late = taken(store)
        store.release(late)
        taken(store)
        for write in (
            lambda: store.advance_pipeline(pipeline.uid, 1, lease=late),
            lambda: store.end_pipeline(pipeline.uid, "ended", 0, "", lease=late),
            lambda: store.start_attempt(cluster, job.id, lease=late),
            lambda: store.end_attempt(
                cluster, job.id, EndedAttempt(attempt=1, cause=EndCause.REQUESTED, why=""), lease=late
            ),
            lambda: store.next_attempt(
                cluster, job.id, EndedAttempt(attempt=1, cause=EndCause.REQUESTED, why=""), 2, lease=late
            ),
            lambda: store.record_outcome(cluster, job.id, Outcome(status=0, code="", what=""), lease=late),
            lambda: store.take_from_queue(late, cluster, job.id),
            lambda: store.close_cluster(late, cluster),
            lambda: store.note_hosts(late, cluster, ()),
        ):
            with pytest.raises(ConflictError, match="took over"):
                write()
        assert store.job(cluster, job.id) == job
        assert store.pipeline(pipeline.uid) == pipeline


def test_what_is_known_of_an_attempt_is_given_back(location: Location) -> None:
    ended = EndedAttempt(
        attempt=1,
        cause=EndCause.PROGRAM,
        why="it failed",
        generation=3,
        at=1234.5,
        exit_code=17,
        rank=2,
        evidence='{"step": 40}',
    )
    with Store(location) as store:
        cluster = store.open_cluster("c", "")
        job = store.open_job(cluster, JOB)
        store.next_attempt(cluster, job.id, ended, 2)
        assert store.ended_attempts(cluster, job.id) == (ended,)
        with open_reader_at(location) as reader:
            assert reader.ended_attempts(cluster, job.id) == (ended,)


def test_a_verdict_outlives_what_is_learned_later(location: Location) -> None:
    with Store(location) as store:
        cluster = store.open_cluster("c", "")
        job = store.open_job(cluster, JOB)
        store.start_attempt(cluster, job.id)
        store.end_attempt(
            cluster,
            job.id,
            EndedAttempt(
                attempt=1, cause=EndCause.BROKEN, why="it hung", generation=None, at=5.0, exit_code=None, rank=2
            ),
        )
        assert (store.job(cluster, job.id).attempt, store.job(cluster, job.id).started) == (1, True)
        store.next_attempt(
            cluster,
            job.id,
            EndedAttempt(attempt=1, cause=EndCause.PROGRAM, why="killed", generation=4, at=9.0, exit_code=137, rank=0),
            2,
        )
        assert store.ended_attempts(cluster, job.id) == (
            EndedAttempt(attempt=1, cause=EndCause.BROKEN, why="it hung", generation=4, at=5.0, exit_code=137, rank=2),
        )
        after = store.job(cluster, job.id)
        assert (after.attempt, after.started) == (2, False)


def test_a_late_repetition_of_an_ended_attempt_does_not_set_the_job_back(location: Location) -> None:
    with Store(location) as store:
        cluster = store.open_cluster("c", "")
        job = store.open_job(cluster, JOB)
        first, second = (
            EndedAttempt(attempt=1, cause=EndCause.PROGRAM, why="a"),
            EndedAttempt(attempt=2, cause=EndCause.PROGRAM, why="b"),
        )
        store.next_attempt(cluster, job.id, first, 2)
        store.next_attempt(cluster, job.id, second, 3)
        store.start_attempt(cluster, job.id)
        store.next_attempt(cluster, job.id, first, 2)
        after = store.job(cluster, job.id)
        assert (after.attempt, after.started) == (3, True)


def test_the_limits_of_a_cluster_are_kept(location: Location) -> None:
    with Store(location) as store:
        cluster = store.open_cluster("c", "")
        assert cluster.limits == "{}"
        store.set_limits(cluster, {"max_hours": 2.5, "max_cost": 100})
        seen = store.cluster("c")
        assert seen is not None
        assert seen.limits == '{"max_cost": 100, "max_hours": 2.5}'


def test_text_that_no_database_can_hold_is_kept_readable(location: Location) -> None:
    with Store(location) as store:
        cluster = store.open_cluster("c", "")
        job = store.open_job(cluster, JOB)
        store.record_outcome(cluster, job.id, Outcome(status=1, code="x", what="a\0b \udc80 ü"))
        assert store.job(cluster, job.id).what == "a\N{REPLACEMENT CHARACTER}b ? ü"


def test_a_cancelled_job_is_ended_immediately_or_stays_cancelled_when_it_is_started_again(location: Location) -> None:
    with Store(location) as store:
        cluster = store.open_cluster("c", "")
        queued, pending, running = (
            store.queue_job(cluster, JOB),
            store.open_job(cluster, JOB),
            store.open_job(cluster, JOB),
        )
        for waiting in (queued, pending):
            store.cancel_job(cluster, waiting.id)
            after = store.job(cluster, waiting.id)
            assert (after.state, after.code) == ("ended", "cancelled")
        store.start_attempt(cluster, running.id)
        store.cancel_job(cluster, running.id)
        store.start_attempt(cluster, running.id)  # decided before the cancellation was seen
        after = store.job(cluster, running.id)
        assert (after.state, after.started) == ("cancelling", True)


def test_a_job_that_is_ended_is_not_started_again(location: Location) -> None:
    with Store(location) as store:
        cluster = store.open_cluster("c", "")
        job = store.open_job(cluster, JOB)
        store.record_outcome(cluster, job.id, Outcome(status=0, code="", what="done"))
        with pytest.raises(ConflictError, match="was ended meanwhile"):
            store.start_attempt(cluster, job.id)
        store.next_attempt(cluster, job.id, EndedAttempt(attempt=1, cause=EndCause.PREEMPTED, why="late"), 2)
        after = store.job(cluster, job.id)
        assert (after.state, after.attempt, after.started) == ("ended", 1, False)


def test_the_jobs_of_a_pipeline_and_all_intents_are_listed(location: Location) -> None:
    with Store(location) as store:
        cluster = store.open_cluster("c", "")
        pipeline = store.open_pipeline("p", ("a", "b"))
        made = [store.open_job(cluster, replace(JOB, pipeline=pipeline.uid, stage=stage)) for stage in (1, 0)]
        store.open_job(cluster, JOB)
        assert store.pipeline_jobs(pipeline.uid) == (made[1], made[0])
        store.write_intent(taken(store), cluster, 1, "c-1", LOCAL, "token", "request")
        ((token, intent),) = store.all_intents()
        assert (token, (intent,)) == ("token", store.intents(cluster))


def test_nothing_is_planned_on_a_closed_record_and_its_slices_are_orphans(location: Location) -> None:
    with Store(location) as store:
        cluster = store.open_cluster("c", "x")
        lease = taken(store)
        store.write_intent(lease, cluster, 1, "c-1", LOCAL, "token-1", "request")
        store.update_intent(lease, cluster, "c-1", IntentState.ACCEPTED)
        assert [(token, intent.state) for token, intent in store.all_intents()] == [("token-1", IntentState.ACCEPTED)]
        store.close_cluster(lease, cluster)
        with pytest.raises(ConflictError, match="closed meanwhile"):
            store.write_intent(lease, cluster, 2, "c-2", LOCAL, "token-2", "request")
        assert [(token, intent.state) for token, intent in store.all_intents()] == [("token-1", IntentState.DELETED)]


def _started_at(location: Location, job: int) -> float | None:
    with open_reader_at(location) as reader:
        (row,) = (row for row in reader.rows("attempts") if row["job_id"] == job)
        return None if row["started_at"] is None else float(row["started_at"])


@pytest.mark.parametrize("reworded", [False, True])
def test_the_start_of_an_attempt_is_known_whatever_the_sentence_of_its_event(
    location: Location, *, reworded: bool
) -> None:
    clock = [100.0]
    with Store(location, lambda: clock[0]) as store:
        cluster = store.open_cluster("c", "")
        job = store.open_job(cluster, JOB)
        for moment in (200.0, 300.0):
            clock[0] = moment
            store.start_attempt(cluster, job.id)
            store.next_attempt(cluster, job.id, EndedAttempt(attempt=1, cause=EndCause.HUNG, why="stuck"), 1)
        clock[0] = 400.0
        other = store.open_job(cluster, JOB)
        store.start_attempt(cluster, other.id)
        if reworded:
            with forging(store) as tx:
                tx.exec_driver_sql("UPDATE events SET what = 'in other words'")
                tx.commit()
        clock[0] = 500.0
        store.end_attempt(cluster, other.id, EndedAttempt(attempt=1, cause=EndCause.PROGRAM, why="failed"))
    assert _started_at(location, other.id) == 400.0
    assert _started_at(location, job.id) == 200.0
