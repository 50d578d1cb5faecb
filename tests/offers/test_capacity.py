"""What own requests say of capacity: counted from events, unknown below five, used for the order of equal prices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.acting import acting_as
from orchestrator.documents.capacity import find_capacity
from orchestrator.engine.preparation.candidates import list_candidates
from orchestrator.engine.state.own_capacity import read_own_capacity
from orchestrator.errors import AccessError, CapacityError
from orchestrator.offers.capacity import (
    DAY,
    CapacityKey,
    CapacityRequest,
    order_equal_prices,
    summarize_capacity,
)
from orchestrator.offers.estimates import assess_risk
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import IntentState
from orchestrator.plan.refusals import Refusal
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.service.plans import PlanRequest, make_order_plan
from orchestrator.slices import Candidate, OnDemand, Spot
from orchestrator.store.leases import Lease
from orchestrator.store.read import Reader
from orchestrator.store.records import NewJob
from orchestrator.store.store import Store
from orchestrator.task.parse import parse_task

NOW = 1_700_006_400.0
HOUR = 3600.0
KEY = CapacityKey(provider="gcp", place="us-west4-a", accelerator="v5e-8", hosts=1, market="spot")
CANDIDATE = Candidate(
    provider="gcp", accelerator="v5e-8", hosts=1, chips_per_host=8, market=Spot(), region="us-west4", zone="us-west4-a",
    price_per_hour=4.0,
)  # fmt: skip


def ask(
    got: bool | None, wait: float = 600, *, age: float = 0, hours: float = 0, lost: bool = False
) -> CapacityRequest:
    return CapacityRequest(key=KEY, at=NOW - age * DAY, wait=wait, got=got, hours=hours, lost=lost)


def test_below_five_requests_nothing_is_known() -> None:
    found = summarize_capacity([ask(True, hours=10)] * 4, NOW)[KEY]
    assert (found.requests, found.got, found.chance_within(HOUR), found.losses_per_hour) == (4, 4, None, None)
    more = summarize_capacity([ask(True, hours=10)] * 5, NOW)[KEY]
    assert more.chance_within(HOUR) == pytest.approx(6 / 7) and more.losses_per_hour == pytest.approx(0.5 / 50)
    assert str(summarize_capacity([ask(True), ask(False), ask(True, 2040)], NOW)[KEY]) == (
        "2 of 3 requests got machines, median wait 22 min"
    )


def test_no_rate_of_losses_is_made_of_short_runs() -> None:
    short = summarize_capacity([ask(True, hours=0.01)] * 6, NOW)[KEY]
    assert (short.got, short.losses_per_hour) == (6, None), "a minute without a loss says nothing"
    assert summarize_capacity([ask(True, hours=3.9)] * 5, NOW)[KEY].losses_per_hour is None
    assert summarize_capacity([ask(True, hours=4)] * 5, NOW)[KEY].losses_per_hour == pytest.approx(0.5 / 20)
    lost = [ask(True, hours=0.5, lost=True)] * 4
    assert summarize_capacity([*lost, ask(True, hours=0.5)], NOW)[KEY].losses_per_hour is None
    five = summarize_capacity([*lost, lost[0]], NOW)[KEY].losses_per_hour
    assert five == pytest.approx(5.5 / 2.5), "five losses are counted however soon they came"


def test_a_request_that_waits_still_says_only_that_it_waited_so_long() -> None:
    found = summarize_capacity([*[ask(True, 300)] * 3, *[ask(None, 2 * HOUR)] * 3], NOW)[KEY]
    assert found.chance_within(HOUR) == pytest.approx(4 / 8)
    assert found.chance_within(3 * HOUR) is None, "of those that wait nothing is known for a longer time"


def test_what_is_old_weighs_less_and_ends() -> None:
    old, new = [ask(False, age=28)] * 5, [ask(True)] * 5
    assert summarize_capacity([*old, *new], NOW)[KEY].chance_within(HOUR) == pytest.approx(6 / (2 + 5 + 5 / 4))
    assert summarize_capacity([ask(False, age=85)] * 9, NOW) == {}


@given(
    st.lists(
        st.builds(ask, st.sampled_from([True, False, None]), st.floats(0, 1e5), age=st.floats(0, 90)), max_size=20
    ),
    st.lists(st.floats(0, 1e5), min_size=2, max_size=2),
)
def test_chances_are_between_0_and_1(requests: list[CapacityRequest], times: list[float]) -> None:
    for one in summarize_capacity(requests, NOW).values():
        for chance in map(one.chance_within, times):
            assert chance is None or 0 < chance < 1


def test_places_of_one_price_are_ordered_by_what_is_known_and_none_is_left_out() -> None:
    zones = [replace(CANDIDATE, zone=f"us-west4-{letter}") for letter in "abc"]
    dear = [replace(CANDIDATE, zone=f"europe-west4-{letter}", price_per_hour=9.0) for letter in "ab"]
    figures = {
        zones[0]: summarize_capacity([ask(False)] * 6, NOW)[KEY],
        zones[2]: summarize_capacity([ask(True)] * 6, NOW)[KEY],
        dear[1]: summarize_capacity([ask(True)] * 6, NOW)[KEY],
        dear[0]: summarize_capacity([ask(True)] * 4, NOW)[KEY],
    }
    assert order_equal_prices([*zones, *dear], figures) == (zones[2], zones[1], zones[0], dear[1], dear[0])
    assert order_equal_prices(zones, {}) == tuple(zones)


def test_own_losses_replace_the_assumed_rate() -> None:
    assert assess_risk(8, 1, Spot(), 0.002).per_hour.typical < assess_risk(8, 1, Spot()).per_hour.typical
    assert assess_risk(8, 1, OnDemand(), 0.5).per_hour.typical > 0.4


class _Clock:
    """The time of a store, moved by hand."""

    def __init__(self) -> None:
        self.now = NOW - 3 * DAY

    def __call__(self) -> float:
        return self.now


def test_events_of_real_records_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path / "home"))
    clock = _Clock()
    refusal = str(Refusal.from_error(CapacityError("no machines", "stockout", "wait")))
    denied = str(Refusal.from_error(AccessError("not allowed", "no permission", "ask")))
    with Store(tmp_path / "orch.db", clock) as store:
        for number, kind in enumerate(["got", "got", "got", "got", "lost", "refused", "denied", "cancelled", "waits"]):
            name = f"c{number}"
            cluster = store.open_cluster(name, "")
            lease = store.acquire(f"cluster:{name}", "test")
            assert isinstance(lease, Lease)
            store.write_intent(lease, cluster, 1, f"{name}-1", CANDIDATE, f"{cluster.uid}-1", "{}")
            clock.now += 600
            if kind in ("refused", "denied"):
                why = refusal if kind == "refused" else denied
                store.update_intent(lease, cluster, f"{name}-1", IntentState.REFUSED, EndCause.REFUSED, why)
                continue
            store.update_intent(lease, cluster, f"{name}-1", IntentState.ACCEPTED)
            if kind in ("got", "lost"):
                job = store.open_job(cluster, NewJob(
                    kind="launch", run_id=name, digest="d", task="", bucket="", ranks=None,
                    after_end=TeardownPolicy.KEEP,
                ))  # fmt: skip
                clock.now += 600
                store.start_attempt(cluster, job.id)
                clock.now += 5 * HOUR
            if kind != "waits":
                cause = EndCause.PREEMPTED if kind == "lost" else EndCause.REQUESTED
                store.update_intent(lease, cluster, f"{name}-1", IntentState.ENDING, cause, "why")
                store.update_intent(lease, cluster, f"{name}-1", IntentState.DELETED)
    with Reader(tmp_path / "orch.db") as reader:
        found = find_capacity(reader, NOW)
    one = found[KEY]
    assert one == found[KEY.anywhere()]
    assert (one.requests, one.got, one.refused, one.lost) == (9, 5, 1, 1)
    assert one.median_wait == 1200
    assert one.losses_per_hour == pytest.approx(1.4 / 22, rel=0.1)
    assert one.chance_within(HOUR) == pytest.approx(6 / 9, rel=0.05), "the one that waits for days had none in an hour"


def test_a_plan_of_a_service_says_nothing_of_the_requests_of_another_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    (tmp_path / "state").mkdir(mode=0o700)
    refusal = str(Refusal.from_error(CapacityError("no machines", "stockout", "wait")))
    task = "run: x\nresources: {infra: aws/us-east-1, accelerators: p5.48xlarge}\n"
    (candidate, *_) = list_candidates(parse_task(task, file="task.yaml", env={}).only)
    with Store(tmp_path / "state" / "orch.db", project="audio") as store:
        for number in range(6):
            cluster = store.open_cluster(name := f"crimson{number}", "")
            lease = store.acquire(f"cluster:{cluster.qualified_name}", "test")
            assert isinstance(lease, Lease)
            store.write_intent(lease, cluster, 1, f"{name}-1", candidate, f"{cluster.uid}-1", "{}")
            store.update_intent(lease, cluster, f"{name}-1", IntentState.REFUSED, EndCause.REFUSED, refusal)
    assert read_own_capacity("vision") and read_own_capacity("audio", alone=True)
    assert not read_own_capacity("vision", alone=True), "an engine writes what it finds where members read it"
    request = PlanRequest(verb="launch", task=task, cluster="mine")
    assert "requests got machines" in str(make_order_plan(request, "vision").notes), "who owns the store sees all"
    with acting_as("eve"):
        assert "requests got machines" in str(make_order_plan(request, "audio").notes)
        assert "requests got machines" not in str(make_order_plan(request, "vision").notes)
