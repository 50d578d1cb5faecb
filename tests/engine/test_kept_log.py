"""Copies of output are bounded on the disk: one that is too long loses its middle, and the oldest are deleted."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.engine.loop.follow import LogFiles
from orchestrator.engine.operations.kept_output import KeptOutput, read_kept_output
from orchestrator.engine.operations.log_sources import LogStart, read_log_from
from orchestrator.engine.state.kept_log import HEAD, LogLimits, copy_log, describe_missing, find_fallocate, read_cut
from orchestrator.engine.state.old_output import drop_old_output
from orchestrator.paths import Paths, load_paths
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.store.records import NewJob
from orchestrator.store.store import Store

MIB = 1 << 20
LIMITS = LogLimits(attempt_bytes=8 * MIB, host_bytes=4 * MIB)
BLOCK = b"".join(b"line %07d\n" % number for number in range(4096))  # 13 bytes a line
CUT_LINE = re.compile(rb"\n\[orch: ([0-9.]+) MB of this output are not kept here; its host has all of it[^\n]*\]\n")


def write_log(folder: Path, blocks: int, hosts: int = 1) -> Path:
    files = LogFiles(folder, hosts, LIMITS)
    for _ in range(blocks):
        files.write(0, BLOCK)
    files.close()
    return files.path(0)


@pytest.fixture(params=["holes", "no holes"])
def any_disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A system that makes holes in files, and one that cannot."""
    find_fallocate.cache_clear()
    if request.param == "no holes":
        monkeypatch.setattr(sys, "platform", "darwin")
    yield str(request.param)
    find_fallocate.cache_clear()


def test_a_long_log_keeps_its_size_its_start_and_its_end(tmp_path: Path) -> None:
    log = write_log(tmp_path / "logs", 1000)
    found, cut = log.stat(), read_cut(log)
    assert found.st_size == 1000 * len(BLOCK), "following resumes at its size"
    assert found.st_blocks * 512 <= LIMITS.attempt_bytes + MIB
    assert cut is not None and cut.begin == HEAD and cut.end % MIB == 0
    with (log.parent / "copy").open("wb") as copy:
        copy_log(log, copy)
    content = (log.parent / "copy").read_bytes()
    start, amount, end = CUT_LINE.split(content)
    assert start == (BLOCK * 30)[:HEAD] and (BLOCK * 1000).endswith(end)
    assert len(end) >= LIMITS.attempt_bytes // 2
    assert float(amount) == pytest.approx((cut.end - cut.begin) / 1e6, abs=0.1)


def test_a_log_is_bounded_on_any_disk_and_shows_no_zeros(tmp_path: Path, any_disk: str) -> None:
    log = write_log(tmp_path / "logs", 500)
    assert log.stat().st_size == 500 * len(BLOCK)
    assert log.stat().st_blocks * 512 <= LIMITS.attempt_bytes + MIB
    content = read_log_from(log, LogStart())
    assert b"\0" not in content and len(CUT_LINE.findall(content)) == 1
    assert content.startswith(BLOCK) and content.endswith(BLOCK) is (any_disk == "holes")


def test_hosts_of_an_attempt_share_what_it_may_take(tmp_path: Path) -> None:
    log = write_log(tmp_path / "logs", 500, hosts=1000)
    assert log.stat().st_blocks * 512 <= LIMITS.host_bytes + MIB
    assert read_cut(write_log(tmp_path / "short", 10)) is None


def test_two_commands_that_follow_one_program_write_each_byte_once(tmp_path: Path) -> None:
    first, second = (LogFiles(tmp_path / "logs", 1, LIMITS) for _ in range(2))
    for files in (first, second):
        files.offsets([0])
    for _ in range(300):
        first.write(0, BLOCK)
        second.write(0, BLOCK)
    log = first.path(0)
    assert log.stat().st_size == 300 * len(BLOCK)
    later = LogFiles(tmp_path / "logs", 1, LIMITS)
    assert later.offsets([0]) == {0: 300 * len(BLOCK)}
    later.write(0, b"end\n")
    assert read_log_from(log, LogStart(tail=2)) == BLOCK[-13:] + b"end\n"
    for files in (first, second, later):
        files.close()


def test_the_last_lines_and_those_since_a_time_are_found_behind_the_hole(tmp_path: Path) -> None:
    log = write_log(tmp_path / "logs", 1000)
    size = log.stat().st_size
    now = time.time()
    log.with_suffix(".times").write_text(f"{now - 90:.0f} 100\n{now - 60:.0f} {size - 26}\n")
    assert read_log_from(log, LogStart(tail=1)) == BLOCK[-13:]
    assert read_log_from(log, LogStart(seconds=62)) == BLOCK[-26:]
    log.with_suffix(".times").write_text(f"{now - 90:.0f} 0\n{now - 60:.0f} {HEAD + 5}\n")
    assert CUT_LINE.match(read_log_from(log, LogStart(seconds=62)))


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, int]], KeptOutput]:
    """Read the output of a long log as the service does."""
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    with Store(load_paths().database) as store:
        record = store.open_cluster("mine", "")
        new = NewJob(
            kind="launch", run_id="r", digest="d", task="", bucket="", ranks=None, after_end=TeardownPolicy.KEEP
        )
        number = store.open_job(record, new).id
        store.start_attempt(record, number)
        job = store.job(record, number)
        assert store.unfinished_jobs() == {(record.uid, number)}
    write_log(load_paths().logs(record.uid, number) / "attempt-0001", 1000)
    return lambda positions: read_kept_output(record, job, setup=False, ranks=(), start=LogStart(), positions=positions)


def test_a_reader_of_the_service_gets_everything_that_is_kept(
    kept: Callable[[dict[str, int]], KeptOutput],
) -> None:
    positions, parts = dict[str, int](), list[bytes]()
    while not (found := kept(positions)).complete:
        for part in found.parts:
            positions[part.file] = part.end
            parts.append(describe_missing(part.missing) + part.content)
    parts += [describe_missing(part.missing) + part.content for part in found.parts]
    (log,) = (load_paths().state / "logs").glob("*/1/attempt-0001/*.log")
    assert b"".join(parts) == read_log_from(log, LogStart())
    inside, cut = kept({"attempt-0001/0.log": 2 * HEAD + 5}).parts[0], read_cut(log)
    assert cut is not None and (inside.begin, inside.missing) == (cut.end, cut.end - 2 * HEAD - 5), (
        "it had read on, and what follows was cut meanwhile"
    )


# --- of all jobs --------------------------------------------------------------------------------------------------


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    for number in range(1, 5):
        folder = load_paths().logs("u", number) / "attempt-0001"
        folder.mkdir(parents=True)
        (folder / "0.log").write_bytes(b"x" * MIB)
        os.utime(folder / "0.log", (1e9 + number, 1e9 + number))
    return load_paths()


def test_the_oldest_output_of_ended_jobs_is_deleted_first(where: Paths) -> None:
    limits = LogLimits(all_bytes=2 * MIB + 4096)
    assert drop_old_output(where, {("u", 1)}, limits) == 2
    assert sorted(int(one.name) for one in (where.state / "logs" / "u").iterdir()) == [1, 4]
    assert drop_old_output(where, {("u", 1)}, limits) == 0
    assert drop_old_output(where, {("u", 1), ("u", 4)}, LogLimits(all_bytes=0)) == 0, "jobs that have not ended keep it"
