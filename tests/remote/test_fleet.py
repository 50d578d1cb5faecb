"""Commands on real sshd hosts: results, input and output, limits, and how they are ended."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sshd import Farm, sshd_farm

from orchestrator.errors import UserError
from orchestrator.hosts import Failure, HostAddress
from orchestrator.remote.fleet import Fleet, FleetResult, last_line


def test_every_host_reports_in_rank_order(fleet: Fleet) -> None:
    result = fleet.run(lambda host: f"echo rank {host.rank}; exit {host.rank}", timeout=60)
    assert [host.outcome.rank for host in result.hosts] == [0, 1, 2]
    assert [host.outcome.exit_code for host in result.hosts] == [0, 1, 2]
    assert [host.output for host in result.hosts] == [b"rank 0\n", b"rank 1\n", b"rank 2\n"]
    assert [outcome.rank for outcome in result.failed] == [1, 2]
    assert not result.ok
    assert result.first_failure is not None
    assert result.first_failure.rank in (1, 2)
    assert result.by_rank(2).outcome.exit_code == 2
    with pytest.raises(KeyError):
        result.by_rank(7)


def test_only_the_given_ranks_run_and_an_unknown_one_is_refused_before_anything_runs(
    fleet: Fleet, shared_farm: Farm
) -> None:
    result = fleet.run("echo once >> $HOME/asked", ranks=[2, 0], timeout=60)
    assert [host.outcome.rank for host in result.hosts] == [0, 2]
    with pytest.raises(UserError, match="no host 9"):
        fleet.run("echo twice >> $HOME/asked", ranks=[0, 9], timeout=60)
    assert (shared_farm.hosts[0].home / "asked").read_text() == "once\n"
    assert not (shared_farm.hosts[1].home / "asked").exists()


def test_a_connection_is_reused_by_later_commands(fleet: Fleet) -> None:
    ports = [{fleet.run("echo $SSH_CONNECTION", ranks=[0], timeout=60).hosts[0].output for _ in range(3)}]
    assert len(ports[0]) == 1


def test_a_connection_that_broke_between_commands_is_opened_again(farm: Farm) -> None:
    with Fleet(farm.addresses, deadline=5) as fleet:
        assert fleet.run("true", timeout=60).ok
        farm.hosts[1].kill()
        farm.hosts[1].start()
        assert fleet.run("true", timeout=60).ok


def test_more_parallel_commands_than_sshd_allows_sessions_all_run(fleet: Fleet) -> None:
    results: list[FleetResult] = []

    def one(number: int) -> None:
        results.append(fleet.run(f"sleep 0.1; echo {number}", ranks=[0], timeout=60))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(25)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(result.ok for result in results), [result.failed for result in results]
    assert sorted(int(result.hosts[0].output) for result in results) == list(range(25))


@pytest.mark.parametrize("size", [0, 1, 16 * 1024, 16 * 1024 + 1, 5_000_000])
def test_standard_input_arrives_complete_and_ends(fleet: Fleet, size: int) -> None:
    data = os.urandom(size)
    result = fleet.run("sha256sum | cut -d' ' -f1; wc -c", stdin=lambda host: data, timeout=60)
    import hashlib

    assert {host.output for host in result.hosts} == {hashlib.sha256(data).hexdigest().encode() + b"\n0\n"}


def test_a_command_that_writes_before_it_reads_all_its_input_continues(fleet: Fleet) -> None:
    result = fleet.run("head -c 6000000 /dev/zero; wc -c", stdin=b"x" * 6_000_000, keep=20, timeout=60)
    assert {host.output[-8:] for host in result.hosts} == {b"6000000\n"}


def test_a_command_that_ends_before_it_read_its_input_reports_its_own_status(fleet: Fleet) -> None:
    result = fleet.run("exit 4", stdin=b"x" * 6_000_000, timeout=60)
    assert {host.outcome.exit_code for host in result.hosts} == {4}


def test_output_is_complete_in_order_and_only_the_tail_is_kept(fleet: Fleet) -> None:
    seen: dict[int, list[bytes]] = {}
    result = fleet.run(
        "seq 1 200000",
        on_output=lambda host, block: seen.setdefault(host.rank, []).append(block),
        keep=1000,
        timeout=60,
    )
    whole = b"".join(b"%d\n" % number for number in range(1, 200001))
    assert [b"".join(seen[rank]) for rank in (0, 1, 2)] == [whole] * 3
    assert [host.output for host in result.hosts] == [whole[-1000:]] * 3


def test_standard_error_is_part_of_the_output(fleet: Fleet) -> None:
    result = fleet.run("echo said >&2; sleep 0.1; echo more", timeout=60)
    assert {host.output for host in result.hosts} == {b"said\nmore\n"}


def test_an_exception_in_a_callback_is_raised_and_ends_the_command_everywhere(fleet: Fleet, shared_farm: Farm) -> None:
    class Full(Exception):
        pass

    def full(host: HostAddress, block: bytes) -> None:
        if host.rank == 1:
            raise Full

    began = time.monotonic()
    with pytest.raises(Full):
        fleet.run("echo x; sleep 60", on_output=full, timeout=50)
    assert time.monotonic() - began < 20
    for host in shared_farm.hosts:
        assert not [pid for pid in host.user_pids() if b"sleep" in _command_line(pid)]


@pytest.mark.parametrize("error", [OSError("no space left here"), EOFError("ours"), ValueError("ours")])
def test_an_error_of_our_own_functions_is_never_taken_for_a_lost_host(fleet: Fleet, error: Exception) -> None:
    def fail(*_: object) -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        fleet.run("echo x; sleep 1", on_output=fail, timeout=60)
    assert caught.value is error
    with pytest.raises(type(error)) as caught:
        fleet.run("cat; sleep 1", stdin=b"x" * 100, on_sent=fail, timeout=60)
    assert caught.value is error


def test_what_is_ended_early_on_one_host_continues_on_another(fleet: Fleet) -> None:
    """The hosts of these tests share one /proc, as local hosts do."""
    late = threading.Event()

    def line(host: HostAddress) -> str:
        if host.rank == 1:
            late.wait(0.7)
        return "sleep 1 && echo done" if host.rank == 1 else "sleep 60"

    result = fleet.run(line, timeout=1.2)
    assert [host.outcome.verdict for host in result.hosts] == ["timeout", "exit 0", "timeout"]


def test_a_command_over_its_limit_is_ended_on_the_host_too(fleet: Fleet, shared_farm: Farm) -> None:
    result = fleet.run("echo before; sleep 71 & sleep 72", timeout=0.5)
    assert {host.outcome.failure for host in result.hosts} == {Failure.TIMEOUT}
    assert {host.output for host in result.hosts} == {b"before\n"}
    for host in shared_farm.hosts:
        assert not [pid for pid in host.user_pids() if b"sleep" in _command_line(pid)]


def test_the_first_failure_ends_the_others_after_the_grace(fleet: Fleet, shared_farm: Farm) -> None:
    result = fleet.run(
        lambda host: "exit 7" if host.rank == 1 else "echo here; sleep 73", stop_after_failure=0.3, timeout=60
    )
    assert [host.outcome.verdict for host in result.hosts] == ["stopped", "exit 7", "stopped"]
    assert result.first_failure is not None
    assert result.first_failure.rank == 1
    assert "host 1" in result.hosts[0].outcome.detail
    assert result.hosts[0].output == b"here\n"
    for host in shared_farm.hosts:
        assert not [pid for pid in host.user_pids() if b"sleep" in _command_line(pid)]


def test_hosts_that_end_within_the_grace_keep_their_own_result(fleet: Fleet) -> None:
    result = fleet.run(lambda host: "exit 7" if host.rank == 1 else "sleep 0.3", stop_after_failure=20, timeout=60)
    assert [host.outcome.verdict for host in result.hosts] == ["exit 0", "exit 7", "exit 0"]


def test_without_stop_after_failure_all_run_to_their_end(fleet: Fleet) -> None:
    result = fleet.run(lambda host: "exit 7" if host.rank == 1 else "sleep 0.5; echo end", timeout=60)
    assert [host.output for host in result.hosts] == [b"end\n", b"", b"end\n"]


def test_another_thread_can_end_a_call(fleet: Fleet) -> None:
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    result = fleet.run("sleep 74", stop=stop, timeout=60)
    assert {host.outcome.failure for host in result.hosts} == {Failure.STOPPED}


def test_a_process_left_in_the_background_does_not_hold_the_command(fleet: Fleet) -> None:
    began = time.monotonic()
    result = fleet.run("sleep 8 & echo done; exit 3", timeout=60)
    took = time.monotonic() - began
    assert {(host.outcome.exit_code, host.output) for host in result.hosts} == {(3, b"done\n")}
    assert took < 7


def test_a_command_that_closes_its_output_early_still_reports_its_status(fleet: Fleet) -> None:
    result = fleet.run("exec >&- 2>&-; sleep 0.4; exit 9", timeout=60)
    assert {host.outcome.exit_code for host in result.hosts} == {9}


def test_at_most_width_hosts_are_served_in_parallel(shared_farm: Farm) -> None:
    lock = threading.Lock()
    now = most = 0

    def enter(host: HostAddress, block: bytes) -> None:
        nonlocal now, most
        with lock:
            now += 1 if block.startswith(b"in") else -1
            most = max(most, now)

    with Fleet(shared_farm.addresses, width=1) as fleet:
        assert fleet.run("echo in; sleep 0.1; echo out; sleep 0.1", on_output=enter, timeout=60).ok
    assert most == 1


def test_reachable_waits_for_a_host_that_is_still_booting(farm: Farm) -> None:
    farm.hosts[1].kill()
    threading.Timer(1.0, lambda: farm.hosts[1].start(wait=False)).start()
    with Fleet(farm.addresses, deadline=5) as fleet:
        result = fleet.reachable(timeout=20)
    assert result.ok, result.failed
    assert result.by_rank(1).outcome.attempts > 1
    assert result.by_rank(0).outcome.attempts == 1


def test_a_missing_key_file_is_named_with_the_command_that_makes_one(shared_farm: Farm, tmp_path: Path) -> None:
    without_key = replace(shared_farm.addresses[0], identity_file=tmp_path / "nokey")
    with Fleet([without_key]) as fleet, pytest.raises(UserError) as caught:
        fleet.run("true", timeout=60)
    assert "nokey" in caught.value.what
    assert "ssh-keygen" in caught.value.next_step


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_keys_with_a_passphrase_are_refused_with_the_reason(shared_farm: Farm, tmp_path: Path, kind: str) -> None:
    import subprocess

    key = tmp_path / "locked"
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "secret", "-f", str(key)], check=True)
    locked = replace(shared_farm.addresses[0], identity_file=key)
    with Fleet([locked]) as fleet, pytest.raises(UserError, match="passphrase"):
        fleet.run("true", timeout=60)


@pytest.mark.parametrize("kind", ["rsa", "ecdsa"])
def test_a_users_key_of_another_kind_is_accepted(tmp_path: Path, kind: str) -> None:
    import subprocess

    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(key)], check=True)
    with sshd_farm(tmp_path / "farm", 1) as farm:
        public = (tmp_path / "key.pub").read_text()
        (farm.hosts[0].folder / "authorized_keys").write_text(public)
        with Fleet([replace(farm.addresses[0], identity_file=key)]) as fleet:
            result = fleet.run("echo in", timeout=60)
    assert result.hosts[0].output == b"in\n"


def test_a_server_without_our_fast_ciphers_still_works(tmp_path: Path) -> None:
    extra = "Ciphers aes256-ctr\nKexAlgorithms diffie-hellman-group14-sha256\nMACs hmac-sha2-256"
    with sshd_farm(tmp_path / "farm", 1, extra=extra) as farm, Fleet(farm.addresses, deadline=10) as fleet:
        assert fleet.run("echo in", timeout=60).hosts[0].output == b"in\n"


def test_a_server_that_allows_one_session_still_works(tmp_path: Path) -> None:
    with sshd_farm(tmp_path / "farm", 1, extra="MaxSessions 1") as farm, Fleet(farm.addresses) as fleet:
        assert [fleet.run(f"echo {n}", timeout=60).hosts[0].output for n in range(4)] == [
            b"0\n",
            b"1\n",
            b"2\n",
            b"3\n",
        ]


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (b"", ""),
        (b"one\ntwo\n", "two"),
        (b"one\n\n  \n", "one"),
        (b"10%\r20%\r", "20%"),
        (b"\x1b[31mred\x1b[0m\n", "[31mred[0m"),
        (b"\xff\xfe broken\n", "\ufffd\ufffd broken"),
    ],
)
def test_the_last_line_is_fit_for_a_table(output: bytes, line: str) -> None:
    assert last_line(output) == line


@given(st.binary(max_size=2000))
@settings(max_examples=200, deadline=None)
def test_the_last_line_of_anything_is_one_short_printable_line(output: bytes) -> None:
    line = last_line(output)
    assert len(line) <= 300
    assert line.isprintable()


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
