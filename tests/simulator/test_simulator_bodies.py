"""Real sshd hosts behind simulated slices: they come, they die when the cloud says so, and nothing of them is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from sim_support import EVEN, INSTALLATION, make_spec

from orchestrator.errors import UserError
from orchestrator.hosts import HostAddress, ssh_argv
from orchestrator.providers.local import processes
from orchestrator.providers.local.layout import SlicePaths
from orchestrator.remote.keys import make_host_key, write_known_hosts
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.bodies import LocalBodies, body_name
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.provider import SimulatedProvider
from orchestrator.simulator.pump import Pump
from orchestrator.simulator.scenario import Deed, Happening, Scenario
from orchestrator.slices import SliceKeys, SliceState


@dataclass(frozen=True)
class Rehearsal:
    """A cloud with a clock that stands still, and real hosts below one folder."""

    folder: Path
    clock: ManualClock
    access: InMemory
    provider: SimulatedProvider
    keys: SliceKeys

    def up(self, name: str = "demo-1") -> tuple[HostAddress, ...]:
        self.provider.create(make_spec(name), self.keys)
        self.clock.advance(41)
        return self.hosts(name)

    def hosts(self, name: str = "demo-1") -> tuple[HostAddress, ...]:
        view = self.provider.observe(name)
        assert view.state is SliceState.READY, view
        write_known_hosts(view.hosts[0].known_hosts, view.hosts)
        return view.hosts

    def processes(self) -> list[int]:
        return living(f"{self.folder}/")


def living(text: str) -> list[int]:
    """Processes with this text on their command line."""
    found: list[int] = []
    for pid, process in processes.snapshot().items():
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if text in command and not process.zombie and pid != os.getpid():
                found.append(pid)
    return found


def make_slice_keys(folder: Path) -> SliceKeys:
    folder.mkdir(parents=True)
    private, public = make_host_key()
    identity = folder / "id"
    identity.touch(mode=0o600)
    identity.write_text(private)
    pairs = [make_host_key() for _ in range(2)]
    return SliceKeys(
        user_public=public,
        identity_file=str(identity),
        known_hosts=str(folder / "known_hosts"),
        host_private=tuple(a for a, _ in pairs),
        host_public=tuple(b for _, b in pairs),
    )


def make_rehearsal(folder: Path, *happenings: Happening) -> Rehearsal:
    clock = ManualClock()
    access = InMemory(Scenario(durations=EVEN, happenings=happenings), clock)
    provider = SimulatedProvider(access, LocalBodies(folder / "sim"), INSTALLATION)
    return Rehearsal(folder / "sim", clock, access, provider, make_slice_keys(folder / "keys"))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for pid in living(f"{tmp_path}/sim/"):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def on_host(host: HostAddress, command: str) -> subprocess.CompletedProcess[str]:
    argv = ssh_argv(host, command)
    argv[1:1] = ["-F", "none", "-o", "BatchMode=yes"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)


def eventually(condition: Callable[[], object]) -> bool:
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(condition())


def test_two_hosts_come_up_one_is_preempted_and_the_end_leaves_nothing(folder: Path) -> None:
    sim = make_rehearsal(folder)
    sim.provider.create(make_spec(), sim.keys)
    assert sim.provider.observe("demo-1").state is SliceState.CREATING
    assert sim.processes() == [], "the machines are not there before the cloud has made them"
    sim.clock.advance(41)
    hosts = sim.hosts()
    assert [host.rank for host in hosts] == [0, 1]
    assert [host.host_key for host in hosts] == list(sim.keys.host_public)
    homes = [on_host(host, "pwd").stdout.strip() for host in hosts]
    assert len(set(homes)) == 2
    assert sim.hosts() == hosts, "a second look makes nothing new"
    sim.provider.preempt("demo-1", 1)
    view = sim.provider.observe("demo-1")
    assert (view.state, view.hosts, view.reason) == (SliceState.PREEMPTED, (), "host 1 of 2 was preempted")
    assert eventually(lambda: not sim.processes())
    assert on_host(hosts[1], "true").returncode == 255
    sim.provider.end("demo-1")
    sim.clock.advance(21)
    assert sim.provider.observe("demo-1").state is SliceState.ABSENT
    assert not list(sim.folder.rglob("*home*"))


def test_stopped_slice_keeps_its_homes_and_its_addresses(folder: Path) -> None:
    sim = make_rehearsal(folder)
    before = sim.up()
    on_host(before[0], "echo kept > file")
    sim.provider.stop("demo-1")
    assert eventually(lambda: not sim.processes())
    sim.clock.advance(21)
    assert sim.provider.observe("demo-1").state is SliceState.STOPPED
    sim.provider.start("demo-1")
    sim.clock.advance(31)
    after = sim.hosts()
    assert [host.alias for host in after] == [host.alias for host in before]
    assert on_host(after[0], "cat file").stdout == "kept\n"
    sim.provider.end("demo-1")
    assert eventually(lambda: not sim.processes())


def test_a_running_host_takes_over_the_keys_that_its_resource_has_now(folder: Path) -> None:
    sim = make_rehearsal(folder)
    hosts, bodies = sim.up(), LocalBodies(sim.folder)
    (look,) = sim.access.cloud.made()
    files = [SlicePaths(sim.folder / "local" / body_name(look)).host(host.rank).authorized_keys for host in hosts]
    written = [file.stat().st_ino for file in files]
    bodies.sync_hosts([look])
    assert [file.stat().st_ino for file in files] == written, "the same keys are not written again"
    other = make_slice_keys(folder / "other")
    files[1].unlink()
    bodies.sync_hosts([replace(look, extra={"keys": {**look.extra["keys"], "user_public": other.user_public}})])
    assert on_host(hosts[0], "true").returncode == 255, "the key of its start opens it no longer"
    assert on_host(replace(hosts[0], identity_file=Path(other.identity_file)), "echo in").stdout == "in\n"
    assert not files[1].exists(), "a host without this file gets none"
    sim.provider.end("demo-1")


def test_host_that_dies_by_itself_is_reported_as_lost(folder: Path) -> None:
    sim = make_rehearsal(folder)
    sim.up()
    for pid in living(f"{sim.folder}/"):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    view = sim.provider.observe("demo-1")
    assert (view.state, view.hosts) == (SliceState.PREEMPTED, ())
    sim.provider.end("demo-1")


def test_step_of_a_real_program_brings_what_waits_for_it(folder: Path) -> None:
    sim = make_rehearsal(folder, Happening(do=Deed.PREEMPT, step=50, rank=1))
    hosts = sim.up()
    for rank, step in ((0, 80), (1, 49)):
        beat = json.dumps({"step": step, "rank": rank})
        on_host(hosts[rank], f"mkdir -p .orch/hosts/h/jobs/j && echo '{beat}' > .orch/hosts/h/jobs/j/heartbeat")
    assert sim.provider.observe("demo-1").state is SliceState.READY
    on_host(hosts[1], """echo '{"step": 50, "rank": 1}' > .orch/hosts/h/jobs/j/heartbeat""")
    assert sim.provider.observe("demo-1").state is SliceState.PREEMPTED
    sim.provider.end("demo-1")


def test_pump_kills_the_hosts_on_time_without_any_call(folder: Path) -> None:
    sim = make_rehearsal(folder, Happening(do=Deed.PREEMPT, after_ready=100.0))
    sim.up()
    with Pump(sim.provider, every=0.05) as pump:
        assert sim.processes()
        sim.clock.advance(101)
        assert eventually(lambda: not sim.processes())
        assert pump.error is None
    sim.provider.end("demo-1")


def test_bodies_of_a_cloud_that_was_thrown_away_are_ended(folder: Path) -> None:
    old = make_rehearsal(folder)
    old.up()
    clock = ManualClock(old.clock.now() + 1000)
    new = SimulatedProvider(InMemory(Scenario(), clock), LocalBodies(old.folder))
    new.advance()
    assert eventually(lambda: not old.processes())


def test_two_resources_of_one_name_have_bodies_of_their_own(folder: Path) -> None:
    sim = make_rehearsal(folder)
    sim.provider.create(make_spec(), sim.keys)
    sim.provider.end("demo-1")
    sim.clock.advance(21)
    sim.provider.create(make_spec(token="token-2"), sim.keys)
    looks = sim.access.cloud.made()
    names = {body_name(look) for look in looks}
    assert len(names) == len(looks) == 2
    assert all(len(name) <= 63 for name in names)


def test_computer_without_sshd_is_reported_before_anything_is_created(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim = make_rehearsal(folder)
    monkeypatch.setenv("ORCH_SSHD", "/nowhere/sshd")
    with pytest.raises(UserError, match="not a program"):
        sim.provider.create(make_spec(), sim.keys)
    assert sim.access.cloud.made() == ()
