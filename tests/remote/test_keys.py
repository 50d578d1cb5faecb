"""Host keys: made by us, pinned under a name, accepted once where that must be; and as OpenSSH sees them."""

from __future__ import annotations

import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from support.sshd import Farm

from orchestrator.hosts import Failure, HostAddress, ssh_argv
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.keys import known_hosts_line, make_host_key, write_known_hosts


def address(alias: str, known_hosts: Path, host_key: str | None, jump: HostAddress | None = None) -> HostAddress:
    return HostAddress(
        rank=0,
        alias=alias,
        host="127.0.0.1",
        port=22,
        user="me",
        identity_file=known_hosts.parent / "id",
        known_hosts=known_hosts,
        internal_ip="10.0.0.1",
        host_key=host_key,
        jump=jump,
    )


def test_a_made_key_is_one_that_openssh_reads(tmp_path: Path) -> None:
    private, public = make_host_key()
    path = tmp_path / "key"
    path.touch(mode=0o600)
    path.write_text(private)
    derived = subprocess.run(["ssh-keygen", "-y", "-f", str(path)], capture_output=True, text=True, check=True).stdout
    assert derived.split()[:2] == public.split()[:2]
    assert make_host_key()[1] != public


def test_openssh_finds_the_pinned_key_by_alias(tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    _, public = make_host_key()
    write_known_hosts(known, [address("tpu-1234", known, public)])
    found = subprocess.run(
        ["ssh-keygen", "-F", "tpu-1234", "-f", str(known)], capture_output=True, text=True, check=False
    )
    assert public.split()[1] in found.stdout
    assert known_hosts_line("h", public, 2222) == f"[h]:2222 {public}\n"
    assert known_hosts_line("h", public, 22) == known_hosts_line("h", public)


def test_writing_pins_replaces_old_ones_and_keeps_other_lines(tmp_path: Path) -> None:
    known = tmp_path / "deep" / "known_hosts"
    (_, old), (_, new), (_, other) = make_host_key(), make_host_key(), make_host_key()
    jump = address("jump", known, other)
    write_known_hosts(known, [address("host", known, old), address("kept", known, other)])
    write_known_hosts(known, [address("host", known, new, jump), address("byo", known, None)])
    lines = known.read_text().splitlines()
    assert sorted(line.split()[0] for line in lines) == ["host", "jump", "kept"]
    assert f"host {new}" in lines


def test_concurrent_writers_lose_no_line(tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    _, public = make_host_key()
    threads = [
        threading.Thread(target=write_known_hosts, args=(known, [address(f"h{number}", known, public)]))
        for number in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(known.read_text().splitlines()) == 16
    assert sorted(path.name for path in tmp_path.iterdir()) in (["known_hosts"], ["known_hosts", "known_hosts.lock"])


def test_plain_openssh_trusts_the_same_hosts_with_our_command(farm: Farm) -> None:
    argv = ssh_argv(farm.addresses[0], "echo", "in")
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert (done.returncode, done.stdout) == (0, "in\n"), done.stderr
    farm.hosts[0].change_host_key()
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 255
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in done.stderr


def unpinned(farm: Farm, tmp_path: Path) -> list[HostAddress]:
    return [replace(host, host_key=None, known_hosts=tmp_path / "accepted") for host in farm.addresses]


def test_a_users_own_host_is_accepted_once_and_a_changed_key_is_refused(farm: Farm, tmp_path: Path) -> None:
    hosts = unpinned(farm, tmp_path)
    with Fleet(hosts, deadline=5) as fleet:
        assert fleet.run("true", timeout=60).ok
    lines = (tmp_path / "accepted").read_text().splitlines()
    assert sorted(line.split()[0] for line in lines) == sorted(host.alias for host in hosts)
    assert {" ".join(line.split()[1:]) for line in lines} == {host.host_key for host in farm.addresses}
    with Fleet(hosts, deadline=5) as fleet:
        assert fleet.run("true", timeout=60).ok  # known now
    assert len((tmp_path / "accepted").read_text().splitlines()) == 2
    farm.hosts[1].change_host_key()
    with Fleet(hosts, deadline=5) as fleet:
        result = fleet.run("touch $HOME/was-here", timeout=60)
    assert [host.outcome.verdict for host in result.hosts] == ["exit 0", "identity-mismatch"]
    assert not (farm.hosts[1].home / "was-here").exists()


def test_a_key_that_openssh_accepted_is_known_to_us_even_hashed(farm: Farm, tmp_path: Path) -> None:
    host = unpinned(farm, tmp_path)[0]
    argv = ssh_argv(host, "true")
    subprocess.run([argv[0], "-o", "HashKnownHosts=yes", *argv[1:]], check=True, capture_output=True)
    assert host.alias not in (tmp_path / "accepted").read_text()
    farm.hosts[0].change_host_key()
    with Fleet([host], deadline=5) as fleet:
        assert fleet.run("true", timeout=60).hosts[0].outcome.failure is Failure.IDENTITY


def test_a_broken_line_in_known_hosts_is_an_identity_failure_that_names_the_file(farm: Farm, tmp_path: Path) -> None:
    host = unpinned(farm, tmp_path)[0]
    host.known_hosts.write_text(f"{host.alias} ssh-ed25519 not-base64!\n")
    with Fleet([host], deadline=5) as fleet:
        outcome = fleet.run("true", timeout=60).hosts[0].outcome
    assert outcome.failure is Failure.IDENTITY
    assert "accepted" in outcome.detail


def test_a_host_without_a_key_of_the_pinned_kind_is_an_identity_failure(farm: Farm, tmp_path: Path) -> None:
    key = tmp_path / "rsa"
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", str(key)], check=True)
    rsa = " ".join((tmp_path / "rsa.pub").read_text().split()[:2])
    with Fleet([replace(farm.addresses[0], host_key=rsa)], deadline=5) as fleet:
        assert fleet.run("true", timeout=60).hosts[0].outcome.failure is Failure.IDENTITY


@pytest.mark.parametrize("kind", ["rsa", "ecdsa"])
def test_host_keys_of_other_kinds_can_be_pinned(farm: Farm, tmp_path: Path, kind: str) -> None:
    host = farm.hosts[0]
    (host.folder / "host_key").unlink()
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(host.folder / "host_key")], check=True)
    host.kill()
    host.start()
    public = " ".join((host.folder / "host_key.pub").read_text().split()[:2])
    with Fleet([replace(farm.addresses[0], host_key=public)], deadline=5) as fleet:
        assert fleet.run("true", timeout=60).ok
