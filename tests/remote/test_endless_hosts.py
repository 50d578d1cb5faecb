"""A host whose answer never ends is one failed host: in its time, in little memory, while the others succeed."""

from __future__ import annotations

import resource
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.evil_host import answer_instead, pack
from support.evil_ssh import evil_ssh
from support.orch_process import until
from support.sshd import Farm, listener_that, sshd_farm

from orchestrator import hosts
from orchestrator.cli.commands.hosts import upload
from orchestrator.hosts import Failure, HostAddress, ssh_argv
from orchestrator.remote import command
from orchestrator.remote import fleet as fleet_module
from orchestrator.remote.deadlines import Stall, beat_while
from orchestrator.remote.files import fetch_tree
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.scripts import shell_text_command
from orchestrator.remote.tree import read_tree


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    with sshd_farm(tmp_path_factory.mktemp("endless"), 2) as farm:
        yield farm


def place(farm: Farm, port: int, key: str | None = None, known_hosts: Path | None = None) -> HostAddress:
    good = farm.addresses[0]
    return replace(
        good,
        rank=1,
        alias="evil",
        host="127.0.0.1",
        port=port,
        host_key=key,
        known_hosts=known_hosts or good.known_hosts,
    )


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def test_output_without_end_ends_a_command_that_only_has_a_result(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_MOST_UNREAD", 4 << 20)
    with evil_ssh("flood") as (port, key), Fleet([farm.addresses[0], place(farm, port, key)]) as fleet:
        good, evil = fleet.run("echo hello", timeout=Stall(60.0)).hosts
    assert good.outcome.ok
    assert evil.outcome.failure is Failure.TIMEOUT and "printed more than 4 MiB" in evil.outcome.detail


def test_a_host_that_always_has_output_ends_at_the_time_of_its_command(farm: Farm) -> None:
    with Fleet(farm.addresses[:1]) as fleet:
        line = shell_text_command("timeout 30 cat /dev/zero")  # of this test, if nothing ends it
        (result,) = fleet.run(line, timeout=1.0, on_output=lambda _host, _block: time.sleep(0.02)).hosts
    assert result.outcome.failure is Failure.TIMEOUT, result.outcome
    assert result.outcome.seconds < 20.0


def test_signs_of_life_are_no_progress_for_ever(farm: Farm) -> None:
    with evil_ssh("drip") as (port, key), Fleet([farm.addresses[0], place(farm, port, key)], deadline=4.0) as fleet:
        good, evil = fleet.run("true", timeout=Stall(0.5, longest=1.0)).hosts
    assert good.outcome.ok
    assert evil.outcome.failure is Failure.TIMEOUT and "no progress" in evil.outcome.detail


def test_input_that_a_host_takes_is_progress_however_long_it_needs(farm: Farm) -> None:
    with Fleet(farm.addresses[:1]) as fleet:
        line = beat_while("for n in 1 2 3 4 5 6; do sleep 0.3; head -c 3000000 >/dev/null; echo; done")
        deadline = Stall(1.2, longest=0.5)
        assert fleet.run(line, stdin=b"x" * 18_000_000, timeout=deadline).ok


def test_a_host_that_sends_more_than_its_window_is_cut_off(farm: Farm, tmp_path: Path) -> None:
    def take_slowly(_host: HostAddress, _block: bytes) -> None:
        slow.wait(0.2)

    slow, before = threading.Event(), peak()
    with (
        evil_ssh("flood beyond the window") as (port, key),
        Fleet([farm.addresses[0], place(farm, port, key)]) as fleet,
    ):
        good, evil = fleet.run("echo hello", timeout=20.0, on_output=take_slowly).hosts
    assert good.outcome.ok
    assert evil.outcome.failure is Failure.LOST and "more than the" in evil.outcome.detail, evil.outcome
    assert peak() - before < 64, "MiB"


def test_the_time_of_who_reads_is_not_that_of_the_host(farm: Farm) -> None:
    blocks: list[bytes] = []

    def read_slowly(_host: HostAddress, block: bytes) -> None:
        blocks.append(block)
        time.sleep(0.2)

    with Fleet(farm.addresses[:1]) as fleet:
        deadline = Stall(0.5, longest=0.5)
        assert fleet.run("head -c 12000000 /dev/zero", timeout=deadline, on_output=read_slowly).ok
    assert sum(map(len, blocks)) == 12_000_000 and len(blocks) > 8


@pytest.mark.parametrize("mode", ["flood", "after the files"])
def test_a_copy_ends_when_the_host_sends_something_else(farm: Farm, tmp_path: Path, mode: str) -> None:
    if mode == "flood":
        with evil_ssh("flood") as (port, key), Fleet([place(farm, port, key)]) as fleet:
            outcome = fetch_tree(fleet, "some", lambda _host: tmp_path / "here").hosts[0].outcome
    else:
        host = farm.hosts[1]
        answer_instead(host, "tar", pack(("some", b"0", "content")))
        script = host.home / ".evil" / "tar"
        script.write_text(script.read_text().replace("exit 0", "exec cat /dev/zero"))
        (host.home / "some").write_text("content")
        with Fleet([host.address]) as fleet:
            outcome = fetch_tree(fleet, "some", lambda _host: tmp_path / "here").hosts[0].outcome
        (host.home / ".bashrc").unlink()
    assert outcome.exit_code == 1 and outcome.last_line == "the host sent something else than the files"


def test_a_copy_ends_when_the_files_are_refused_here(farm: Farm, tmp_path: Path) -> None:
    host = farm.hosts[1]
    answer_instead(host, "tar", pack(("other", b"0", "content")))
    script = host.home / ".evil" / "tar"
    script.write_text(script.read_text().replace("exit 0", "exec cat /dev/zero"))
    (host.home / "some").write_text("content")
    with Fleet([host.address]) as fleet:
        outcome = fetch_tree(fleet, "some", lambda _host: tmp_path / "here").hosts[0].outcome
    (host.home / ".bashrc").unlink()
    assert outcome.exit_code == 1 and "only 'some' was requested" in outcome.last_line


@pytest.mark.parametrize("mode", ["flood", "drip"])
def test_an_upload_ends_when_the_host_only_prints(
    farm: Farm, tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_MOST_UNREAD", 4 << 20)
    monkeypatch.setattr(upload, "TRANSFER_SECONDS", 1.0)
    monkeypatch.setattr(upload, "WRITE_SECONDS", 1.0)
    (tmp_path / "file").write_bytes(b"x" * 1000)
    tree = read_tree(tmp_path / "file")
    with evil_ssh(mode) as (port, key), Fleet([farm.addresses[0], place(farm, port, key)], deadline=4.0) as fleet:
        good, evil = upload.upload_tree(fleet, tree, "file", "there", lambda _done, _all: None).outcomes
    assert good.ok and evil.failure is Failure.TIMEOUT


def test_ssh_itself_gives_up_a_host_that_shows_no_banner(
    farm: Farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "CONNECT_SECONDS", 1.0)
    with listener_that("silent") as port:
        argv = ssh_argv(place(farm, port, None, tmp_path / "known_hosts"), "true")
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 255 and "timed out" in done.stderr


def test_a_command_is_ended_on_the_host_also_when_orch_waits_for_it_no_longer(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "_END_SECONDS", 0.5)
    line = shell_text_command("trap '' TERM; echo $$; while :; do sleep 0.1; done")
    with Fleet(farm.addresses[:1]) as fleet:
        (result,) = fleet.run(line, timeout=1.0).hosts
        assert result.outcome.failure is Failure.TIMEOUT
        process = Path("/proc") / result.output.decode().split()[0]
        assert process.exists(), "the grace is not over"
    until("it is killed", lambda: not process.exists(), 30)
