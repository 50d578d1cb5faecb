"""Real sshd hosts behind instances: the provider shows them, strict SSH reaches them, preemption and end take them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from compute_bench import ZONE, Bench, bench, keyed, spec, wanted
from google_cases import candidate

from orchestrator.hosts import HostAddress, ssh_argv
from orchestrator.providers.local import processes
from orchestrator.remote.keys import make_host_key, write_known_hosts
from orchestrator.simulator.bodies import LocalBodies
from orchestrator.slices import Candidate, SliceState, SliceView, Spot


def living(folder: Path) -> list[int]:
    """Processes with this folder on their command line."""
    found: list[int] = []
    for pid, process in processes.snapshot().items():
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if f"{folder}/" in command and not process.zombie and pid != os.getpid():
                found.append(pid)
    return found


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    try:
        with bench(tmp_path, monkeypatch, bodies=LocalBodies(tmp_path / "sim")) as made:
            yield made
    finally:
        for pid in living(tmp_path / "sim"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def up(rig: Bench, of: Candidate) -> SliceView:
    """READY, with a key of ours on the hosts."""
    private, public = make_host_key()
    identity = rig.state / "id_ed25519"
    identity.touch(mode=0o600)
    identity.write_text(private)
    wish = spec(of)
    rig.provider().create(wish, replace(keyed(wish, rig.state), user_public=public))
    rig.clock.advance(41)
    assert eventually(lambda: rig.provider().observe("demo-1").state is SliceState.READY)
    view = rig.provider().observe("demo-1")
    write_known_hosts(rig.state / "known_hosts", view.hosts)
    return view


def eventually(condition: Callable[[], object]) -> bool:
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(condition())


def on_host(host: HostAddress, command: str) -> subprocess.CompletedProcess[str]:
    argv = ssh_argv(host, command)
    argv[1:1] = ["-F", "none", "-o", "BatchMode=yes"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)


def test_hosts_of_a_group_are_reached_in_order_and_die_when_preempted(rig: Bench) -> None:
    view = up(rig, wanted("tpu7x-16", Spot(), zone="us-central1-c"))
    homes = [on_host(host, "pwd").stdout.strip() for host in view.hosts]
    assert [Path(home).parent.name for home in homes] == ["0", "1"]
    impostor = replace(view.hosts[0], alias=view.hosts[1].alias)
    assert "Host key verification failed" in on_host(impostor, "true").stderr
    rig.cloud.preempt("demo-1", 1)
    assert rig.provider().observe("demo-1").state is SliceState.PREEMPTED
    assert eventually(lambda: not living(rig.state / "sim"))
    rig.gone()
    assert rig.leftovers() == []


def test_single_instance_keeps_its_disk_and_its_key_over_stop_and_start(rig: Bench) -> None:
    (host,) = up(rig, wanted("v6e-8")).hosts
    assert on_host(host, "echo kept >there").returncode == 0
    provider = rig.provider()
    provider.stop("demo-1")
    rig.clock.advance(25)
    assert provider.observe("demo-1").state is SliceState.STOPPED
    provider.start("demo-1")
    rig.clock.advance(35)
    assert eventually(lambda: provider.observe("demo-1").state is SliceState.READY)
    (again,) = provider.observe("demo-1").hosts
    assert on_host(again, "cat there").stdout == "kept\n"
    assert again.alias == host.alias
    rig.gone()
    assert eventually(lambda: not living(rig.state / "sim"))


def test_machines_without_tpus_are_reached_and_ended_together(rig: Bench) -> None:
    """Two machines without TPUs are two instances, each with its own key."""
    of = replace(candidate("e2-standard-4", zone=ZONE), hosts=2)
    view = up(rig, of)
    homes = [on_host(host, "pwd").stdout.strip() for host in view.hosts]
    assert len(set(homes)) == 2 and all(homes), homes
    impostor = replace(view.hosts[0], alias=view.hosts[1].alias)
    assert "Host key verification failed" in on_host(impostor, "true").stderr
    rig.gone()
    assert rig.leftovers() == []
