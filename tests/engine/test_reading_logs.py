"""Reading the log of a job as it is at a moment: it ends, whatever the program or the host still prints."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from support.evil_ssh import evil_ssh
from support.sshd import Farm, sshd_farm

from orchestrator.engine.operations import log_sources
from orchestrator.engine.operations.log_sources import FROM_BEGINNING, LogStart, find_offsets, read_current_logs
from orchestrator.hosts import Failure, HostAddress
from orchestrator.remote.fleet import Fleet

BLOCK = 1 << 20


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    with sshd_farm(tmp_path_factory.mktemp("logs"), 1) as farm:
        yield farm


def write_log(farm: Farm, name: str, content: bytes) -> Path:
    log = farm.hosts[0].rank_folder / "jobs" / name / "log"
    log.parent.mkdir(parents=True)
    log.write_bytes(content)
    return log


def test_a_program_that_prints_faster_than_its_log_is_read_does_not_extend_the_reading(farm: Farm) -> None:
    log, received = write_log(farm, "job-1-a1", b"x" * BLOCK), 0

    def sink(_host: HostAddress, block: bytes) -> None:
        nonlocal received
        received += len(block)
        assert received <= 2 * BLOCK, "it has no end"
        with log.open("ab") as file:
            file.write(b"y" * 2 * len(block))

    with Fleet(farm.addresses) as fleet:
        assert read_current_logs(fleet, "job-1-a1", sink, (0,), FROM_BEGINNING) == ()
    assert received == BLOCK


def keep(found: io.BytesIO, _host: HostAddress, block: bytes) -> None:
    found.write(block)


def test_a_log_is_read_from_where_its_last_lines_begin(farm: Farm) -> None:
    write_log(farm, "job-2-a1", b"one\ntwo\nthree")
    for tail, content in ((0, b""), (1, b"three"), (2, b"two\nthree"), (9, b"one\ntwo\nthree")):
        found = io.BytesIO()
        with Fleet(farm.addresses) as fleet:
            failed = read_current_logs(fleet, "job-2-a1", partial(keep, found), (0,), LogStart(tail=tail))
        assert (found.getvalue(), failed) == (content, ())


def test_a_host_that_prints_without_end_is_left_at_the_time_of_a_log(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_sources, "READ_SECONDS", 1.0)
    monkeypatch.setattr(log_sources, "TRANSFER_SECONDS", 1.0)
    with evil_ssh("flood") as (port, key):
        evil = replace(farm.addresses[0], host="127.0.0.1", port=port, host_key=key)
        with Fleet([evil], deadline=4.0) as fleet:
            (failed,) = read_current_logs(fleet, "job-1-a1", lambda _host, _block: None, (0,), FROM_BEGINNING)
    assert failed.failure is Failure.TIMEOUT and "made no progress" in failed.detail, failed


def test_a_place_of_five_thousand_digits_is_no_place(farm: Farm) -> None:
    host = farm.hosts[0]
    (host.home / ".bashrc").write_text(f"echo start {'9' * 5000}\nexit 0\n")
    with Fleet(farm.addresses) as fleet:
        assert find_offsets(fleet, "job-2-a1", (0,), LogStart(tail=1)).offsets == {}
    (host.home / ".bashrc").unlink()
