"""Budgets: of slices that are planned at the same time, in any order, on both databases, only those that fit pass."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from test_store_audit import audit_of

from orchestrator.documents.budgets import summarize_budgets
from orchestrator.errors import BudgetError, NotFoundError, UserError
from orchestrator.exits import Exit
from orchestrator.plan.observed import IntentState
from orchestrator.plan.spending_budget import SpendingBudget, measure_usage
from orchestrator.slices import Candidate, OnDemand, Owned, Spot
from orchestrator.store.admission_records import NewSliceRecord
from orchestrator.store.bill_records import BillRecord
from orchestrator.store.budget_records import list_billed_slices
from orchestrator.store.change import EventDetails, RowChange, Verb
from orchestrator.store.integrity import find_store_faults
from orchestrator.store.leases import Lease
from orchestrator.store.location import Location
from orchestrator.store.read import open_reader_at
from orchestrator.store.records import ClusterRecord, NewJob
from orchestrator.store.store import Store

HOUR = 3600.0
MONTH = 1_793_491_200.0  # 2026-11-01 00:00 UTC
ALL = SpendingBudget(project="", member="")
CANDIDATE = Candidate(
    provider="gcp", accelerator="v5e-8", hosts=2, chips_per_host=4, market=OnDemand(), region="us-west4",
    price_per_hour=20.0,
)  # fmt: skip


@dataclass
class Cluster:
    """A cluster of a store whose time a test sets."""

    store: Store
    clock: list[float]
    record: ClusterRecord
    lease: Lease
    count: int = field(default=0)

    def plan(self, price: float | None = 20.0, run_id: str = "", **other: object) -> str:
        """Plan a slice, and return its name."""
        candidate = replace(CANDIDATE, price_per_hour=price, **other)  # type: ignore[arg-type]  # fields of a candidate
        self.count += 1
        name = f"{self.record.name}-{self.count}"
        self.store.write_intent(
            self.lease, self.record, self.count, name, candidate, f"token-{name}", "request", run_id=run_id
        )
        return name

    def move(self, name: str, state: IntentState) -> None:
        self.store.update_intent(self.lease, self.record, name, state)

    def run(self, run_id: str) -> int:
        job = NewJob(kind="launch", run_id=run_id, digest="d", task="", bucket="", ranks=None, after_end="keep")
        return self.store.open_job(self.record, job).id


@contextmanager
def opened(location: Location, name: str = "c", at: float = MONTH, project: str = "default") -> Generator[Cluster]:
    clock = [at]
    with Store(location, lambda: clock[0], project=project) as store:
        record = store.open_cluster(name, "")
        lease = store.acquire(f"cluster:{record.qualified_name}", "test")
        assert isinstance(lease, Lease)
        yield Cluster(store, clock, record, lease)


def refused(cluster: Cluster, text: str, price: float | None = 20.0, **other: object) -> BudgetError:
    with pytest.raises(BudgetError, match=text) as caught:
        cluster.plan(price, **other)  # type: ignore[arg-type]  # as above
    assert caught.value.exit_status == int(Exit.BUDGET) == 14
    assert len(caught.value.lines()) <= 5
    cluster.count -= 1
    return caught.value


@pytest.mark.parametrize("pairs", [25, pytest.param(1000, marks=[pytest.mark.full, pytest.mark.timeout(600)])])
def test_of_two_slices_planned_at_the_same_time_one_fits(location: Location, pairs: int) -> None:
    with ExitStack() as stack:
        two = [stack.enter_context(opened(location, name)) for name in ("a", "b")]
        two[0].store.set_budget(replace(ALL, dollars_per_hour=30.0))
        barrier = threading.Barrier(2)
        passed: list[list[bool]] = [[], []]

        def plan(number: int) -> None:
            mine = two[number]
            for _ in range(pairs):
                barrier.wait(60)
                try:
                    name = mine.plan()
                except BudgetError:
                    passed[number].append(False)
                    barrier.wait(60)
                else:
                    passed[number].append(True)
                    barrier.wait(60)
                    mine.move(name, IntentState.REFUSED)

        threads = [threading.Thread(target=plan, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(passed[0]) == pairs
    assert all(first is not second for first, second in zip(*passed, strict=True)), "exactly one of each pair"
    assert find_store_faults(location) == ()


_NUMBERS = count()
_ACTIONS = st.lists(st.tuples(st.sampled_from(["plan", "end", "take over"]), st.sampled_from([10.0, 20.0])), max_size=6)


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)  # fmt: skip
@given(work=st.lists(_ACTIONS, min_size=3, max_size=3))
def test_in_no_interleaving_more_is_planned_than_the_budget_has(
    location: Location, work: list[list[tuple[str, float]]]
) -> None:
    """The audit is the order in which changes took effect: the sum is compared after each planned slice."""
    limit, project = 50.0, f"p{next(_NUMBERS)}"
    with ExitStack() as stack:
        clusters = [stack.enter_context(opened(location, name, project=project)) for name in ("a", "b", "c")]
        clusters[0].store.set_budget(replace(ALL, project=project, dollars_per_hour=limit))
        threads = [
            threading.Thread(target=_do, args=(one, actions)) for one, actions in zip(clusters, work, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    prices: dict[str, float] = {}
    for event in audit_of(location)[0]:
        if event.kind != "intent" or event.after is None or not event.cluster.startswith(f"{project}/"):
            continue
        after = json.loads(event.after)
        if event.before is None:
            prices[event.subject] = json.loads(after["candidate"])["price_per_hour"]
            assert after["state"] != "planned" or sum(prices.values()) <= limit, event.what
        elif after.get("state") in ("gone", "refused"):
            del prices[event.subject]


def _do(cluster: Cluster, actions: list[tuple[str, float]]) -> None:
    made: list[str] = []
    for number, (action, price) in enumerate(actions):
        match action:
            case "plan":
                try:
                    made.append(cluster.plan(price))
                except BudgetError:
                    cluster.count -= 1
            case "end" if made:
                cluster.move(made.pop(), IntentState.REFUSED)
            case "take over":
                name = f"{cluster.record.name}-lost-{number}"
                candidate = replace(CANDIDATE, price_per_hour=price)
                new = NewSliceRecord(
                    cluster=name, summary="", generation=1, name=name, token=f"t-{name}-{cluster.record.uid}",
                    candidate=candidate, account="", created=MONTH, installation="x", epoch=2,
                )  # fmt: skip
                lease = cluster.store.acquire(f"cluster:{cluster.store.project}/{name}", "test")
                assert isinstance(lease, Lease)
                cluster.store.record_take_over(lease, new)
                cluster.store.release(lease)
            case _:
                pass


def test_dollars_an_hour_are_those_of_all_slices_that_exist(location: Location) -> None:
    with opened(location, "a") as a, opened(location, "b") as b:
        a.store.set_budget(replace(ALL, dollars_per_hour=50.0))
        first = a.plan(20.0)
        b.plan(30.0)
        error = refused(a, r"\$50.00 of \$50.00/h is paid now, and the first hour of v5e-8 costs \$20.00")
        assert error.what == "the budget of everything does not allow this slice"
        assert "the owner of the store can: orch budget set --per-hour N" in error.next_step
        a.move(first, IntentState.ACCEPTED)
        a.move(first, IntentState.ENDING)
        refused(a, "/h is paid now")  # what is being ended may still cost
        a.move(first, IntentState.DELETED)
        a.plan(20.0)


def test_a_slice_that_is_written_again_is_not_compared_again(location: Location) -> None:
    with opened(location) as c:
        c.store.set_budget(replace(ALL, dollars_per_hour=20.0))
        c.plan()
        c.store.set_budget(replace(ALL, dollars_per_hour=1.0))
        c.count -= 1
        c.plan()
        assert len(c.store.intents(c.record)) == 1


def test_a_month_has_its_own_money_and_holds_the_first_hours(location: Location) -> None:
    with opened(location, at=MONTH - 10 * HOUR) as c:
        c.store.set_budget(replace(ALL, dollars_per_month=100.0))
        c.clock[0] = MONTH - 4 * HOUR
        old = c.plan(20.0)
        c.move(old, IntentState.ACCEPTED)
        c.clock[0] = MONTH - 1
        refused(c, r"\$79.99 of \$100.00 is spent or held this month", 20.1)
        c.clock[0] = MONTH + 0.5 * HOUR  # the half hour of this month is $10
        other = c.plan(80.0)
        refused(c, r"\$90.00 of \$100.00 is spent or held this month", 20.0)
        c.move(other, IntentState.REFUSED)
        c.clock[0] = MONTH + 4 * HOUR
        refused(c, r"\$80.00 of \$100.00 is spent or held", 20.1)
        c.move(old, IntentState.DELETED)
        last = c.plan(20.0)
        c.move(last, IntentState.ACCEPTED)
        c.clock[0] += 0.25 * HOUR
        refused(c, r"\$100.00 of \$100.00 is spent or held", 0.01)  # a quarter is spent, the rest is held
        c.move(last, IntentState.DELETED)
        c.plan(14.0)


def test_a_run_has_its_own_money_over_its_attempts(location: Location) -> None:
    with opened(location) as c:
        c.store.set_budget(replace(ALL, dollars_per_run=50.0))
        c.run("run-1")
        first = c.plan(20.0, "run-1")
        c.move(first, IntentState.ACCEPTED)
        c.clock[0] += 2 * HOUR
        c.move(first, IntentState.DELETED)
        refused(c, r"\$40.00 of \$50.00 is spent or held for this run", 20.0, run_id="run-1")
        c.plan(20.0, "run-2")


def test_an_unknown_price_is_never_nothing(location: Location) -> None:
    with opened(location) as c:
        c.store.set_budget(replace(ALL, markets=("on-demand",), largest_slice=8))
        c.plan(None)  # nothing of this budget depends on prices
        c.store.set_budget(replace(ALL, dollars_per_hour=50.0))
        error = refused(c, "the price of v5e-8 in gcp/us-west4 is not known", None)
        assert "orch budget set --unknown-prices allow" in error.next_step
        refused(c, "the price of other machines that count in it is not known", 1.0)
        c.store.set_budget(replace(ALL, dollars_per_hour=50.0, unknown_prices="allow"))
        c.plan(50.0)
        refused(c, r"\$50.00 of \$50.00/h is paid now, and the first hour of v5e-8 costs an unknown price", None)


def test_markets_and_sizes_are_compared_too(location: Location) -> None:
    with opened(location) as c:
        c.store.set_budget(replace(ALL, markets=("spot", "reservation"), largest_slice=8))
        refused(c, "its market is on-demand, and the budget allows spot, reservation")
        refused(c, "it has 16 chips, and the budget allows 8", market=Spot(), hosts=4)
        refused(c, "it has 9 hosts, and the budget allows 8", market=Spot(), hosts=9, chips_per_host=0)
        c.plan(market=Spot())
        c.plan(None, market=Owned())  # people's own machines cost nothing


def test_a_slice_is_compared_again_after_a_take_over_and_after_a_change_of_its_budget(location: Location) -> None:
    with opened(location) as c:
        c.store.set_budget(replace(ALL, dollars_per_hour=30.0))
        changes: tuple[Callable[[], None], ...] = (
            lambda: _do(c, [("take over", 20.0)]),
            lambda: c.store.set_budget(replace(ALL, dollars_per_hour=40.0)),
            lambda: c.store.set_budget(replace(ALL, project="default")),
        )
        for change in changes:
            seen = c.store.read_budget_revisions(c.record)
            change()
            details = EventDetails(cluster="c", kind="remark", what="planned")
            remark = RowChange(verb=Verb.EVENT, event=details)
            assert c.store.change(remark, at=1.0, guards=seen.guards) is None
            assert c.store.change(remark, at=1.0, guards=c.store.read_budget_revisions(c.record).guards) == (True,)
        refused(c, r"\$20.00 of \$40.00/h is paid now", 30.0)


def test_a_budget_counts_its_project_and_member_alone(location: Location) -> None:
    with opened(location) as c:
        member = c.record.owner
        for project, owner in (("other", ""), ("", "someone"), ("other", member), ("default", "someone")):
            c.store.set_budget(SpendingBudget(project=project, member=owner, dollars_per_hour=1.0))
        c.plan()
        for project, owner in (("default", ""), ("", member), ("default", member)):
            budget = SpendingBudget(project=project, member=owner, dollars_per_hour=1.0)
            c.store.set_budget(budget)
            error = refused(c, "is paid now")
            assert error.what == f"the budget of {budget.scope} does not allow this slice"
            c.store.remove_budget(project, owner)
        c.plan()
        assert len(c.store.budgets()) == 4
        with pytest.raises(NotFoundError):
            c.store.remove_budget("default", "")
        with pytest.raises(UserError):
            c.store.set_budget(SpendingBudget(project="", member="a/b"))


def test_a_start_holds_the_first_hour_of_its_slice_once(location: Location) -> None:
    with opened(location) as c:
        c.store.set_budget(replace(ALL, dollars_per_month=25.0))
        name = c.plan()
        c.move(name, IntentState.ACCEPTED)
        c.clock[0] += 60.0  # $0.33 are paid, and $19.67 of its first hour are held
        c.store.set_desired_state(c.record, "stopped")
        c.store.record_observed_stop(c.record, stopped=True)
        c.store.record_start(c.lease, c.record, name)
        assert c.store.clusters()[0].desired_state == "up"
        refused(c, "is spent or held this month")


def test_a_stopped_slice_is_compared_when_it_is_started(location: Location) -> None:
    with opened(location) as c:
        name = c.plan(20.0)
        c.move(name, IntentState.ACCEPTED)
        c.clock[0] += 2 * HOUR
        c.store.set_desired_state(c.record, "stopped")
        c.store.record_observed_stop(c.record, stopped=True)
        c.clock[0] += 5 * HOUR  # in which they cost nothing
        c.store.set_budget(replace(ALL, dollars_per_month=50.0))
        with pytest.raises(BudgetError, match=r"\$40.00 of \$50.00 is spent or held this month"):
            c.store.record_start(c.lease, c.record, name)
        assert c.store.clusters()[0].desired_state == "stopped"
        c.store.set_budget(replace(ALL, dollars_per_month=60.0, dollars_per_hour=20.0))
        c.store.record_start(c.lease, c.record, name)
        assert c.store.clusters()[0].desired_state == "up"
        c.store.set_budget(replace(ALL, dollars_per_month=60.0))
        refused(c, r"\$60.00 of \$60.00 is spent or held", 0.01)  # the hour of the start is held


def test_what_a_reader_measures_is_what_was_planned(location: Location) -> None:
    with opened(location) as c:
        c.store.set_budget(ALL)
        c.move(c.plan(20.0), IntentState.ACCEPTED)
        with open_reader_at(location) as reader:
            (budget,) = reader.budgets()
            usage = measure_usage(budget, list_billed_slices(reader, MONTH + 0.5 * HOUR), MONTH + 0.5 * HOUR)
        assert (usage.month.dollars, usage.held.dollars, usage.per_hour.dollars) == (10.0, 10.0, 20.0)


# --- Bills ---------------------------------------------------------------------------------------------------------


def bill(name: str, dollars: float, hours: float = 2.0, part: str = "machines") -> BillRecord:
    """Return what a bill says of the first hours of a slice."""
    return BillRecord(
        source="gcp", account="A1", month="2026-11", token=f"token-{name}", part=part,
        begin=MONTH, until=MONTH + hours * HOUR, microdollars=round(dollars * 1e6),
    )  # fmt: skip


MONTHS = (("gcp", "A1", "2026-11"),)


@pytest.mark.parametrize(("dollars", "spent"), [(30.0, 70.0), (100.0, 140.0)])
def test_a_bill_replaces_the_recorded_price_for_its_time(location: Location, dollars: float, spent: float) -> None:
    with opened(location) as c:
        c.store.set_budget(replace(ALL, dollars_per_month=95.0))
        name = c.plan(20.0)
        c.move(name, IntentState.ACCEPTED)
        c.clock[0] = MONTH + 4 * HOUR
        refused(c, r"\$80.00 of \$95.00 is spent or held", 20.0)
        found = [bill(name, dollars), bill(name, 5.0, part="disks"), bill(name, -9.0, part="credits")]
        c.store.import_bills(found, MONTHS)
        with open_reader_at(location) as reader:
            state = summarize_budgets(reader, c.clock[0])[0]
        assert (state.spent, state.billed) == (spent, dollars), "a budget counts machines alone"
        if spent + 20.0 <= 95.0:
            c.plan(20.0)
        else:
            refused(c, rf"\${spent:.2f} of \$95.00 is spent or held", 20.0)


def test_a_bill_is_shared_among_the_times_of_runs(location: Location) -> None:
    with opened(location) as c:
        c.store.set_budget(replace(ALL, dollars_per_run=1000.0))
        name = c.plan(20.0, "r")
        c.move(name, IntentState.ACCEPTED)
        c.run("r")
        c.clock[0] = MONTH + 4 * HOUR
        c.store.import_bills([bill(name, 10.0)], MONTHS)
        with open_reader_at(location) as reader:
            usage = measure_usage(ALL, list_billed_slices(reader, c.clock[0], "r"), c.clock[0])
        assert (usage.run.dollars, usage.run.billed, usage.month.dollars) == (50.0, 10.0, 50.0)


def test_a_slice_that_is_planned_while_a_bill_is_imported_is_computed_again(location: Location) -> None:
    with opened(location) as c:
        c.store.set_budget(replace(ALL, dollars_per_month=95.0))
        name = c.plan(20.0)
        c.move(name, IntentState.ACCEPTED)
        before = c.store.budgets()[0].revision
        assert c.store.import_bills([bill(name, 30.0)], MONTHS) == (1, 0)
        assert c.store.budgets()[0].revision == before + 1, "the guard of a plan that read it before no longer holds"
        assert c.store.import_bills([bill(name, 30.0)], MONTHS) == (0, 0)
        assert c.store.budgets()[0].revision == before + 1, "the same bill again changes nothing"


def test_a_time_without_a_price_is_known_where_a_bill_has_it(location: Location) -> None:
    with opened(location) as c:
        c.store.set_budget(replace(ALL, dollars_per_month=95.0, unknown_prices="allow"))
        name = c.plan(None)
        c.move(name, IntentState.ACCEPTED)
        c.clock[0] = MONTH + 3 * HOUR  # what a bill says of the time after its import does not count
        c.store.import_bills([bill(name, 30.0)], MONTHS)
        with open_reader_at(location) as reader:
            slices = list_billed_slices(reader, MONTH + 3 * HOUR)
        assert [measure_usage(ALL, slices, MONTH + hours * HOUR).month.known for hours in (1, 2, 3)] == [
            True,
            True,
            False,
        ]


def test_what_is_billed_is_found_without_the_history_of_other_clusters(tmp_path: Path) -> None:
    """It is read before each slice, and for each running job once a minute."""
    file = tmp_path / "orch.db"

    def count_steps() -> int:
        """Return how often SQLite has done ten steps of its machine."""
        steps = count()
        with open_reader_at(file) as reader:
            assert reader._connection is not None
            reader._connection.set_progress_handler(lambda: next(steps) < 0, 10)
            assert len(list_billed_slices(reader, MONTH)) == 1
        return next(steps)

    with opened(file) as cluster:
        cluster.plan()
        before = count_steps()
        columns = "seq, at, cluster, actor, kind, what, subject, cause, prev_hash, hash"
        rows = ((one, 1.0, f"of{one % 9}", "", "wanted", "up", "", "", "", "") for one in range(10**6, 10**6 + 5000))
        with closing(sqlite3.connect(file)) as raw, raw:
            raw.executemany(f"INSERT INTO events ({columns}) VALUES ({', '.join('?' * 10)})", rows)
        assert count_steps() < 2 * before
