"""Hosts behind a jump host: reached through it, bounded, and its own failures distinguished from theirs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.sshd import Farm, listener_that, sshd_farm

from orchestrator.hosts import Failure, HostAddress
from orchestrator.remote.fleet import Fleet


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[tuple[Farm, list[HostAddress]]]:
    """Twelve hosts behind a thirteenth whose sshd has the default limits."""
    with sshd_farm(tmp_path / "farm", 13, extra="MaxStartups 10:30:100\nMaxSessions 10") as farm:
        jump = farm.addresses[12]
        yield farm, [replace(host, jump=jump) for host in farm.addresses[:12]]


def test_hosts_behind_a_jump_host_are_reached_through_one_connection(behind: tuple[Farm, list[HostAddress]]) -> None:
    _, hosts = behind
    with Fleet(hosts, deadline=20) as fleet:
        first = fleet.run("echo $SSH_CONNECTION; cat", stdin=b"x" * 100_000, keep=1 << 20, timeout=60)
        assert first.ok, first.failed
        assert fleet.run("true", timeout=60).ok
        assert sum(len(host.output) > 100_000 for host in first.hosts) == 12
        assert len(fleet._links) == 13


def test_a_jump_host_that_refuses_is_named(behind: tuple[Farm, list[HostAddress]]) -> None:
    farm, hosts = behind
    farm.hosts[12].kill()
    with Fleet(hosts[:2], deadline=3) as fleet:
        result = fleet.run("true", timeout=60)
    assert {host.outcome.failure for host in result.hosts} == {Failure.REFUSED}
    assert all(farm.addresses[12].alias in host.outcome.detail for host in result.hosts)


def test_a_host_behind_it_that_refuses_is_distinguished_from_the_jump_host(
    behind: tuple[Farm, list[HostAddress]],
) -> None:
    farm, hosts = behind
    farm.hosts[0].kill()
    with Fleet(hosts[:2], deadline=5) as fleet:
        result = fleet.run("true", timeout=60)
    assert [host.outcome.verdict for host in result.hosts] == ["refused", "exit 0"]


def test_a_host_behind_it_that_shows_another_key_is_refused(behind: tuple[Farm, list[HostAddress]]) -> None:
    farm, hosts = behind
    farm.hosts[1].change_host_key()
    with Fleet(hosts[:2], deadline=5) as fleet:
        result = fleet.run("true", timeout=60)
    assert [host.outcome.verdict for host in result.hosts] == ["exit 0", "identity-mismatch"]


def test_a_silent_host_behind_it_is_frozen_and_the_others_continue(behind: tuple[Farm, list[HostAddress]]) -> None:
    _, hosts = behind
    with (
        listener_that("silent") as port,
        Fleet([replace(hosts[0], host="127.0.0.1", port=port), hosts[1]], deadline=3) as fleet,
    ):
        result = fleet.run("true", timeout=60)
        assert fleet.run("true", ranks=[1], timeout=60).ok
    assert [host.outcome.verdict for host in result.hosts] == ["frozen", "exit 0"]


def test_a_jump_host_that_dies_midway_loses_the_hosts_behind_it(behind: tuple[Farm, list[HostAddress]]) -> None:
    farm, hosts = behind
    with Fleet(hosts[:2], deadline=5) as fleet:
        assert fleet.reachable(timeout=10).ok
        import threading

        threading.Timer(0.4, farm.hosts[12].kill).start()
        result = fleet.run("sleep 30", timeout=60)
    assert {host.outcome.failure for host in result.hosts} == {Failure.LOST}
