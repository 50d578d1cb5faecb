"""What machines cost by owner, project, cluster, run and day: each billed hour once, what is not known apart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import permutations, product
from pathlib import Path

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import orchestrator.documents
from orchestrator.documents.kept_spending import KeptSpending
from orchestrator.documents.ledger import DIMENSIONS, SpendingRow, spending_as_json, summarize_spending
from orchestrator.documents.runs import summarize_runs
from orchestrator.errors import UserError
from orchestrator.plan.observed import IntentState, Outcome
from orchestrator.plan.spending_budget import SpendingBudget, find_month_begin, find_month_end, measure_usage
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.slices import Candidate, OnDemand
from orchestrator.store.bill_records import BillRecord
from orchestrator.store.budget_records import list_billed_slices
from orchestrator.store.leases import Lease
from orchestrator.store.read import Reader
from orchestrator.store.records import NewJob
from orchestrator.store.store import Store

HOUR = 3600.0
DAY0 = 1_700_006_400.0  # 2023-11-15 00:00 UTC
CANDIDATE = Candidate(provider="gcp", accelerator="v5e-8", hosts=2, chips_per_host=4, market=OnDemand())
SCHEMA = json.loads((Path(orchestrator.documents.__file__).parent / "data" / "spending.schema.json").read_text())


@dataclass
class History:
    """Records of what people did at some hours after DAY0."""

    file: Path
    project: str = "default"

    def _open(self, at: float) -> Store:
        return Store(self.file, lambda: DAY0 + at * HOUR, project=self.project)

    def rent(self, cluster: str, at: float, price: float | None) -> None:
        with self._open(at) as store:
            record = store.cluster(cluster) or store.open_cluster(cluster, "")
            lease = store.acquire(f"cluster:{record.qualified_name}", "test")
            assert isinstance(lease, Lease)
            number = len(store.intents(record)) + 1
            name = f"{cluster}-{number}"
            candidate = replace(CANDIDATE, price_per_hour=price)
            store.write_intent(lease, record, number, name, candidate, f"{self.project}-{name}", "request")
            store.update_intent(lease, record, name, IntentState.ACCEPTED)
            store.release(lease)

    def give_back(self, cluster: str, at: float) -> None:
        with self._open(at) as store:
            record = store.cluster(cluster)
            assert record is not None
            lease = store.acquire(f"cluster:{record.qualified_name}", "test")
            assert isinstance(lease, Lease)
            store.update_intent(lease, record, store.intents(record)[-1].name, IntentState.DELETED)
            store.release(lease)

    def close(self, cluster: str, at: float) -> None:
        with self._open(at) as store:
            record = store.cluster(cluster)
            assert record is not None
            lease = store.acquire(f"cluster:{record.qualified_name}", "test")
            assert isinstance(lease, Lease)
            store.close_cluster(lease, record)
            store.release(lease)

    def bill(self, token: str, begin: float, until: float, dollars: float, at: float) -> None:
        line = BillRecord(
            source="gcp", account="acc", month="2023-11", token=token, part="machines", begin=DAY0 + begin * HOUR,
            until=DAY0 + until * HOUR, microdollars=round(dollars * 1e6),
        )  # fmt: skip
        with self._open(at) as store:
            store.import_bills([line], [("gcp", "acc", "2023-11")])

    def launch(self, cluster: str, run_id: str, at: float) -> None:
        with self._open(at) as store:
            record = store.cluster(cluster)
            assert record is not None
            job = NewJob(
                kind="launch", run_id=run_id, digest="d", task="", bucket="", ranks=None, after_end=TeardownPolicy.KEEP
            )
            store.open_job(record, job)

    def finish(self, cluster: str, run_id: str, at: float) -> None:
        with self._open(at) as store:
            record = store.cluster(cluster)
            assert record is not None
            job = next(job for job in store.jobs(record) if job.run_id == run_id and job.ended is None)
            store.record_outcome(record, job.id, Outcome(status=0, code="", what="succeeded"))


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path / "home"))
    return History(tmp_path / "orch.db")


@pytest.fixture
def busy(history: History) -> Iterator[Reader]:
    """Two projects; a queued job, a command's time, machines without a price, a replaced slice, one still billed."""
    history.rent("a", 0, 10.0)
    history.launch("a", "a-first", 1)
    history.launch("a", "a-queued", 2)
    history.finish("a", "a-first", 5)
    history.finish("a", "a-queued", 25)
    history.give_back("a", 26)
    history.rent("a", 27, 20.0)
    history.rent("dark", 30, None)
    history.launch("dark", "dark-run", 31)
    history.project = "other"
    history.rent("a", 40, 1.0)
    with Reader(history.file) as store:
        yield store


NOW = DAY0 + 50 * HOUR


def rows(store: Reader, *by: str, since: float = 0.0) -> dict[tuple[str, ...], tuple[float, float, float]]:
    table = summarize_spending(store, NOW, since=since, by=by)
    return {row.key: (row.dollars, row.hours, row.unknown_hours) for row in table.rows}


def test_clusters_of_one_name_in_two_projects_are_two_rows(busy: Reader) -> None:
    assert rows(busy, "cluster") == {
        ("a",): (260 + 460, 98, 0),
        ("other/a",): (10, 20, 0),
        ("dark",): (0, 40, 40),
    }
    assert list(rows(busy, "cluster")) == [("a",), ("other/a",), ("dark",)]  # the most expensive first


def test_a_price_that_is_not_known_is_counted_apart(busy: Reader) -> None:
    total = summarize_spending(busy, NOW, since=0, by=()).total
    assert total == SpendingRow(
        key=(),
        parts={"machines": 730_000_000},
        hours=158,
        unknown_hours=40,
        unpriced=("disks", "addresses"),
        sources=("list",),
    )


def test_time_without_a_run_has_its_own_row_and_a_queued_job_pays_from_its_turn(busy: Reader) -> None:
    assert rows(busy, "run") == {
        ("a-first",): (40, 8, 0),
        ("a-queued",): (200, 40, 0),
        ("dark-run",): (0, 38, 38),
        ("",): (10 + 10 + 460 + 10, 2 + 2 + 46 + 2 + 20, 2),
    }


def test_days_are_those_of_utc(busy: Reader) -> None:
    found = rows(busy, "day", "project")
    assert found["2023-11-15", "default"] == (240, 48, 0)
    assert found["2023-11-16", "default"] == (20 + 21 * 20, 4 + 42 + 36, 36)
    assert found["2023-11-17", "other"] == (2, 4, 0)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("since", [0.0, DAY0 + 3.5 * HOUR, DAY0 + 49 * HOUR, NOW])
def test_every_table_has_the_same_sum(busy: Reader, count: int, since: float) -> None:
    expected = summarize_spending(busy, NOW, since=since, by=()).total
    for by in permutations(DIMENSIONS, count):
        found = summarize_spending(busy, NOW, since=since, by=by).total
        assert (found.parts, found.billed, found.unpriced) == (expected.parts, expected.billed, expected.unpriced)
        assert (found.hours, found.unknown_hours) == pytest.approx((expected.hours, expected.unknown_hours))


def test_runs_cost_here_what_orch_runs_shows(busy: Reader) -> None:
    here = rows(busy, "run")
    runs = summarize_runs(busy, NOW, busy.newest_runs(limit=99))
    for run in runs:
        dollars, _, unknown = here[run.run_id,]
        assert run.dollars == (None if unknown else pytest.approx(dollars))
    assert {run.run_id for run in runs} == {key for (key,) in here if key}


def test_a_run_costs_the_same_whichever_others_are_read(history: History) -> None:
    history.rent("a", 0, 10.0)
    for number in range(6):  # each is queued behind the one before it
        history.launch("a", f"run-{number}", 1 + number)
    for number in range(5):
        history.finish("a", f"run-{number}", 10 + 3 * number)
    with Reader(history.file) as store:
        every = {run.run_id: run for run in summarize_runs(store, NOW, store.newest_runs(limit=9))}
        assert len(every) == 6
        for run_id, run in every.items():
            assert summarize_runs(store, NOW, [run_id]) == [run]
        history.launch("a", "late", 40)
        (own,) = store.jobs_during_runs(["late"]).values()
        assert [job.run_id for job in own] == ["run-5", "late"], "the others had ended before it"


def test_one_project_and_one_owner(busy: Reader) -> None:
    owner = next(iter(busy.clusters())).owner
    assert owner
    assert summarize_spending(busy, NOW, since=0, by=(), project="other").total.dollars == 10
    assert summarize_spending(busy, NOW, since=0, by=("owner",), owner=owner).rows[0].key == (owner,)
    assert summarize_spending(busy, NOW, since=0, by=(), owner="another").rows == ()


@pytest.mark.parametrize("by", [("week",), ("day", "run", "day")])
def test_a_wrong_dimension_is_refused(busy: Reader, by: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match=by[0]):
        summarize_spending(busy, NOW, since=0, by=by)


def test_the_document_follows_its_schema(busy: Reader) -> None:
    for by in ((), ("run", "owner"), DIMENSIONS):
        shown = spending_as_json(summarize_spending(busy, NOW, since=DAY0, by=by))
        jsonschema.validate(shown, SCHEMA)
    assert shown["total"] == {
        "dollars": 730, "microdollars": 730_000_000, "parts": {"machines": 730_000_000}, "billed_microdollars": 0,
        "hours": 158, "unknown_hours": 40, "unpriced": ["disks", "addresses"],
        "sources": ["list"],
    }  # fmt: skip


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rented=st.lists(
        st.tuples(
            st.sampled_from("ab"), st.integers(0, 40 * 24), st.integers(0, 100), st.sampled_from([2.0, 3.0, None])
        ),
        max_size=6,
    ),
    now=st.integers(0, 50 * 24),
)
def test_a_budget_counts_for_a_month_what_the_sums_say(
    tmp_path_factory: pytest.TempPathFactory, rented: list[tuple[str, int, int, float | None]], now: int
) -> None:
    history = History(tmp_path_factory.mktemp("month") / "orch.db")
    free = {"a": 0, "b": 0}
    for cluster, begin, hours, price in sorted(rented, key=lambda one: one[1]):
        at = max(begin, free[cluster])
        if at > now:
            continue
        history.rent(cluster, at, price)
        free[cluster] = at + hours
        if at + hours > now:
            free[cluster] = 10**6
        else:
            history.give_back(cluster, at + hours)
    moment = DAY0 + now * HOUR
    with Reader(history.file) as store:
        total = summarize_spending(store, moment, since=find_month_begin(moment), by=()).total
        usage = measure_usage(SpendingBudget(project="", member=""), list_billed_slices(store, moment), moment)
    assert usage.month.dollars == pytest.approx(total.dollars)
    assert usage.month.known == (total.unknown_hours == 0)


def test_stopped_machines_are_paid_by_neither(history: History) -> None:
    history.rent("a", 0, 10.0)
    with history._open(2) as store:
        cluster = store.cluster("a")
        assert cluster is not None
        store.set_desired_state(cluster, "stopped")
        store.record_observed_stop(cluster, stopped=True)
    with history._open(12) as store:
        store.set_desired_state(cluster, "up")
    moment = DAY0 + 13 * HOUR
    with Reader(history.file) as reader:
        total = summarize_spending(reader, moment, since=0, by=()).total
        usage = measure_usage(SpendingBudget(project="", member=""), list_billed_slices(reader, moment), moment)
    assert (total.dollars, total.hours) == (30.0, 6.0)
    assert usage.month.dollars == 30.0


@pytest.mark.parametrize(
    ("day", "begin", "end"),
    [("2026-11-26T12:00", "2026-11-01", "2026-12-01"), ("2026-12-31T23:59", "2026-12-01", "2027-01-01"),
     ("2028-02-29T00:00", "2028-02-01", "2028-03-01"), ("2027-01-01T00:00", "2027-01-01", "2027-02-01")],
)  # fmt: skip
def test_months_are_those_of_utc(day: str, begin: str, end: str) -> None:
    moment, first, last = (datetime.fromisoformat(one).replace(tzinfo=UTC).timestamp() for one in (day, begin, end))
    assert (find_month_begin(moment), find_month_end(moment)) == (first, last)


def test_kept_sums_are_those_of_the_records_after_every_change(history: History) -> None:
    kept, moments = KeptSpending(), iter(range(1, 100))
    history.rent("b", 0, 3.0)

    def compare() -> None:
        now = DAY0 + (60 + next(moments)) * HOUR
        for by, since in product(((), ("owner", "day"), ("part", "project"), ("source",)), (0.0, DAY0 + 3.5 * HOUR)):
            with Reader(history.file) as reader:
                expected = summarize_spending(reader, now, since=since, by=by, project="default")
                assert kept.summarize(reader, now, since=since, by=by, project="default") == expected

    compare()
    history.rent("a", 2, 10.0)
    compare()
    history.give_back("a", 29)
    history.close("a", 29)
    history.rent("a", 30, 7.0)  # another cluster of the name
    compare()
    compare()
    history.give_back("a", 64)
    history.close("a", 64)  # a moment before the next comparison
    compare()
    compare()
    history.bill("default-a-1", 3, 5, 2.5, at=66)
    compare()


def test_kept_sums_of_another_history_are_made_again(history: History) -> None:
    kept, now = KeptSpending(), DAY0 + 60 * HOUR
    history.rent("a", 0, 3.0)
    history.give_back("a", 10)
    history.close("a", 10)
    backup = history.file.read_bytes()
    history.rent("b", 11, 3.0)
    history.give_back("b", 20)
    history.close("b", 20)
    with Reader(history.file) as reader:
        assert kept.summarize(reader, now, since=0, by=()).total.dollars == 57
    for log in history.file.parent.glob("orch.db-*"):
        log.unlink()
    history.file.write_bytes(backup)  # put back
    with Reader(history.file) as reader:
        assert kept.summarize(reader, now, since=0, by=()).total.dollars == 30
