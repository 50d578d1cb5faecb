"""Output from the bucket of a run: the same bytes at the same places as in the copies that were uploaded."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from orchestrator.engine.loop.follow import LogFiles
from orchestrator.engine.loop.results import upload_log
from orchestrator.engine.operations.kept_output import read_kept_output
from orchestrator.engine.operations.log_sources import LogStart
from orchestrator.engine.operations.output_bucket import download_output
from orchestrator.engine.operations.output_source import OutputSource, choose_source, find_attempt_folder
from orchestrator.engine.state.kept_log import LogLimits
from orchestrator.errors import StorageError
from orchestrator.paths import load_paths
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.storage.bucket import Bucket
from orchestrator.store.records import ClusterRecord, JobRecord, NewJob
from orchestrator.store.store import Store

MIB = 1 << 20
BLOCK = b"".join(b"line %07d\n" % number for number in range(4096))


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ClusterRecord, JobRecord, Bucket]:
    """A cluster without hosts, its job, and a bucket with output of two ranks, of which one lost its middle."""
    monkeypatch.setenv("ORCH_HOME", str(tmp_path / "home"))
    with Store(load_paths().database) as store:
        record = store.open_cluster("mine", "")
        new = NewJob(
            kind="launch", run_id="r", digest="d", task="", bucket=f"file://{tmp_path}/bucket", ranks=None,
            after_end=TeardownPolicy.KEEP,
        )  # fmt: skip
        number = store.open_job(record, new).id
        store.start_attempt(record, number)
        job = store.job(record, number)
    files = LogFiles(find_attempt_folder(job), 1, LogLimits(attempt_bytes=8 * MIB, host_bytes=4 * MIB))
    for _ in range(300):
        files.write(0, BLOCK)
    files.write(1, bytes(range(256)) + b"no end")
    files.close()
    bucket = Bucket.open(job.bucket)
    for rank in (0, 1):
        upload_log(bucket, files.path(rank), f"r/logs/attempt-0001/{rank}.log")
    return record, job, bucket


def read_all(record: ClusterRecord, job: JobRecord) -> list[tuple[str, int, int, bytes]]:
    positions, read = dict[str, int](), list[tuple[str, int, int, bytes]]()
    while True:
        found = read_kept_output(record, job, setup=False, ranks=(), start=LogStart(), positions=positions)
        for part in found.parts:
            positions[part.file] = part.end
            read.append((part.file, part.begin, part.missing, bytes(part.content)))
        if found.complete:
            return read


def test_places_and_bytes_are_those_of_the_copies(mine: tuple[ClusterRecord, JobRecord, Bucket]) -> None:
    record, job, bucket = mine
    kept = read_all(record, job)
    assert any(missing for _, _, missing, _ in kept)
    shutil.rmtree(find_attempt_folder(job))
    assert choose_source(record, job) is OutputSource.BUCKET
    assert download_output(job, bucket)
    assert read_all(record, job) == kept
    assert choose_source(record, job) is OutputSource.KEPT, "it is downloaded once"
    assert [one.name for one in find_attempt_folder(job).parent.iterdir()] == ["attempt-0001"]


def test_a_bucket_without_output_has_none(mine: tuple[ClusterRecord, JobRecord, Bucket], tmp_path: Path) -> None:
    record, job, bucket = mine
    shutil.rmtree(find_attempt_folder(job))
    shutil.rmtree(tmp_path / "bucket" / "r" / "logs")
    assert not download_output(job, bucket)
    assert choose_source(record, job) is OutputSource.BUCKET


def test_a_hole_that_does_not_fit_the_content_is_not_made(
    mine: tuple[ClusterRecord, JobRecord, Bucket], tmp_path: Path
) -> None:
    _record, job, bucket = mine
    shutil.rmtree(find_attempt_folder(job))
    bucket.put("r/logs/attempt-0001/1.cut", b"10 9000000000\n")
    assert download_output(job, bucket)
    assert (find_attempt_folder(job) / "1.log").read_bytes() == bytes(range(256)) + b"no end"


def test_more_than_an_engine_keeps_is_refused(
    mine: tuple[ClusterRecord, JobRecord, Bucket], monkeypatch: pytest.MonkeyPatch
) -> None:
    _record, job, bucket = mine
    shutil.rmtree(find_attempt_folder(job))
    monkeypatch.setattr("orchestrator.engine.operations.output_bucket.LogLimits", lambda: LogLimits(attempt_bytes=10))
    with pytest.raises(StorageError):
        download_output(job, bucket)
    assert not find_attempt_folder(job).exists()
