"""One test for each rule of orchestrator/simulator/rules.py, named after it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from sim_support import CALL, INSTALLATION, SPOT, fault, make_sim, refusal

from orchestrator.hosts import Failure, JobPhase
from orchestrator.simulator.calls import Code, Label, QueueCall
from orchestrator.simulator.programs import Program
from orchestrator.simulator.rules import MOVES, QUEUE_MOVES, RULES
from orchestrator.simulator.scenario import Deed, FaultKind, Happening, Held, Pool, Quota, Zone
from orchestrator.simulator.state import Phase, QueuePhase

OTHER = replace(CALL, name="other-1", token="token-2")


def test_every_rule_has_a_test_and_a_source() -> None:
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)
    assert {f"test_{name}" for name in names} <= set(globals())
    assert all(rule.source and rule.words for rule in RULES)


def test_both_tables_of_moves_name_every_phase_and_every_phase_can_be_left_towards_the_end() -> None:
    assert set(MOVES) == set(Phase)
    assert set(QUEUE_MOVES) == set(QueuePhase)
    assert len(QueuePhase) == 10
    for phase in set(Phase) - {Phase.ABSENT, Phase.ENDING}:
        assert Phase.ENDING in MOVES[phase]


# --- tokens and names -------------------------------------------------------------------------------------


def test_token_makes_a_create_repeatable() -> None:
    sim = make_sim()
    first = sim.cloud.create(CALL)
    sim.clock.advance(41)
    again = sim.cloud.create(CALL)
    assert (again.uid, again.phase) == (first.uid, Phase.READY)
    assert len(sim.cloud.made_for("token-1")) == 1
    assert [call.acted for call in sim.cloud.calls("create")] == [True, False]


def test_without_honoured_tokens_a_repeated_create_makes_a_second_resource() -> None:
    sim = make_sim(honour_tokens=False)
    sim.cloud.create(CALL)
    sim.cloud.create(CALL)
    assert [look.name for look in sim.cloud.made_for("token-1")] == ["demo-1", "demo-1-2"]


@pytest.mark.parametrize(
    "other",
    [
        replace(CALL, hosts=3),
        replace(CALL, zone="sim-b"),
        replace(CALL, market="spot"),
        replace(CALL, labels={}),
        replace(CALL, extra={"keys": 1}),
    ],
)
def test_token_with_another_request_is_refused(other: object) -> None:
    sim = make_sim()
    first = sim.cloud.create(CALL)
    assert refusal(lambda: sim.cloud.create(other)) is Code.TOKEN_MISMATCH  # type: ignore[arg-type]  # a CreateCall
    assert [look.uid for look in sim.cloud.made()] == [first.uid]


def test_token_outlives_its_resource() -> None:
    sim = make_sim()
    sim.ready()
    sim.cloud.end("demo-1")
    sim.clock.advance(21)
    assert refusal(lambda: sim.cloud.create(CALL)) is Code.TOKEN_SPENT
    sim.clock.advance(23 * 3600)
    assert refusal(lambda: sim.cloud.create(CALL)) is Code.TOKEN_SPENT
    sim.clock.advance(2 * 3600)
    assert sim.cloud.create(CALL).phase is Phase.CREATING


def test_name_is_taken_while_it_lives() -> None:
    sim = make_sim()
    sim.ready()
    second = replace(CALL, token="token-2")
    assert refusal(lambda: sim.cloud.create(second)) is Code.ALREADY_EXISTS
    sim.cloud.end("demo-1")
    assert refusal(lambda: sim.cloud.create(second)) is Code.ALREADY_EXISTS
    sim.clock.advance(21)
    assert sim.cloud.create(second).name == "demo-1"


def test_same_name_may_live_in_two_zones() -> None:
    sim = make_sim()
    sim.cloud.create(CALL)
    sim.cloud.create(replace(CALL, zone="sim-b", token="token-2"))
    assert {sim.cloud.get("demo-1", zone).zone for zone in ("sim-a", "sim-b")} == {"sim-a", "sim-b"}


# --- room -------------------------------------------------------------------------------------------------


def test_create_without_capacity_is_refused() -> None:
    sim = make_sim(pools=(Pool(zone="sim-a", accelerator="v5e", amount=16, unit="chips"),))
    sim.ready()
    sim.cloud.create(OTHER)
    third = replace(CALL, name="third-1", token="token-3")
    assert refusal(lambda: sim.cloud.create(third)) is Code.NO_CAPACITY
    assert sim.cloud.made_for("token-3") == ()
    sim.cloud.end("demo-1")
    sim.clock.advance(21)
    assert sim.cloud.create(third).phase is Phase.CREATING


def test_capacity_of_a_market_is_its_own() -> None:
    sim = make_sim(
        pools=(
            Pool(zone="sim-a", accelerator="v5e", amount=2, market="spot"),
            Pool(zone="sim-a", accelerator="v5e", amount=2, market="on-demand"),
        )
    )
    sim.cloud.create(CALL)
    sim.cloud.create(replace(SPOT, name="spot-1", token="token-2"))
    assert refusal(lambda: sim.cloud.create(replace(SPOT, name="spot-2", token="token-3"))) is Code.NO_CAPACITY


def test_capacity_can_fail_late() -> None:
    sim = make_sim(fault("create", FaultKind.LATE_STOCKOUT))
    assert sim.cloud.create(CALL).phase is Phase.CREATING
    sim.clock.advance(41)
    found = sim.cloud.get("demo-1")
    assert (found.phase, found.hosts) == (Phase.FAILED, ())
    assert "no capacity" in found.reason
    sim.clock.advance(86_400)
    assert sim.phase() == "failed"
    sim.cloud.end("demo-1")


def test_quota_is_distinguished_from_capacity() -> None:
    sim = make_sim(
        quotas=(Quota(region="sim", accelerator="v5e", amount=3),),
        pools=(Pool(zone="sim-a", accelerator="v5e", amount=2), Pool(zone="sim-b", accelerator="v5e", amount=9)),
    )
    sim.ready()
    assert refusal(lambda: sim.cloud.create(OTHER)) is Code.QUOTA
    assert refusal(lambda: sim.cloud.create(replace(OTHER, zone="sim-b"))) is Code.QUOTA
    assert refusal(lambda: sim.cloud.create(replace(OTHER, hosts=1))) is Code.NO_CAPACITY
    assert sim.cloud.create(replace(OTHER, zone="sim-b", hosts=1)).phase is Phase.CREATING


def test_reservation_has_machines_of_its_own() -> None:
    held = Held(name="r1", zone="sim-a", accelerator="v5e", amount=2)
    sim = make_sim(pools=(Pool(zone="sim-a", accelerator="v5e", amount=2),), reservations=(held,))
    sim.ready()
    reserved = replace(OTHER, market="reservation:r1")
    assert sim.cloud.create(reserved).phase is Phase.CREATING
    third = replace(reserved, name="third-1", token="token-3")
    assert refusal(lambda: sim.cloud.create(third)) is Code.NO_CAPACITY
    assert refusal(lambda: sim.cloud.create(replace(third, market="reservation:none"))) is Code.INVALID
    assert refusal(lambda: sim.cloud.create(replace(third, zone="sim-b"))) is Code.INVALID


def test_accelerator_must_be_offered_in_the_zone() -> None:
    sim = make_sim(pools=(Pool(zone="sim-a", accelerator="v6e", amount=8),))
    assert refusal(lambda: sim.cloud.create(CALL)) is Code.NOT_OFFERED
    assert sim.cloud.create(replace(CALL, zone="sim-b")).zone == "sim-b"


def test_zone_that_is_not_there_is_refused_unless_the_scenario_has_them_all() -> None:
    sim = make_sim(zones=(Zone("sim-a", "sim"),))
    assert refusal(lambda: sim.cloud.create(replace(CALL, zone="us-west4-a"))) is Code.INVALID
    every = make_sim()
    assert every.cloud.create(replace(CALL, zone="us-west4-a")).zone == "us-west4-a"
    assert every.cloud.scenario.region("us-west4-a") == "us-west4"


def test_capacity_changes_at_its_time() -> None:
    more = Happening(do=Deed.CAPACITY, at=60, zone="sim-a", accelerator="v5e", amount=2)
    sim = make_sim(pools=(Pool(zone="sim-a", accelerator="v5e", amount=0),), happenings=(more,))
    assert refusal(lambda: sim.cloud.create(CALL)) is Code.NO_CAPACITY
    sim.clock.advance(60)
    assert sim.cloud.create(CALL).phase is Phase.CREATING


def test_capacity_changes_at_a_step() -> None:
    less = Happening(do=Deed.CAPACITY, step=5, zone="sim-a", accelerator="v5e", amount=2)
    sim = make_sim(pools=(Pool(zone="sim-a", accelerator="v5e", amount=4),), happenings=(less,))
    sim.ready()
    second = replace(CALL, name="demo-2", token="token-2")
    sim.cloud.report_step("demo-1", 0, 4)
    assert sim.cloud.create(second).phase is Phase.CREATING
    sim.cloud.end("demo-2")
    sim.clock.advance(21)
    sim.cloud.report_step("demo-1", 0, 5)
    assert refusal(lambda: sim.cloud.create(replace(second, name="demo-3", token="token-3"))) is Code.NO_CAPACITY


# --- what is taken away -----------------------------------------------------------------------------------


def test_only_spot_is_preempted() -> None:
    sim = make_sim(spot_life=600.0)
    sim.ready()
    sim.ready(replace(SPOT, name="spot-1", token="token-2"))
    sim.clock.advance(100 * 3600)
    assert (sim.phase("demo-1"), sim.phase("spot-1")) == ("ready", "preempted")


def test_preemption_gives_notice() -> None:
    sim = make_sim()
    sim.ready(SPOT)
    sim.cloud.preempt("demo-1", notice=30)
    assert [host.dies for host in sim.cloud.get("demo-1").hosts] == [sim.clock.now() + 30] * 2
    sim.clock.advance(29)
    assert sim.phase() == "ready"
    sim.clock.advance(1)
    assert sim.phase() == "preempted"


def test_preempted_resource_stays_until_ended() -> None:
    sim = make_sim(pools=(Pool(zone="sim-a", accelerator="v5e", amount=2),))
    sim.ready(SPOT)
    sim.cloud.preempt("demo-1", 1)
    sim.clock.advance(86_400)
    assert sim.cloud.get("demo-1").reason == "host 1 of 2 was preempted"
    assert sim.cloud.create(OTHER).phase is Phase.CREATING, "its machines are free"
    sim.cloud.end("demo-1")
    sim.clock.advance(21)
    assert sim.phase() == "absent"


def test_maintenance_restarts_the_hosts() -> None:
    sim = make_sim()
    sim.ready(OTHER)
    hands = sim.launch()
    before = hands.hosts
    hands.start_job("c-1-a1", b"", lambda _: b"", [0, 1])
    hands.write_mark("setup", "digest")
    sim.cloud.end("other-1")
    sim.clock.advance(21)
    sim.cloud.do("demo-1", Deed.MAINTENANCE)
    assert sim.phase() == "maintenance"
    sim.clock.advance(121)
    after = sim.hands()
    assert [host.alias for host in after.hosts] == [host.alias for host in before]
    assert {host.host for host in after.hosts}.isdisjoint(host.host for host in before)
    assert [job.phase for job in after.read_job("c-1-a1").jobs] == [JobPhase.LOST] * 2
    assert after.read_marks().held == {0: {"setup": "digest"}, 1: {"setup": "digest"}}


def test_dead_host_is_noticed_late() -> None:
    sim = make_sim()
    hands = sim.launch()
    sim.cloud.do("demo-1", Deed.FAIL_HOST, 1)
    assert sim.phase() == "ready"
    look = hands.read_job("job")
    assert [(outcome.rank, outcome.failure) for outcome in look.failed] == [(1, Failure.UNREACHABLE)]
    sim.clock.advance(60)
    assert sim.phase() == "failed"


def test_half_made_create_never_gets_ready() -> None:
    sim = make_sim(fault("create", FaultKind.HALF_MADE, rank=0))
    sim.cloud.create(CALL)
    sim.clock.advance(86_400)
    found = sim.cloud.get("demo-1")
    assert (found.phase, found.reason) == (Phase.CREATING, "1 of 2 hosts are up")
    assert [host.up for host in found.hosts] == [False, True]
    sim.cloud.end("demo-1")
    sim.clock.advance(21)
    assert sim.phase() == "absent"


def test_stopped_resource_gives_its_machines_back() -> None:
    sim = make_sim(pools=(Pool(zone="sim-a", accelerator="v5e", amount=2),))
    sim.ready()
    sim.cloud.stop("demo-1")
    sim.clock.advance(21)
    assert sim.phase() == "stopped"
    sim.cloud.create(OTHER)
    assert refusal(lambda: sim.cloud.start("demo-1")) is Code.NO_CAPACITY
    assert sim.phase() == "stopped"
    sim.cloud.end("other-1")
    sim.clock.advance(21)
    sim.cloud.start("demo-1")
    sim.clock.advance(31)
    assert sim.phase() == "ready"


# --- calls that go wrong ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "lives"), [(FaultKind.TIMEOUT_BEFORE, False), (FaultKind.TIMEOUT_AFTER, True)])
def test_time_out_may_have_acted(kind: FaultKind, lives: bool) -> None:
    sim = make_sim(fault("create", kind))
    assert refusal(lambda: sim.cloud.create(CALL)) is Code.TIMEOUT
    assert bool(sim.cloud.live()) is lives
    assert [(call.result, call.acted) for call in sim.cloud.calls("create")] == [("timeout", lives)]
    sim.cloud.create(CALL)
    assert len(sim.cloud.made_for("token-1")) == 1


def test_late_request_arrives_after_its_time_out() -> None:
    sim = make_sim(fault("create", FaultKind.LATE, seconds=90.0), fault("end", FaultKind.LATE, seconds=90.0))
    assert refusal(lambda: sim.cloud.create(CALL)) is Code.TIMEOUT
    assert sim.phase() == "absent"
    sim.clock.advance(90)
    assert sim.phase() == "creating"
    assert refusal(lambda: sim.cloud.end("demo-1")) is Code.TIMEOUT
    assert sim.phase() == "creating"
    sim.clock.advance(90)
    assert sim.phase() == "ending"


def test_duplicate_delivery_acts_once_with_a_token() -> None:
    sim = make_sim(fault("create", FaultKind.DUPLICATE))
    sim.cloud.create(CALL)
    assert len(sim.cloud.made()) == 1
    careless = make_sim(fault("create", FaultKind.DUPLICATE), honour_tokens=False)
    careless.cloud.create(CALL)
    assert len(careless.cloud.made()) == 2


@pytest.mark.parametrize(
    ("kind", "code", "http"),
    [
        (FaultKind.THROTTLED, Code.THROTTLED, 429),
        (FaultKind.INTERNAL, Code.INTERNAL, 500),
        (FaultKind.UNAVAILABLE, Code.UNAVAILABLE, 503),
        (FaultKind.DENIED, Code.DENIED, 403),
    ],
)
def test_throttling_and_server_errors_do_not_act(kind: FaultKind, code: Code, http: int) -> None:
    from orchestrator.simulator.calls import HTTP

    sim = make_sim(fault("create", kind), fault("end", kind))
    assert refusal(lambda: sim.cloud.create(CALL)) is code
    assert HTTP[code] == http
    assert sim.cloud.made() == ()
    sim.ready()
    assert refusal(lambda: sim.cloud.end("demo-1")) is code
    assert sim.phase() == "ready"


def test_new_resource_may_not_be_shown_yet() -> None:
    sim = make_sim(lag=30.0)
    sim.cloud.create(CALL)
    missed = [not sim.cloud.list_page().items for _ in range(20)]
    assert any(missed), "within the lag a listing may miss it"
    sim.clock.advance(15)
    seen = [bool(sim.cloud.list_page().items) for _ in range(20)]
    assert {True, False} == set(seen), "one look may know it, the next not"
    sim.clock.advance(30)
    assert all(sim.cloud.list_page().items for _ in range(20))
    sim.cloud.end("demo-1")
    sim.clock.advance(21)
    assert any(sim.cloud.list_page().items for _ in range(20)), "what has gone may still be shown"
    sim.clock.advance(30)
    assert not any(sim.cloud.list_page().items for _ in range(20))


def test_stale_read_shows_an_older_state() -> None:
    sim = make_sim(fault("get", FaultKind.STALE, seconds=60.0), fault("get", FaultKind.STALE, nth=3, seconds=1.0))
    sim.ready()
    assert sim.cloud.get("demo-1").phase is Phase.CREATING
    assert sim.cloud.get("demo-1").phase is Phase.READY
    sim.clock.advance(5)
    sim.cloud.end("demo-1")
    assert sim.cloud.get("demo-1").phase is Phase.READY
    assert sim.cloud.get("demo-1").phase is Phase.ENDING


def test_page_may_be_empty_and_not_the_last() -> None:
    sim = make_sim(fault("list", FaultKind.EMPTY_PAGE), fault("list", FaultKind.EMPTY_PAGE, nth=3), page=2)
    for number in range(5):
        sim.cloud.create(replace(CALL, name=f"demo-{number}", token=f"token-{number}"))
    sizes: list[int] = []
    names: list[str] = []
    page = ""
    while True:
        answer = sim.cloud.list_page(page)
        sizes.append(len(answer.items))
        names += [look.name for look in answer.items]
        page = answer.next_page
        if not page:
            break
    assert sizes == [0, 2, 0, 2, 1]
    assert names == [f"demo-{number}" for number in range(5)]


def test_partial_listing_says_so() -> None:
    sim = make_sim(fault("list", FaultKind.PARTIAL))
    sim.cloud.create(CALL)
    page = sim.cloud.list_page()
    assert (page.items, page.unreachable) == ((), ("sim-a",))
    assert sim.cloud.list_page().unreachable == ()


@pytest.mark.parametrize(
    ("kind", "shown"), [(FaultKind.IGNORED, "ready"), (FaultKind.STUCK, "ending")], ids=["ignored", "stuck"]
)
def test_accepted_end_may_do_nothing(kind: FaultKind, shown: str) -> None:
    sim = make_sim(fault("end", kind))
    sim.ready()
    sim.cloud.end("demo-1")
    sim.clock.advance(86_400)
    assert sim.phase() == shown
    sim.cloud.end("demo-1")
    sim.clock.advance(21)
    assert sim.phase() == "absent"


def test_slow_call_takes_longer() -> None:
    sim = make_sim(fault("create", FaultKind.SLOW, seconds=100.0), fault("end", FaultKind.SLOW, seconds=100.0))
    sim.cloud.create(CALL)
    sim.clock.advance(139)
    assert sim.phase() == "creating"
    sim.clock.advance(2)
    assert sim.phase() == "ready"
    sim.cloud.end("demo-1")
    sim.clock.advance(119)
    assert sim.phase() == "ending"
    sim.clock.advance(2)
    assert sim.phase() == "absent"


def test_end_of_an_ending_resource_succeeds() -> None:
    sim = make_sim()
    sim.ready()
    sim.cloud.end("demo-1")
    sim.clock.advance(10)
    sim.cloud.end("demo-1")
    sim.clock.advance(10)
    assert sim.phase() == "absent", "the second end does not begin again"
    assert refusal(lambda: sim.cloud.end("demo-1")) is Code.NOT_FOUND


# --- queued requests --------------------------------------------------------------------------------------


def queued(name: str = "q-1", request: str = "r-1", valid_for: float | None = None, node: str = "node-1") -> QueueCall:
    return QueueCall(
        name=name, node=replace(CALL, name=node, token="", market="spot"), request_id=request, valid_for=valid_for
    )


def test_queue_waits_for_machines_in_order() -> None:
    sim = make_sim(pools=(Pool(zone="sim-a", accelerator="v5e", amount=2),))
    cloud = sim.cloud
    assert cloud.queue(queued()).phase is QueuePhase.CREATING
    cloud.queue(queued("q-2", "r-2", node="node-2"))
    phases = []
    for _ in range(60):
        sim.clock.advance(1)
        phases.append(cloud.get_queued("q-1").phase)
    assert list(dict.fromkeys(phases)) == [
        QueuePhase.CREATING,
        QueuePhase.ACCEPTED,
        QueuePhase.PROVISIONING,
        QueuePhase.ACTIVE,
    ]
    assert cloud.get_queued("q-2").phase is QueuePhase.WAITING
    assert cloud.get("node-1").phase is Phase.READY
    cloud.delete_queued("q-1", force=True)
    sim.clock.advance(80)
    assert [look.name for look in cloud.list_queued()] == ["q-2"]
    assert cloud.get_queued("q-2").phase is QueuePhase.ACTIVE


def test_small_request_does_not_overtake_a_large_one_of_its_kind() -> None:
    sim = make_sim(
        pools=(Pool(zone="sim-a", accelerator="v5e", amount=1), Pool(zone="sim-b", accelerator="v5e", amount=1))
    )
    for name, hosts, zone in (("q-large", 2, "sim-a"), ("q-small", 1, "sim-a"), ("q-elsewhere", 1, "sim-b")):
        node = replace(CALL, name=f"node-{name}", token="", hosts=hosts, zone=zone)
        sim.cloud.queue(QueueCall(name=name, node=node, request_id=name))
    sim.clock.advance(120)
    assert {look.name: look.phase for look in sim.cloud.list_queued()} == {
        "q-large": QueuePhase.WAITING,
        "q-small": QueuePhase.WAITING,
        "q-elsewhere": QueuePhase.ACTIVE,
    }


def test_queue_request_id_makes_it_repeatable() -> None:
    sim = make_sim()
    first = sim.cloud.queue(queued())
    assert sim.cloud.queue(queued()).uid == first.uid
    assert refusal(lambda: sim.cloud.queue(queued(node="node-9"))) is Code.TOKEN_MISMATCH
    assert refusal(lambda: sim.cloud.queue(queued(request="r-9"))) is Code.ALREADY_EXISTS
    assert len(sim.cloud.list_queued()) == 1


def test_queue_request_expires_and_stays() -> None:
    sim = make_sim(pools=(Pool(zone="sim-a", accelerator="v5e", amount=0),))
    sim.cloud.queue(queued(valid_for=600.0))
    sim.clock.advance(599)
    assert sim.cloud.get_queued("q-1").phase is QueuePhase.WAITING
    sim.clock.advance(1)
    assert sim.cloud.get_queued("q-1").phase is QueuePhase.FAILED
    sim.clock.advance(86_400)
    assert [look.phase for look in sim.cloud.list_queued()] == [QueuePhase.FAILED]
    sim.cloud.delete_queued("q-1")
    sim.clock.advance(6)
    assert sim.cloud.list_queued() == ()
    assert sim.cloud.made() == ()


def test_preempted_queue_request_is_suspended() -> None:
    sim = make_sim()
    sim.cloud.queue(queued())
    sim.clock.advance(60)
    sim.cloud.preempt("node-1")
    assert sim.cloud.get_queued("q-1").phase is QueuePhase.SUSPENDING
    sim.clock.advance(21)
    assert sim.cloud.get_queued("q-1").phase is QueuePhase.SUSPENDED
    sim.clock.advance(86_400)
    assert sim.cloud.get_queued("q-1").phase is QueuePhase.SUSPENDED
    assert sim.cloud.live() == ()


def test_suspended_queue_request_holds_quota() -> None:
    sim = make_sim(quotas=(Quota(region="sim", accelerator="v5e", amount=2),))
    sim.cloud.queue(queued())
    sim.clock.advance(60)
    sim.cloud.preempt("node-1")
    sim.clock.advance(21)
    assert refusal(lambda: sim.cloud.create(CALL)) is Code.QUOTA
    sim.cloud.delete_queued("q-1")
    sim.clock.advance(6)
    assert sim.cloud.create(CALL).phase is Phase.CREATING


def test_queue_request_with_nodes_needs_force() -> None:
    sim = make_sim()
    sim.cloud.queue(queued())
    sim.clock.advance(60)
    assert refusal(lambda: sim.cloud.delete_queued("q-1")) is Code.WRONG_STATE
    sim.cloud.delete_queued("q-1", force=True)
    assert (sim.cloud.get_queued("q-1").phase, sim.phase("node-1")) == (QueuePhase.DELETING, "ending")
    sim.clock.advance(21)
    assert sim.cloud.list_queued() == ()
    assert sim.cloud.live() == ()


def test_suspending_queue_request_cannot_be_deleted() -> None:
    sim = make_sim()
    sim.cloud.queue(queued())
    sim.clock.advance(60)
    sim.cloud.preempt("node-1")
    assert refusal(lambda: sim.cloud.delete_queued("q-1", force=True)) is Code.WRONG_STATE
    sim.clock.advance(21)
    sim.cloud.delete_queued("q-1")


# --- the account, its hosts -------------------------------------------------------------------------------


def test_foreign_resource_can_be_distinguished() -> None:
    sim = make_sim()
    sim.cloud.seed_foreign("demo-7", {"orch-installation": "another owner"})
    sim.cloud.seed_foreign("bare")
    assert len(sim.cloud.list_page().items) == 2
    assert (sim.cloud.live(), sim.cloud.trespasses()) == ((), ())
    sim.cloud.end("bare")
    assert [(call.op, call.name) for call in sim.cloud.trespasses()] == [("end", "bare")]


def test_call_may_be_limited_to_a_label() -> None:
    sim = make_sim()
    sim.ready()
    sim.cloud.seed_foreign("bare", {"orch-installation": "another owner"})
    ours = Label("orch-installation", INSTALLATION)
    for verb in (sim.cloud.stop, sim.cloud.start, sim.cloud.end):
        assert refusal(partial(verb, "bare", only=ours)) is Code.DENIED
    assert refusal(lambda: sim.cloud.end("demo-1", only=Label("another"))) is Code.DENIED
    assert sim.cloud.trespasses() == ()
    sim.cloud.end("demo-1", only=Label("orch-installation"))
    assert sim.phase() == "ending"


def test_nothing_happens_by_itself_to_foreign_resources() -> None:
    sim = make_sim(happenings=(Happening(do=Deed.PREEMPT, at=10),), spot_life=10.0)
    sim.cloud.seed_foreign("bare")
    sim.clock.advance(3600)
    assert sim.cloud.get("bare").phase is Phase.READY


def test_address_is_used_again() -> None:
    sim = make_sim()
    old = sim.launch()
    sim.provider.end("demo-1")
    sim.clock.advance(21)
    sim.ready(OTHER)
    assert [host.address for host in sim.cloud.get("other-1").hosts] == [host.host for host in old.hosts]
    look = old.read_job("job")
    assert {outcome.failure for outcome in look.failed} == {Failure.IDENTITY}


def test_job_under_one_name_runs_once() -> None:
    sim = make_sim()
    sim.cloud.set_program("*", Program(seconds=30.0))
    hands = sim.launch()
    hands.start_job("c-1-a1", b"", lambda _: b"", [0, 1])
    sim.clock.advance(20)
    assert all(outcome.ok for outcome in hands.start_job("c-1-a1", b"", lambda _: b"", [0, 1]))
    sim.clock.advance(10)
    assert [job.phase for job in hands.read_job("c-1-a1").jobs] == [JobPhase.FINISHED] * 2
