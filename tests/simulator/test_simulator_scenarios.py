"""Scenarios as TOML: what they say, what they refuse, and that the ready-made ones do what their names say."""

from __future__ import annotations

from pathlib import Path

import pytest
from sim_support import CALL, SPOT, refusal

from orchestrator.errors import UserError
from orchestrator.simulator.calls import ApiError, Code, CreateCall
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.programs import Program
from orchestrator.simulator.scenario import Deed, Fault, FaultKind, Happening, Held, Pool, Quota, Scenario, Zone
from orchestrator.simulator.scenario_file import list_scenarios, named_scenario, parse_scenario, read_scenario
from orchestrator.simulator.state import Phase

EVERYTHING = """
seed = 3
speed = 60
spot_life = "1h"
lag = 2.5
honour_tokens = false

[durations]
create = "90s"
jitter = 0.5

[[zone]]
name = "z-a"
region = "z"

[[capacity]]
zone = "z-a"
accelerator = "v5e"
market = "spot"
amount = 8
unit = "chips"

[[quota]]
region = "z"
accelerator = "*"
amount = 4

[[reservation]]
name = "r"
zone = "z-a"
accelerator = "v5e"
amount = 2

[[fault]]
call = "create"
nth = 2
fault = "timeout-after"

[[fault]]
call = "get"
rate = 0.25
from = "10s"
to = "2m"
fault = "stale"
seconds = 5

[[event]]
step = 50
rank = 2
do = "preempt"
notice = "30s"
"""


def test_everything_that_can_be_written_is_read() -> None:
    scenario = parse_scenario(EVERYTHING)
    assert (scenario.seed, scenario.speed, scenario.spot_life, scenario.lag) == (3, 60.0, 3600.0, 2.5)
    assert scenario.honour_tokens is False
    assert (scenario.durations.create, scenario.durations.jitter) == (90.0, 0.5)
    assert scenario.zones == (Zone("z-a", "z"),)
    assert scenario.pools == (Pool(zone="z-a", accelerator="v5e", amount=8, market="spot", unit="chips"),)
    assert scenario.quotas == (Quota(region="z", accelerator="*", amount=4),)
    assert scenario.reservations == (Held(name="r", zone="z-a", accelerator="v5e", amount=2),)
    assert scenario.faults == (
        Fault(call="create", kind=FaultKind.TIMEOUT_AFTER, nth=(2,)),
        Fault(call="get", kind=FaultKind.STALE, rate=0.25, begin=10.0, end=120.0, seconds=5.0),
    )
    assert scenario.happenings == (Happening(do=Deed.PREEMPT, step=50, rank=2, notice=30.0),)


def test_empty_scenario_is_the_calm_default() -> None:
    assert parse_scenario("") == Scenario()


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("seed = 1\nsped = 2", 2, "'sped' is not known here"),
        ('seed = "one"', 1, "'one' is not a whole number"),
        ("seed = true", 1, "True is not a whole number"),
        ("speed = 0", 1, "more than 0"),
        ('[durations]\ncreate = 1\nend = "9 parsecs"', 3, "'9 parsecs' is not a time"),
        ("[durations]\njitter = 1", 2, "between 0 and 1"),
        ('[[zone]]\nname = "a"', 1, "needs: region"),
        ('zone = "a"', 1, "two brackets"),
        ('[[capacity]]\nzone = "a-a"\naccelerator = "x"\namount = 1\n[[zone]]\nname = "b"\nregion = "b"', 2, "no zone"),
        (
            '[[fault]]\ncall = "create"\nfault = "denied"\nnth = 1\n[[fault]]\ncall = "x"\nfault="denied"',
            6,
            "'x' is not",
        ),
        ('[[fault]]\ncall = "create"\nnth = 1\nfault = "bogus"', 4, "'bogus' is not one of"),
        ('[[fault]]\ncall = "create"\nnth = 1\nfault = "stuck"', 4, "cannot befall"),
        ('[[fault]]\ncall = "host.look"\nnth = 1\nfault = "denied"', 4, "cannot befall"),
        ('[[fault]]\ncall = "create"\nfault = "denied"', 1, "nth = NUMBER or rate"),
        ('[[fault]]\ncall = "create"\nrate = 2\nfault = "denied"', 3, "between 0 and 1"),
        ('[[fault]]\ncall = "create"\nnth = 0\nfault = "denied"', 3, "counted from 1"),
        ('[[event]]\ndo = "preempt"', 1, "exactly one of"),
        ('[[event]]\ndo = "preempt"\nat = 1\nstep = 1', 1, "exactly one of"),
        ('[[event]]\nafter_ready = 3\ndo = "capacity"', 3, "at a time"),
    ],
)
def test_errors_are_reported_with_their_line(text: str, line: int, words: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_scenario(text, "my.toml")
    assert f"my.toml, line {line}:" in caught.value.what
    assert words in caught.value.why


def test_broken_toml_is_reported_with_its_line() -> None:
    with pytest.raises(UserError, match="line 2"):
        parse_scenario("seed = 1\nspeed = = 2")


def test_file_that_is_not_there_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_scenario(tmp_path / "none.toml")
    with pytest.raises(UserError, match="calm"):
        named_scenario("none")


def test_ready_made_scenarios_are_these() -> None:
    plain = {"calm", "stockout", "preempt-often", "flaky-api", "stuck-delete", "half-made"}
    assert set(list_scenarios()) == plain | {"hard-boot", "new-account", "refusals-aws", "refusals-gcp"}
    seeds = [named_scenario(name).seed for name in list_scenarios()]
    assert len(set(seeds)) == len(seeds)


def cloud_of(name: str) -> tuple[SimulatedCloud, ManualClock]:
    clock = ManualClock()
    return SimulatedCloud(named_scenario(name), clock), clock


def test_calm_lets_everything_succeed_within_seconds() -> None:
    cloud, clock = cloud_of("calm")
    cloud.create(CALL)
    clock.advance(1.3)
    assert cloud.get("demo-1").phase is Phase.READY
    cloud.end("demo-1")
    clock.advance(0.7)
    assert cloud.live() == ()


def test_stockout_refuses_one_create_fails_another_and_then_has_machines() -> None:
    cloud, clock = cloud_of("stockout")
    cloud.ask("create", "a-firewall-rule")  # which Google's API makes before the machines; it needs no capacity
    elsewhere = CreateCall(name="demo-1", zone="sim-b", accelerator="v5e", hosts=2, token="t1")
    assert refusal(lambda: cloud.create(elsewhere)) is Code.NO_CAPACITY
    cloud.create(elsewhere)
    clock.advance(3)
    assert cloud.get("demo-1").phase is Phase.FAILED
    here = CreateCall(name="demo-2", zone="sim-a", accelerator="v5e", hosts=2, token="t2")
    assert refusal(lambda: cloud.create(here)) is Code.NO_CAPACITY
    clock.advance(600)
    cloud.create(here)
    clock.advance(3)
    assert cloud.get("demo-2").phase is Phase.READY


def test_preempt_often_takes_spot_machines_again_and_again() -> None:
    cloud, clock = cloud_of("preempt-often")
    lives: list[float] = []
    for number in range(20):
        name = f"demo-{number}"
        cloud.create(CreateCall(name=name, zone="sim-a", accelerator="v5e", hosts=2, token=f"t{number}", market="spot"))
        began = clock.now()
        while cloud.get(name).phase is not Phase.PREEMPTED:
            clock.advance(1)
        lives.append(clock.now() - began)
        cloud.end(name)
    assert 60 < sum(lives) / len(lives) < 240


def test_flaky_api_still_makes_one_resource_for_one_token() -> None:
    cloud, clock = cloud_of("flaky-api")
    failures = 0
    for number in range(30):
        for _ in range(30):
            try:
                cloud.create(
                    CreateCall(name=f"demo-{number}", zone="sim-a", accelerator="v5e", hosts=2, token=f"t{number}")
                )
                break
            except ApiError:
                failures += 1
                clock.advance(1)
        assert len(cloud.made_for(f"t{number}")) == 1
    assert failures > 3


def test_stuck_delete_needs_more_than_one_request() -> None:
    cloud, clock = cloud_of("stuck-delete")
    cloud.create(CALL)
    clock.advance(3)
    shown = []
    for _ in range(3):
        cloud.end("demo-1")
        clock.advance(60)
        shown.append([look.phase for look in cloud.live()])
    assert shown == [[Phase.READY], [Phase.ENDING], []]


def test_half_made_never_finishes_the_first_and_breaks_the_second() -> None:
    cloud, clock = cloud_of("half-made")
    cloud.create(CALL)
    cloud.create(CreateCall(name="demo-2", zone="sim-b", accelerator="v5e", hosts=2, token="t2"))
    clock.advance(30)
    assert [look.phase for look in cloud.live()] == [Phase.CREATING, Phase.READY]
    clock.advance(90)
    assert [look.phase for look in cloud.live()] == [Phase.CREATING, Phase.FAILED]


def test_event_at_a_step_waits_for_the_program_to_make_it() -> None:
    from sim_support import make_sim

    sim = make_sim(happenings=(Happening(do=Deed.PREEMPT, step=50, rank=1),))
    sim.cloud.set_program("*", Program(seconds=200.0, step_seconds=2.0))
    hands = sim.launch()
    sim.clock.advance(1000)
    assert sim.phase() == "ready"
    hands.start_job("c-1-a1", b"", lambda _: b"", [0, 1])
    sim.clock.advance(99)
    assert sim.phase() == "ready"
    sim.clock.advance(1)
    assert sim.phase() == "preempted"


def test_step_reported_from_outside_counts_as_well_and_happens_once() -> None:
    from sim_support import make_sim

    sim = make_sim(happenings=(Happening(do=Deed.SILENCE_HOST, step=50, rank=0, seconds=60.0),))
    hands = sim.launch()
    sim.cloud.report_step("demo-1", 0, 49)
    assert hands.read_job("job").failed == ()
    sim.cloud.report_step("demo-1", 1, 60)
    assert hands.read_job("job").failed == ()
    sim.cloud.report_step("demo-1", 0, 51)
    assert [outcome.rank for outcome in hands.read_job("job").failed] == [0]
    sim.clock.advance(61)
    sim.cloud.report_step("demo-1", 0, 52)
    assert hands.read_job("job").failed == ()


def test_spot_life_follows_the_seed() -> None:
    def lived(seed: int) -> float:
        clock = ManualClock()
        cloud = SimulatedCloud(Scenario(seed=seed, spot_life=600.0), clock)
        cloud.create(SPOT)
        while cloud.get("demo-1").phase is not Phase.PREEMPTED:
            clock.advance(1)
        return clock.now()

    assert lived(1) == lived(1)
    assert len({lived(seed) for seed in range(5)}) == 5


DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "simulator.md"


def test_example_of_the_documentation_is_a_scenario() -> None:
    text = DOCUMENT.read_text(encoding="utf-8").partition("```toml\nseed = 7")
    scenario = parse_scenario("seed = 7" + text[2].partition("```")[0])
    assert (scenario.seed, scenario.speed, scenario.notice) == (7, 60.0, 30.0)
    assert scenario.reservations
    assert scenario.happenings == (Happening(do=Deed.PREEMPT, step=50, rank=2),)


def test_documentation_names_every_fault_event_and_scenario() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert [word for word in (*FaultKind, *Deed, *list_scenarios()) if f"`{word}`" not in text] == []
