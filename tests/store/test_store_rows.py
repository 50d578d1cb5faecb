"""Jobs in a queue, jobs without a terminal, pipelines, limits, and what is known of an attempt."""

from __future__ import annotations

from dataclasses import replace

import pytest
from store_history import LOCAL

from orchestrator.errors import ConflictError, NotFoundError
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import Ended, IntentState, Outcome
from orchestrator.store.leases import Lease
from orchestrator.store.location import Location
from orchestrator.store.read import open_reader_at
from orchestrator.store.records import NewJob
from orchestrator.store.store import Store

JOB = NewJob("launch", "run-1", "digest", "{}", "file:///b", None, "keep", wish='{"v": 1}', watch="engine")


def taken(store: Store, name: str = "cluster:c") -> Lease:
    lease = store.acquire(name, "test")
    assert isinstance(lease, Lease)
    return lease


@pytest.mark.promise("P29")
def test_a_queued_job_waits_until_its_turn_and_keeps_its_wish(location: Location) -> None:
    with Store(location) as store:
        cluster = store.open_cluster("c", "")
        job = store.queue_job(cluster, JOB)
        assert (job.state, job.wish, job.watch) == ("queued", '{"v": 1}', "engine")
        store.take_from_queue(taken(store), cluster, job.id)
        assert store.job(cluster, job.id).state == "pending"


def test_a_job_that_was_ended_in_the_queue_is_not_taken_from_it(location: Location) -> None:
    with Store(location) as store:
        cluster = store.open_cluster("c", "")
        job = store.queue_job(cluster, JOB)
        store.conclude(cluster, job.id, Outcome(130, "cancelled", "it was cancelled"))
        with pytest.raises(ConflictError, match="left the queue"):
            store.take_from_queue(taken(store), cluster, job.id)
        assert store.job(cluster, job.id).state == "ended"


def test_only_unfinished_jobs_of_living_clusters_that_engines_watch_are_watchable(location: Location) -> None:
    with Store(location) as store:
        cluster, gone = store.open_cluster("c", ""), store.open_cluster("gone", "")
        mine = store.open_job(cluster, JOB)
        foreground = store.open_job(cluster, NewJob("exec", "", "d", "", "", None, "keep"))
        over = store.open_job(cluster, JOB)
        store.conclude(cluster, over.id, Outcome(0, "", "done"))
        store.open_job(gone, JOB)
        store.close_cluster(taken(store, "cluster:gone"), gone)
        assert store.watchable() == ((cluster, mine),)
        store.set_watch(cluster, foreground.id, "engine")
        store.set_watch(cluster, mine.id, "")
        (only,) = store.watchable()
        assert only[1].id == foreground.id
        with open_reader_at(location) as reader:
            assert reader.watchable() == store.watchable()


def test_a_down_that_was_cut_off_is_on_the_list_until_the_record_is_closed(location: Location) -> None:
    with Store(location) as store:
        cluster = store.open_cluster("c", "")
        store.open_cluster("other", "")
        store.want(cluster, "down")
        assert [record.name for record in store.half_down()] == ["c"]
        with open_reader_at(location) as reader:
            assert reader.half_down() == store.half_down()
        store.close_cluster(taken(store), cluster)
        assert store.half_down() == ()


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
            assert reader.pipelines() == store.pipelines() == (last,)
            assert reader.pipeline(opened.uid) == last
            with pytest.raises(NotFoundError):
                reader.pipeline("none")
        with pytest.raises(NotFoundError):
            store.pipeline("none")


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
            lambda: store.end_attempt(cluster, job.id, Ended(1, EndCause.ASKED, ""), lease=late),
            lambda: store.next_attempt(cluster, job.id, Ended(1, EndCause.ASKED, ""), 2, lease=late),
            lambda: store.conclude(cluster, job.id, Outcome(0, "", ""), lease=late),
            lambda: store.take_from_queue(late, cluster, job.id),
            lambda: store.close_cluster(late, cluster),
            lambda: store.note_hosts(late, cluster, ()),
        ):
            with pytest.raises(ConflictError, match="took over"):
                write()
        assert store.job(cluster, job.id) == job
        assert store.pipeline(pipeline.uid) == pipeline


def test_what_is_known_of_an_attempt_is_given_back(location: Location) -> None:
    ended = Ended(1, EndCause.PROGRAM, "it failed", 3, 1234.5, 17, 2, '{"step": 40}')
    with Store(location) as store:
        cluster = store.open_cluster("c", "")
        job = store.open_job(cluster, JOB)
        store.next_attempt(cluster, job.id, ended, 2)
        assert store.ended(cluster, job.id) == (ended,)
        with open_reader_at(location) as reader:
            assert reader.ended(cluster, job.id) == (ended,)


def test_a_verdict_outlives_what_is_learned_later(location: Location) -> None:
    with Store(location) as store:
        cluster = store.open_cluster("c", "")
        job = store.open_job(cluster, JOB)
        store.start_attempt(cluster, job.id)
        store.end_attempt(cluster, job.id, Ended(1, EndCause.BROKEN, "it hung", None, 5.0, None, 2))
        assert (store.job(cluster, job.id).attempt, store.job(cluster, job.id).started) == (1, True)
        store.next_attempt(cluster, job.id, Ended(1, EndCause.PROGRAM, "killed", 4, 9.0, 137, 0), 2)
        assert store.ended(cluster, job.id) == (Ended(1, EndCause.BROKEN, "it hung", 4, 5.0, 137, 2),)
        after = store.job(cluster, job.id)
        assert (after.attempt, after.started) == (2, False)


def test_a_late_repetition_of_an_ended_attempt_does_not_set_the_job_back(location: Location) -> None:
    with Store(location) as store:
        cluster = store.open_cluster("c", "")
        job = store.open_job(cluster, JOB)
        first, second = Ended(1, EndCause.PROGRAM, "a"), Ended(2, EndCause.PROGRAM, "b")
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
        store.conclude(cluster, job.id, Outcome(1, "x", "a\0b \udc80 ü"))
        assert store.job(cluster, job.id).what == "a\N{REPLACEMENT CHARACTER}b ? ü"


def test_a_cancelled_job_is_ended_at_once_or_stays_cancelled_when_it_is_started_again(location: Location) -> None:
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
        store.conclude(cluster, job.id, Outcome(0, "", "done"))
        with pytest.raises(ConflictError, match="was ended meanwhile"):
            store.start_attempt(cluster, job.id)
        store.next_attempt(cluster, job.id, Ended(1, EndCause.PREEMPTED, "late"), 2)
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


def test_nothing_is_planned_on_a_closed_record_and_what_was_is_wanted_by_nobody(location: Location) -> None:
    with Store(location) as store:
        cluster = store.open_cluster("c", "x")
        lease = taken(store)
        store.write_intent(lease, cluster, 1, "c-1", LOCAL, "token-1", "request")
        store.move_intent(lease, cluster, "c-1", IntentState.ACCEPTED)
        assert [(token, intent.state) for token, intent in store.all_intents()] == [("token-1", IntentState.ACCEPTED)]
        store.close_cluster(lease, cluster)
        with pytest.raises(ConflictError, match="closed meanwhile"):
            store.write_intent(lease, cluster, 2, "c-2", LOCAL, "token-2", "request")
        assert [(token, intent.state) for token, intent in store.all_intents()] == [("token-1", IntentState.GONE)]
