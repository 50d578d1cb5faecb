"""Limits on real hosts: installed over SSH, and enforced without any further connection."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.sshd import Farm

from orchestrator.remote.host_operations import SshHostOperations
from orchestrator.render.limits import LimitsSpec, render_limits, render_renewal

SAVES = b"""#!/bin/bash
trap 'sleep 0.5; touch "$HOME/saved"; exit 75' TERM
while :; do sleep 0.1; done
"""


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.05)


def no_environment(_: object) -> bytes:
    return b""


def limits(seconds: float, *, deadline: float | None = None) -> LimitsSpec:
    return LimitsSpec(
        max_hours=seconds / 3600,
        deadline=deadline,
        on_limit="end",
        stop_command='test -e "$HOME/saved" && date +%s >"$HOME/machine-stopped"',
        watch="jobs",
        grace_seconds=10,
        tick_seconds=1,
        boot_grace_seconds=0,
    )


@pytest.mark.promise("P6")
@pytest.mark.promise("P21")
def test_hosts_end_at_the_deadline_of_a_budget_without_the_orchestrator(farm: Farm) -> None:
    now = time.time()
    deadline = now + 6
    hands = SshHostOperations(farm.addresses)
    assert all(outcome.ok for outcome in hands.start_job("train", SAVES, no_environment, [0, 1]))
    began = time.monotonic()
    done = hands.run_script(render_limits(limits(3600, deadline=deadline)).encode(), [0, 1])
    assert all(outcome.ok for outcome in done), done
    assert time.monotonic() - began < 5, "the timer must not hold the connection"
    hands.close()  # from here on there is no connection to the hosts

    stopped = [host.home / "machine-stopped" for host in farm.hosts]
    until(lambda: all(path.exists() and path.read_text() for path in stopped))
    for host, path in zip(farm.hosts, stopped, strict=True):
        assert deadline - 1 <= int(path.read_text().split()[0]) < deadline + 5  # the cap, a look, and the saving
        assert (host.rank_folder / "jobs/train/rc").read_text().strip() == "75"
        assert (host.rank_folder / "limit-reached").read_text().startswith("deadline ")


def test_a_running_orchestrator_moves_the_deadline(farm: Farm) -> None:
    hands = SshHostOperations(farm.addresses)
    try:
        assert all(o.ok for o in hands.start_job("train", SAVES, no_environment, [0, 1]))
        assert all(
            o.ok for o in hands.run_script(render_limits(limits(3600, deadline=time.time() + 3)).encode(), [0, 1])
        )
        for _ in range(6):
            assert all(o.ok for o in hands.run_script(render_renewal(3).encode(), [0, 1]))
            time.sleep(0.8)
        assert not any((host.home / "saved").exists() for host in farm.hosts)
    finally:
        hands.close()
    until(lambda: all((host.home / "machine-stopped").exists() for host in farm.hosts))


def test_the_state_is_readable_as_documented(farm: Farm) -> None:
    """The format of docs/limits.md: what `orch status` may read."""
    hands = SshHostOperations(farm.addresses)
    began = time.time()
    limits = LimitsSpec(max_hours=2.5, idle_minutes=15, deadline=began + 900, watch="jobs", tick_seconds=1)
    assert all(outcome.ok for outcome in hands.run_script(render_limits(limits).encode(), [0, 1]))
    hands.close()
    folder: Path = farm.hosts[0].rank_folder / "limits"
    until((folder / "seen").exists)
    said = {
        name: (folder / name).read_text() for name in ("started", "deadline", "max_hours", "idle_minutes", "kept_by")
    }
    assert abs(int(said["started"]) - began) < 5
    assert said == {
        "started": said["started"],
        "deadline": f"{int(began + 900)}\n",
        "max_hours": "2.5\n",
        "idle_minutes": "15\n",
        "kept_by": "nobody\n",
    }
    seen, uptime, boot = (folder / "seen").read_text().split()
    assert abs(int(seen) - time.time()) < 10
    assert float(Path("/proc/uptime").read_text().split()[0]) - int(uptime) < 10
    assert boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert "timer started" in (folder / "log").read_text()
