"""The metrics log: nothing is lost in an outage, written twice, overwritten or hidden, and training never waits."""

from __future__ import annotations

import json
import resource
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from lost_answers import relay_that_loses_answers
from metrics_cases import logged, record, until
from support.s3 import S3Server

from trainer.checkpoint.store import Store, open_store
from trainer.errors import StorageError
from trainer.metrics import MetricsLog, StepRecord, log
from trainer.metrics.files import BucketParts, LocalFile


def bucket_log(store: Store, notes: list[str]) -> MetricsLog:
    return MetricsLog([BucketParts(store, 1)], notes.append)


def parts(run: Path) -> list[list[int]]:
    folder = run / "metrics/attempt-0001"
    return [steps(path) for path in sorted(folder.glob("part-*"))]


def steps(file: Path) -> list[int]:
    return [json.loads(line)["step"] for line in file.read_text().splitlines()]


@pytest.mark.promise("P37")
def test_lines_are_kept_in_order_through_an_outage(tmp_path: Path) -> None:
    run, notes = tmp_path / "run", list[str]()
    store = open_store(str(run), create=True)
    (run / "metrics").write_text("in the way")
    with bucket_log(store, notes) as opened:
        opened.write(record(1))
        opened.flush()
        until(lambda: notes)
        opened.write(record(2))
        (run / "metrics").unlink()
    assert "metrics are held back" in notes[0]
    assert [step for part in parts(run) for step in part] == [1, 2]


def test_an_outage_to_the_end_is_an_error_unless_another_came_first(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "run"), create=True)
    (tmp_path / "run/metrics").write_text("in the way")
    with pytest.raises(StorageError, match="metrics"), bucket_log(store, []) as opened:
        opened.write(record(1))
    with pytest.raises(KeyError, match="first"), bucket_log(store, []) as opened:
        opened.write(record(1))
        raise KeyError("first")


def test_parts_of_an_earlier_start_of_the_attempt_are_kept(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), create=True)
    for step in (1, 2):
        with bucket_log(store, []) as opened:
            opened.write(record(step))
    assert parts(tmp_path) == [[1], [2]]


@pytest.mark.promise("P37")
def test_a_part_whose_response_was_lost_is_not_written_again(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write succeeds but is reported as failed; later lines arrive before it is retried."""
    s3.create_bucket("metrics-of-tests")
    with relay_that_loses_answers(s3.url) as relay:
        monkeypatch.setenv("AWS_ENDPOINT_URL", relay.url)
        store, notes = open_store("s3://metrics-of-tests/run"), list[str]()
        with bucket_log(store, notes) as opened:
            relay.lose = True
            opened.write(record(1))
            opened.flush()
            until(lambda: notes)
            assert relay.writes >= 1
            opened.write(record(2))
            relay.lose = False
    found = s3.client.list_objects_v2(Bucket="metrics-of-tests")["Contents"]
    bodies = [s3.client.get_object(Bucket="metrics-of-tests", Key=item["Key"])["Body"].read() for item in found]
    assert [json.loads(line)["step"] for body in bodies for line in body.splitlines()] == [1, 2]
    assert [item["Key"] for item in found] == [f"run/metrics/attempt-0001/part-0000{number}.jsonl" for number in (1, 2)]


def test_a_local_file_that_cannot_be_written_is_reported_before_the_first_step(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"metrics\.file="):
        logged([], file=str(tmp_path / "file/below"))


@pytest.mark.promise("P37")
def test_a_full_disk_leaves_no_partial_line(tmp_path: Path) -> None:
    """A limit on file sizes simulates a full disk."""
    path, notes = tmp_path / "metrics.jsonl", list[str]()
    line = len(record(1).to_json_line())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with logged(notes, file=str(path)) as opened:
        opened.write(record(1))
        until(lambda: steps(path) == [1])
        resource.setrlimit(resource.RLIMIT_FSIZE, (line + line // 2, before[1]))
        try:
            opened.write(record(2))
            until(lambda: notes)
            assert steps(path) == [1]
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        opened.write(record(3))
    assert steps(path) == [1, 2, 3]
    assert len(notes) == 1


class Stuck:
    """A sink whose server does not answer."""

    name, must_keep_all, interval_s = "stuck", False, 0.0

    def __init__(self) -> None:
        self.answers = threading.Event()

    def write(self, records: Sequence[StepRecord]) -> None:
        self.answers.wait(30)

    def close(self) -> None:
        """Do nothing."""


@pytest.mark.promise("P37")
def test_training_never_waits_for_a_sink_and_the_end_waits_briefly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_END_WAIT_S", 0.3)
    stuck, notes = Stuck(), list[str]()
    begun = time.monotonic()
    with MetricsLog([stuck, LocalFile(tmp_path / "m.jsonl")], notes.append) as opened:
        for step in range(1, 1001):
            opened.write(record(step))
        assert time.monotonic() - begun < 5
    assert time.monotonic() - begun < 10
    assert steps(tmp_path / "m.jsonl") == list(range(1, 1001))
    assert notes == ["note: stuck did not accept the last metrics in time"]
    stuck.answers.set()


def test_only_the_first_rank_writes(tmp_path: Path) -> None:
    from trainer.config import Config, MetricsConfig
    from trainer.environment import Run, World
    from trainer.metrics import open_metrics

    config = Config(metrics=MetricsConfig(file=str(tmp_path / "m.jsonl"), tensorboard=str(tmp_path / "t")))
    store = open_store(str(tmp_path / "run"), create=True)
    with open_metrics(config, Run(), World(rank=1, size=2), store, lambda _: None) as opened:
        opened.write(record(1))
    assert [path.name for path in tmp_path.rglob("*")] == ["run"]
