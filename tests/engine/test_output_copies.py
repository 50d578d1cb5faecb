"""Copies of output that are made from hosts for readers: shared, bounded, complete, and ended with the last reader."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.orch_process import until
from support.sshd import Farm, sshd_farm

from orchestrator.engine.operations import output_copies
from orchestrator.engine.operations.kept_output import read_kept_output
from orchestrator.engine.operations.log_sources import LogStart
from orchestrator.engine.operations.output_copies import BusyOutputError, OutputCopies
from orchestrator.engine.operations.output_source import OutputSource, choose_source, find_attempt_folder
from orchestrator.engine.state.following import note_followed, note_following
from orchestrator.engine.state.names import host_job_name
from orchestrator.engine.state.recorded import open_reader
from orchestrator.paths import load_paths
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.jobs import start_job
from orchestrator.store.records import ClusterRecord, JobRecord, NewJob
from orchestrator.store.store import Store

HOSTILE = bytes(range(256)) * 5000 + b"no end"


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    with sshd_farm(tmp_path_factory.mktemp("copies"), 2) as farm:
        yield farm


@pytest.fixture
def mine(farm: Farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ClusterRecord, JobRecord]:
    """A cluster on record with the hosts of the farm, and its first job, which has started."""
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    with Store(load_paths().database) as store:
        record = store.open_cluster("mine", "")
        new = NewJob(
            kind="launch", run_id="r", digest="d", task="", bucket="", ranks=None, after_end=TeardownPolicy.KEEP
        )
        number = store.open_job(record, new).id
        store.start_attempt(record, number)
        return replace(record, hosts=tuple(farm.addresses)), store.job(record, number)


def run_on_hosts(farm: Farm, job: JobRecord, script: str) -> None:
    with Fleet(farm.addresses) as fleet:
        assert start_job(fleet, host_job_name(job.cluster_uid, f"{job.id}-a{job.attempt}"), script.encode()).ok


def read_copies(job: JobRecord) -> list[bytes]:
    return [file.read_bytes() for file in sorted(find_attempt_folder(job).glob("*.log"))]


def test_all_readers_share_a_copy_which_is_made_once(
    farm: Farm, mine: tuple[ClusterRecord, JobRecord], tmp_path: Path
) -> None:
    record, job = mine
    (tmp_path / "hostile").write_bytes(HOSTILE)
    run_on_hosts(farm, job, f"cat {tmp_path}/hostile")
    copies = OutputCopies(open_reader)
    assert choose_source(record, job) is OutputSource.HOSTS
    made = {copies.request(record, job) for _ in range(20)}
    assert len(made) == 1
    until("it is complete", lambda: copies.request(record, job) is None, 30)
    assert read_copies(job) == [HOSTILE, HOSTILE]
    assert OutputCopies(open_reader).request(record, job) is None, "another process of this computer asks no host"


def test_a_copy_ends_after_its_last_reader_and_goes_on_with_the_next(
    farm: Farm, mine: tuple[ClusterRecord, JobRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, job = mine
    monkeypatch.setattr(output_copies, "IDLE_SECONDS", 1.0)
    monkeypatch.setattr(output_copies, "_AGAIN_SECONDS", 0.0)
    run_on_hosts(farm, job, f"echo one; until [ -e {tmp_path}/gate ]; do sleep 0.1; done; echo two")
    copies = OutputCopies(open_reader)
    copy = copies.request(record, job)
    assert copy is not None
    until("its readers have left", lambda: copy.ended is not None, 30)
    assert copy.error is None and read_copies(job) == [b"one\n", b"one\n"]
    assert choose_source(record, job) is OutputSource.HOSTS, "it has not all of it"
    (tmp_path / "gate").touch()
    until("it is complete", lambda: copies.request(record, job) is None, 30)
    assert read_copies(job) == [b"one\ntwo\n", b"one\ntwo\n"]


def test_a_reader_begins_at_a_time_of_the_host(farm: Farm, mine: tuple[ClusterRecord, JobRecord]) -> None:
    record, job = mine
    run_on_hosts(farm, job, "echo old; echo new")
    name, now = host_job_name(job.cluster_uid, f"{job.id}-a{job.attempt}"), int(time.time())
    for host in farm.hosts:
        folder = host.rank_folder / "jobs" / name
        until("it has ended", (folder / "rc").exists, 30)
        (folder / "log-times").write_text(f"{now - 900} 4\nno line\n{now - 60} 8\n")
    copies = OutputCopies(open_reader)
    until("it is complete", lambda: copies.request(record, job) is None, 30)
    found = read_kept_output(record, job, setup=False, ranks=(), start=LogStart(seconds=600), positions={})
    assert [bytes(part.content) for part in found.parts] == [b"new\n", b"new\n"]


def test_a_process_that_follows_the_hosts_is_the_source_while_it_lives(
    mine: tuple[ClusterRecord, JobRecord],
) -> None:
    record, job = mine
    folder = find_attempt_folder(job)
    folder.mkdir(parents=True)
    note_following(folder)
    assert choose_source(record, job) is OutputSource.KEPT
    (folder / "followed-by").write_text("1 of another boot")
    assert choose_source(record, job) is OutputSource.HOSTS, "its process has ended"
    note_following(folder)
    note_followed(folder, complete=False)
    assert choose_source(record, job) is OutputSource.HOSTS
    assert choose_source(replace(record, hosts=()), job) is OutputSource.KEPT


def test_more_than_some_copies_at_a_time_are_refused(
    mine: tuple[ClusterRecord, JobRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    record, job = mine
    monkeypatch.setattr(output_copies, "MOST_HOSTS", 3)
    silent = tuple(replace(host, host="127.0.0.1", port=9) for host in record.hosts)  # nothing listens there
    copies, began = OutputCopies(open_reader), time.monotonic()
    first = copies.request(replace(record, hosts=silent), job)
    with pytest.raises(BusyOutputError):
        copies.request(replace(record, hosts=silent), replace(job, id=2))
    assert time.monotonic() - began < 2.0, "a request waits for no host"
    assert first is not None
    first.stop.set()
    until("it ends", lambda: first.ended is not None, 60)
    assert {outcome.rank for outcome in first.failed} == {0, 1}
