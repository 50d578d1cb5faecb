"""When a job ended: never before it began, and as long after as its hosts measured, whatever clocks are set to."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.documents.runs import summarize_runs
from orchestrator.plan.observed import Outcome
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.store.job_end import MOST_AHEAD, HostRun, find_end
from orchestrator.store.read import Reader
from orchestrator.store.records import NewJob
from orchestrator.store.store import Store

NEW = NewJob(kind="launch", run_id="r", digest="d", task="", bucket="", ranks=None, after_end=TeardownPolicy.KEEP)
DONE = Outcome(status=0, code="ok", what="job 1 succeeded on 2 hosts")
SECONDS = st.floats(0.0, 1e6)
SKEW = st.floats(-60.0, 60.0)  # of one computer, before it is noticed


@given(
    waited=SECONDS, ran=SECONDS, unwatched=st.one_of(st.just(0.0), SECONDS), opener=SKEW, starter=SKEW, observer=SKEW,
    complete=st.booleans(),
)  # fmt: skip
def test_an_end_is_never_before_the_begin_and_the_duration_is_that_of_the_hosts(
    waited: float, ran: float, unwatched: float, opener: float, starter: float, observer: float, complete: bool
) -> None:
    """Three computers open, start and observe a job, each by its clock."""
    created, started = 1e9 + opener, 1e9 + waited + starter
    at = 1e9 + waited + ran + unwatched + observer
    end = find_end(created=created, started=started, at=at, run=HostRun(seconds=ran, ended=complete))
    assert created <= end and started <= end
    begin = max(created, started)
    assert end - begin >= ran - 1e-3
    if complete:
        assert end - begin == pytest.approx(ran, abs=1e-3), "however late it was observed"


@given(created=SECONDS, started=st.none() | SECONDS, at=SECONDS, seconds=st.floats(0.0, 1e9), ended=st.booleans())
def test_a_host_that_reports_nonsense_moves_no_end_far(
    created: float, started: float | None, at: float, seconds: float, ended: bool
) -> None:
    end = find_end(created=created, started=started, at=at, run=HostRun(seconds=seconds, ended=ended))
    latest = max(created, at, started or 0.0)
    assert max(created, started or 0.0) <= end <= latest + MOST_AHEAD
    assert find_end(created=created, started=started, at=at, run=None) == latest


class Clock:
    def __init__(self, at: float) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at


@pytest.mark.parametrize(
    ("observed_after", "run", "took"),
    [
        (0.3, HostRun(seconds=54.0, ended=True), 54.0),  # the observer's clock is behind that of the opener
        (-5.0, HostRun(seconds=54.0, ended=True), 54.0),
        (86_400.0, HostRun(seconds=54.0, ended=True), 54.0),  # an observer that came back the next day
        (60.0, HostRun(seconds=54.0, ended=False), 60.0),
        (-5.0, None, 0.0),  # no host reports it: no time, and never less
        (60.0, None, 60.0),
    ],
)
def test_what_runs_show_is_what_the_hosts_measured(
    tmp_path: Path, observed_after: float, run: HostRun | None, took: float
) -> None:
    clock = Clock(1e9)
    with Store(tmp_path / "orch.db", clock) as store:
        cluster = store.open_cluster("mine", "x")
        job = store.open_job(cluster, NEW)
        store.start_attempt(cluster, job.id)
        clock.at += observed_after
        store.record_outcome(cluster, job.id, DONE, run=run)
    with Reader(tmp_path / "orch.db") as reader:
        (found,) = summarize_runs(reader, 1e9 + 1e6, reader.newest_runs(limit=9))
        assert found.seconds == pytest.approx(took)
        assert found.last.ended is not None and found.last.ended >= found.last.created
