"""The kept cloud: the same as the one in memory, for many processes, and for those that are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sim_support import CALL, EVEN, make_keys, make_spec

from orchestrator.clock import RealClock
from orchestrator.errors import CloudError
from orchestrator.hosts import JobPhase
from orchestrator.providers import registry
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.bodies import NoBodies
from orchestrator.simulator.calls import ApiError
from orchestrator.simulator.clock import ManualClock, ScaledClock, StoredClock
from orchestrator.simulator.durable import Durable
from orchestrator.simulator.hands import SimulatedHands
from orchestrator.simulator.provider import SimulatedProvider
from orchestrator.simulator.rehearsal import open_cloud
from orchestrator.simulator.scenario import Fault, FaultKind, Scenario
from orchestrator.simulator.state import CloudState
from orchestrator.slices import SliceState

CLIENT = Path(__file__).with_name("sim_client.py")
ROOT = Path(__file__).resolve().parents[2]
SCENARIO = Scenario(durations=EVEN)


def client(folder: Path, prefix: str, rounds: int) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT), str(CLIENT.parent)])
    return subprocess.Popen(
        [sys.executable, str(CLIENT), str(folder), prefix, str(rounds)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def loaded(folder: Path) -> CloudState:
    return CloudState.from_json(json.loads((folder / "cloud.json").read_text()))


def test_second_opener_meets_the_same_cloud(tmp_path: Path) -> None:
    clock = StoredClock(tmp_path / "clock.json")
    first, second = (SimulatedProvider(Durable(tmp_path / "cloud.json", SCENARIO, clock), NoBodies()) for _ in range(2))
    first.create(make_spec(), make_keys(2))
    clock.sleep(41)
    assert second.observe("demo-1") == first.observe("demo-1")
    assert second.observe("demo-1").state is SliceState.READY


def test_jobs_and_marks_outlive_the_client(tmp_path: Path) -> None:
    clock = ManualClock()
    access = Durable(tmp_path / "cloud.json", SCENARIO, clock)
    SimulatedProvider(access, NoBodies()).create(make_spec(), make_keys(2))
    clock.advance(41)
    hosts = SimulatedProvider(access, NoBodies()).observe("demo-1").hosts
    first = SimulatedHands(access, hosts)
    first.start_job("c-1-a1", b"", lambda _: b"", [0, 1])
    first.write_mark("setup", "digest")
    second = SimulatedHands(Durable(tmp_path / "cloud.json", SCENARIO, clock), hosts)
    assert [job.phase for job in second.read_job("c-1-a1").jobs] == [JobPhase.RUNNING] * 2
    assert second.read_marks().held == {0: {"setup": "digest"}, 1: {"setup": "digest"}}


def test_failed_call_is_kept_as_well(tmp_path: Path) -> None:
    scenario = Scenario(faults=(Fault(call="create", kind=FaultKind.TIMEOUT_AFTER, nth=(1,)),))
    access = Durable(tmp_path / "cloud.json", scenario, ManualClock())
    with pytest.raises(ApiError), access.open() as cloud:
        cloud.create(CALL)
    with access.open() as cloud:
        assert len(cloud.live()) == 1
        assert cloud.create(CALL).uid == cloud.live()[0].uid


def test_same_calls_give_the_same_history_as_in_memory(tmp_path: Path) -> None:
    histories = []
    for place in ("memory", "file"):
        clock = ManualClock()
        scenario = Scenario(
            seed=5, lag=3.0, faults=(Fault(call="*", kind=FaultKind.UNAVAILABLE, rate=0.3),), spot_life=90.0
        )
        access = InMemory(scenario, clock) if place == "memory" else Durable(tmp_path / "c.json", scenario, clock)
        provider = SimulatedProvider(access, NoBodies())
        seen: list[str] = []
        for number in range(12):
            try:
                provider.create(make_spec(f"demo-{number}", f"t{number}"), make_keys(2))
            except CloudError as error:
                seen.append(str(error))
            clock.advance(17)
            seen.append(str(provider.observe(f"demo-{number // 2}")))
        with access.open() as cloud:
            histories.append((seen, cloud.calls(), cloud.state.to_json()))
    assert histories[0][:2] == histories[1][:2]
    assert json.loads(json.dumps(histories[0][2])) == json.loads(json.dumps(histories[1][2]))


def test_processes_at_once_lose_no_call_of_each_other(tmp_path: Path) -> None:
    clients = [client(tmp_path, f"c{number}", 20) for number in range(3)]
    for process in clients:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    state = loaded(tmp_path)
    assert state.counts == {"create": 120, "end": 30}
    assert len(state.resources) == 60
    assert len({resource.token for resource in state.resources.values()}) == 60


@pytest.mark.promise("P1")
def test_client_killed_at_any_instant_leaves_a_whole_cloud(tmp_path: Path) -> None:
    for attempt in range(12):
        process = client(tmp_path, f"k{attempt}", 10_000)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.013 * attempt)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
        state = loaded(tmp_path) if (tmp_path / "cloud.json").exists() else None
        if state is None:
            continue
        tokens = [resource.token for resource in state.resources.values()]
        assert len(tokens) == len(set(tokens))
        assert state.counts["create"] == sum(call.op == "create" for call in state.calls)
    process = client(tmp_path, "last", 3)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert loaded(tmp_path).counts["create"] > 20, "the killed clients must have been at work"


def test_step_that_is_cut_off_leaves_the_cloud_as_it_was(tmp_path: Path) -> None:
    access = Durable(tmp_path / "cloud.json", SCENARIO, ManualClock())
    with access.open() as cloud:
        cloud.create(CALL)
    before = (tmp_path / "cloud.json").read_bytes()
    with pytest.raises(KeyboardInterrupt), access.open() as cloud:
        cloud.end("demo-1")
        raise KeyboardInterrupt
    assert (tmp_path / "cloud.json").read_bytes() == before


def test_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    access = Durable(tmp_path / "in" / "cloud.json", SCENARIO, ManualClock())
    with access.open() as cloud:
        cloud.advance()
    assert access.path.stat().st_mode & 0o777 == 0o600
    assert access.path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"began": 1}'])
def test_file_that_is_no_cloud_is_an_error_with_a_way_out(tmp_path: Path, content: str) -> None:
    (tmp_path / "cloud.json").write_text(content)
    access = Durable(tmp_path / "cloud.json", SCENARIO, ManualClock())
    with pytest.raises(CloudError, match="not a simulated cloud") as caught, access.open():
        pass
    assert "rm " in caught.value.next_step
    assert SimulatedProvider(access, NoBodies()).observe("demo-1").state is SliceState.UNCLEAR


def test_folder_has_its_scenario_beside_the_cloud(tmp_path: Path) -> None:
    assert isinstance(open_cloud(tmp_path).clock, RealClock)
    assert not list(tmp_path.iterdir()), "nothing is written before the first call"
    (tmp_path / "scenario.toml").write_text("speed = 60\nseed = 4")
    opened = open_cloud(tmp_path)
    assert opened.scenario.seed == 4
    again = open_cloud(tmp_path).clock
    assert isinstance(opened.clock, ScaledClock)
    assert isinstance(again, ScaledClock)
    assert again.origin == opened.clock.origin, "two processes must see the same time"


def test_registry_opens_the_provider(tmp_path: Path) -> None:
    provider = registry.open_provider("simulated", tmp_path)
    assert provider.observe("demo-1").state is SliceState.ABSENT
    assert registry.load_planner("simulated").name == "simulated"
    assert (tmp_path / "simulated" / "cloud.json").exists()


def test_manual_clock_moves_only_forwards() -> None:
    clock = ManualClock(100.0)
    clock.sleep(5)
    clock.sleep(-5)
    assert clock.now() == 105.0
    with pytest.raises(ValueError, match="-1"):
        clock.advance(-1)


def test_scaled_clock_runs_so_many_times_faster() -> None:
    clock = ScaledClock(100.0)
    real, simulated = time.monotonic(), clock.now()
    clock.sleep(10)
    took = time.monotonic() - real
    assert 0.1 <= took < 5
    assert clock.now() - simulated == pytest.approx(took * 100, rel=0.2)
    with pytest.raises(ValueError, match="speed 0"):
        ScaledClock(0)


def test_stored_clock_is_shared_through_its_file(tmp_path: Path) -> None:
    first, second = (StoredClock(tmp_path / "clock.json", start=50.0) for _ in range(2))
    assert second.now() == 50.0
    first.sleep(7)
    assert second.now() == 57.0
    with pytest.raises(ValueError, match="-1"):
        second.advance(-1)
