"""What bills say, blocks and predictions: on both databases, a repeated import changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.plan.observed import Intent, IntentState
from orchestrator.plan.spending_budget import BilledSlice, SpendingBudget, measure_usage
from orchestrator.slices import Candidate, OnDemand
from orchestrator.store.bill_records import BillRecord, BlockRecord, compare_bills
from orchestrator.store.failures import StoreError
from orchestrator.store.location import Location
from orchestrator.store.read import open_reader_at
from orchestrator.store.replay import rebuild_tables, verify_chain
from orchestrator.store.store import Store

BILL = BillRecord(
    source="aws", account="123456789012", month="2026-11", token="uid-1", part="machines",
    begin=1.0e9, until=1.0e9 + 7200, microdollars=98_320_000,
)  # fmt: skip
DAY, HOUR = 1_795_651_200.0, 3600.0  # 2026-11-26
MONTH = [("aws", "123456789012", "2026-11")]


def read(location: Location) -> dict[str, int]:
    with open_reader_at(location) as reader:
        events = tuple(reader.all_events())
        assert verify_chain(events, reader.head()) is None
        assert {row["line"] for row in reader.rows("bills")} == {key[0] for key in rebuild_tables(events)["bills"]}
        return {one.part: one.microdollars for one in reader.bills()}


def test_a_bill_is_replaced_whole_and_only_where_it_differs(location: Location) -> None:
    disks = replace(BILL, part="disks", microdollars=5)
    with Store(location) as store:
        assert store.import_bills([BILL, disks], MONTH) == (2, 0)
        seen = len(store.bills())
        assert store.import_bills([BILL, disks], MONTH) == (0, 0), "the same again"
        shorter = [replace(BILL, microdollars=10**13)]
        planned = compare_bills(store.bills(), shorter, MONTH).result
        assert store.import_bills(shorter, MONTH) == (0, 2)
        assert {one.line: one.amount for one in store.bills()} == {one.line: one.amount for one in planned}
        assert len(store.bills()) == seen, "the row of a line that is no more stays"
    assert read(location) == {"machines": 10**13, "disks": 0}


def test_a_bill_says_nothing_of_the_time_after_its_import(location: Location) -> None:
    day = replace(BILL, begin=DAY, until=DAY + 24 * HOUR, microdollars=100_000_000)
    clock = [DAY + 10 * HOUR]
    with Store(location, lambda: clock[0]) as store:
        store.import_bills([day], MONTH)
        clock[0] = DAY + 20 * HOUR
        assert store.import_bills([day], MONTH) == (0, 0), "the same files again"
        assert [spend(store.bills(), hour) for hour in (10, 20, 24)] == [100, 200, 240]
        store.import_bills([replace(day, microdollars=150_000_000)], MONTH)
        assert spend(store.bills(), 24) == 190
        assert store.import_bills([], MONTH) == (0, 1)
        assert spend(store.bills(), 24) == 240, "a line that is no more covers no time"
        assert store.import_bills([day], MONTH) == (0, 1) and spend(store.bills(), 24) == 140


def spend(bills: tuple[BillRecord, ...], hour: int) -> float:
    """Return what a budget counts of a machine for $10 an hour that exists since DAY."""
    candidate = Candidate(
        provider="aws", accelerator="p5.48xlarge", hosts=1, chips_per_host=8, market=OnDemand(), price_per_hour=10.0
    )
    intent = Intent(
        generation=1, name="a-1", candidate=candidate, state=IntentState.ACCEPTED, since=DAY, billed_from=DAY
    )
    one = BilledSlice(project="", member="", intent=intent, billed=tuple(bill.amount for bill in bills))
    return measure_usage(SpendingBudget(project="", member=""), [one], DAY + hour * HOUR).month.dollars


def test_another_month_account_or_cloud_stays(location: Location) -> None:
    others = [replace(BILL, month="2026-10"), replace(BILL, account="2"), replace(BILL, source="gcp")]
    with Store(location) as store:
        store.import_bills(others, [(one.source, one.account, one.month) for one in others])
        store.import_bills([BILL], MONTH)
        assert sorted(one.microdollars for one in store.bills()) == [BILL.microdollars] * 4


def test_a_part_that_only_a_newer_orch_knows_is_refused(location: Location) -> None:
    with Store(location) as store:
        store.import_bills([replace(BILL, part="carbon")], MONTH)
        with pytest.raises(StoreError, match="carbon"):
            store.bills()


def test_the_first_prediction_of_a_run_stays_and_a_block_is_recorded_once(location: Location) -> None:
    block = BlockRecord(
        block_id="cr-1", provider="aws", region="us-east-1", machine="p5.48xlarge", count=4, begin=1e9, until=2e9,
        microdollars=7_552_000_000, project="default", member="ada",
    )  # fmt: skip
    with Store(location, lambda: 1e9) as store:
        store.record_prediction("run", '{"a": 1}')
        store.record_prediction("run", '{"a": 2}')
        store.record_block(block)
        store.record_block(replace(block, microdollars=1))
    with open_reader_at(location) as reader:
        assert [one.estimate for one in reader.predictions()] == ['{"a": 1}']
        assert [(one.microdollars, one.bought) for one in reader.blocks()] == [(7_552_000_000, 1e9)]


def test_when_machines_were_stopped_is_read_from_the_events(location: Location) -> None:
    moments = iter(range(1000, 2000, 10))
    with Store(location, lambda: float(next(moments))) as store:
        cluster = store.open_cluster("a", "")
        other = store.open_cluster("b", "")
        for stopped, requested in ((True, "up"), (False, "stopped"), (True, "stopped"), (True, "stopped")):
            store.record_observed_stop(cluster, stopped=stopped)
            store.set_desired_state(cluster, requested)  # a request to stop ends no cost: it may fail
        store.record_observed_stop(cluster, stopped=False)  # they were started in the cloud's console
        store.record_observed_stop(cluster, stopped=True)
        for state in ("stopped", "down"):
            store.set_desired_state(other, state)
    with open_reader_at(location) as reader:
        found = reader.stopped_times(5000.0)
        assert found == reader.stopped_times(5000.0, [cluster])
        assert reader.stopped_times(5000.0, [other]) == reader.stopped_times(5000.0, []) == {}
    assert list(found) == [cluster.uid]
    first, second, third = found[cluster.uid]
    assert first[0] < first[1] < second[0] < second[1] < third[0] < third[1] == 5000.0
