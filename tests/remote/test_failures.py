"""The failure table of real peers: each column is distinguished within the deadline."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.sshd import Farm, listener_that

from orchestrator.hosts import Failure, HostOutcome
from orchestrator.remote.fleet import Fleet

DEADLINE = 4.0


def outcome_of(fleet: Fleet, command: str = "sleep 60", rank: int = 1) -> tuple[HostOutcome, float]:
    """The outcome of one host, and the seconds it took in units of the fleet's deadline."""
    began = time.monotonic()
    result = fleet.run(command, ranks=[rank], timeout=60)
    return result.hosts[0].outcome, (time.monotonic() - began) / fleet.deadline


def during(action: Callable[[], object]) -> None:
    """Do `action` while the command runs."""
    threading.Timer(0.5, action).start()


def test_refused(farm: Farm) -> None:
    farm.hosts[1].kill()
    with Fleet(farm.addresses, deadline=DEADLINE) as fleet:
        outcome, took = outcome_of(fleet)
    assert outcome.failure is Failure.REFUSED
    assert outcome.attempts > 1
    assert took <= 1.1


def test_blackhole(farm: Farm) -> None:
    with listener_that("blackhole") as port:
        hosts = [farm.addresses[0], replace(farm.addresses[1], host="127.0.0.1", port=port)]
        with Fleet(hosts, deadline=DEADLINE) as fleet:
            outcome, took = outcome_of(fleet)
    assert outcome.failure is Failure.UNREACHABLE
    assert took <= 1.1


def test_silent_server(farm: Farm) -> None:
    with listener_that("silent") as port:
        hosts = [farm.addresses[0], replace(farm.addresses[1], host="127.0.0.1", port=port)]
        with Fleet(hosts, deadline=DEADLINE) as fleet:
            outcome, took = outcome_of(fleet)
    assert outcome.failure is Failure.FROZEN
    assert "sent no SSH banner" in outcome.detail
    assert took <= 1.1


def test_killed_midway(farm: Farm) -> None:
    with Fleet(farm.addresses, deadline=DEADLINE) as fleet:
        assert fleet.reachable(timeout=10).ok
        during(farm.hosts[1].kill)
        outcome, took = outcome_of(fleet, "echo started; sleep 60")
    assert outcome.failure is Failure.LOST
    assert outcome.last_line == "started"
    assert outcome.attempts == 1  # a command that was sent is never sent again
    assert took <= 0.5


def test_frozen(farm: Farm) -> None:
    with Fleet(farm.addresses, deadline=DEADLINE) as fleet:
        assert fleet.reachable(timeout=10).ok
        during(farm.hosts[1].freeze)
        outcome, took = outcome_of(fleet)
    farm.hosts[1].thaw()
    assert outcome.failure is Failure.FROZEN
    assert "keepalive" in outcome.detail
    assert took <= 1.2


def test_vanished(farm: Farm) -> None:
    relay = farm.cut_off_later(1)
    with Fleet([farm.addresses[0], relay.address], deadline=DEADLINE) as fleet:
        assert fleet.reachable(timeout=10).ok
        during(relay.vanish)
        outcome, took = outcome_of(fleet)
    assert outcome.failure is Failure.LOST
    assert "acknowledged" in outcome.detail
    assert took <= 1.2


def test_changed_host_key(farm: Farm) -> None:
    farm.hosts[1].change_host_key()
    with Fleet(farm.addresses, deadline=DEADLINE) as fleet:
        outcome, took = outcome_of(fleet, "touch $HOME/was-here")
    assert outcome.failure is Failure.IDENTITY
    assert "SHA256:" in outcome.detail
    assert outcome.attempts == 1
    assert took <= 0.5
    assert not (farm.hosts[1].home / "was-here").exists()


def test_remote_segv(farm: Farm) -> None:
    with Fleet(farm.addresses, deadline=DEADLINE) as fleet:
        outcome, _ = outcome_of(fleet, "kill -SEGV $$")
    assert (outcome.signal, outcome.exit_code, outcome.failure) == ("SEGV", None, None)
    assert outcome.status == 128 + signal.SIGSEGV


def test_exit_code_255_is_an_exit_code(farm: Farm) -> None:
    with Fleet(farm.addresses, deadline=DEADLINE) as fleet:
        outcome, _ = outcome_of(fleet, "exit 255")
    assert (outcome.exit_code, outcome.failure) == (255, None)


def test_refused_key(farm: Farm) -> None:
    (farm.hosts[1].folder / "authorized_keys").write_text("")
    with Fleet(farm.addresses, deadline=DEADLINE) as fleet:
        outcome, took = outcome_of(fleet)
    assert outcome.failure is Failure.AUTH
    assert farm.addresses[1].user in outcome.detail
    assert outcome.attempts == 1
    assert took <= 0.5


def test_a_host_that_is_no_ssh_server_is_lost_in_the_handshake(farm: Farm) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        address = replace(farm.addresses[1], host="127.0.0.1", port=listener.getsockname()[1])
        with Fleet([address], deadline=DEADLINE) as fleet:
            outcome, took = outcome_of(fleet)
        listener.shutdown(socket.SHUT_RDWR)
    assert outcome.failure is Failure.LOST
    assert took <= 1.1


def test_an_unknown_name_is_unreachable(farm: Farm) -> None:
    address = replace(farm.addresses[1], host="no-such-host.invalid")
    with Fleet([address], deadline=DEADLINE) as fleet:
        outcome, took = outcome_of(fleet)
    assert outcome.failure is Failure.UNREACHABLE
    assert took <= 1.5


def test_one_bad_host_does_not_hide_the_good_ones(farm: Farm) -> None:
    farm.hosts[0].kill()
    with Fleet(farm.addresses, deadline=DEADLINE) as fleet:
        result = fleet.run("echo fine", timeout=60)
    assert [host.outcome.verdict for host in result.hosts] == ["refused", "exit 0"]
    assert result.hosts[1].output == b"fine\n"


def test_a_long_quiet_command_is_not_taken_for_a_frozen_host(farm: Farm) -> None:
    with Fleet(farm.addresses, deadline=1.0) as fleet:
        outcome, took = outcome_of(fleet, "sleep 3; exit 5")
    assert outcome.exit_code == 5
    assert took > 2


def test_a_slow_reader_of_ours_is_not_taken_for_a_frozen_host(farm: Farm) -> None:
    with Fleet(farm.addresses, deadline=1.0) as fleet:
        blocks: list[int] = []

        def slow(host: object, block: bytes) -> None:
            if not blocks:
                time.sleep(2.5)
            blocks.append(len(block))

        result = fleet.run("echo x; sleep 4; exit 5", ranks=[1], on_output=slow, timeout=60)
        assert result.hosts[0].outcome.exit_code == 5, result.hosts[0].outcome
        blocks.clear()
        result = fleet.run("seq 1 1000000", ranks=[1], on_output=slow, timeout=60)
    assert result.hosts[0].outcome.exit_code == 0, result.hosts[0].outcome
    assert sum(blocks) == 6888896


def test_a_frozen_host_does_not_hang_a_large_input(farm: Farm) -> None:
    with Fleet(farm.addresses, deadline=DEADLINE) as fleet:
        assert fleet.reachable(timeout=10).ok
        farm.hosts[1].freeze()
        began = time.monotonic()
        result = fleet.run("cat > /dev/null", ranks=[1], stdin=b"x" * 30_000_000, timeout=60)
        took = (time.monotonic() - began) / DEADLINE
    farm.hosts[1].thaw()
    assert result.hosts[0].outcome.failure in (Failure.FROZEN, Failure.LOST)
    assert took <= 1.5


def test_a_vanished_host_with_a_full_pipe_to_it_does_not_hang_the_clean_up(farm: Farm) -> None:
    relay = farm.cut_off_later(1)
    with Fleet([relay.address], deadline=DEADLINE) as fleet:
        wire = fleet.link(relay.address).transport(5).sock
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # as on a slow network: a write has to wait
        began = time.monotonic()
        result = fleet.run(
            "cat > /dev/null", stdin=b"x" * 60_000_000, timeout=1.5, on_sent=lambda host, size: relay.vanish()
        )
        took = time.monotonic() - began
    assert result.hosts[0].outcome.failure is Failure.TIMEOUT
    assert took < 20


def test_a_connection_that_died_in_silence_is_tested_before_it_is_used(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = farm.cut_off_later(1)
    monkeypatch.setattr("orchestrator.remote.connect._ASK_AFTER_IDLE", 0.2)
    with Fleet([relay.address], deadline=DEADLINE) as fleet:
        assert fleet.run("true", timeout=60).ok
        time.sleep(0.3)
        assert fleet.run("true", timeout=60).ok  # asked, answered, used
        relay.vanish()
        time.sleep(0.3)
        outcome, took = outcome_of(fleet, "touch $HOME/sent")
    assert outcome.failure is Failure.UNREACHABLE  # not LOST: the command was never sent
    assert took <= 1.5


def test_closing_the_fleet_ends_what_runs(farm: Farm) -> None:
    fleet = Fleet(farm.addresses, deadline=DEADLINE)
    assert fleet.reachable(timeout=10).ok
    during(fleet.close)
    outcome, took = outcome_of(fleet)
    assert outcome.failure is Failure.LOST
    assert took <= 0.5


def test_no_thread_and_no_file_descriptor_is_left_after_failures(farm: Farm) -> None:
    def held() -> tuple[int, int]:
        return threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))

    def once() -> None:
        with Fleet(farm.addresses, deadline=2.0) as fleet:
            fleet.run("exit 1", timeout=60)
            with listener_that("silent") as port:
                silent = replace(farm.addresses[1], host="127.0.0.1", port=port)
                Fleet([silent], deadline=0.5).run("true", timeout=60)
        bad_key = replace(farm.addresses[0], host_key=farm.addresses[1].host_key)
        Fleet([bad_key], deadline=2.0).run("true", timeout=60)

    once()
    time.sleep(0.3)
    before = held()
    for _ in range(3):
        once()
    limit = time.monotonic() + 10
    while held() > before and time.monotonic() < limit:
        time.sleep(0.1)
    assert held() <= before, (before, held())
