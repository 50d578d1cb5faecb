"""The curves of a run, read from the files in its bucket."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.documents.curves import CurveReader
from orchestrator.errors import StorageError
from orchestrator.storage.bucket import Bucket

TOO_LARGE = 65 * 2**20


def line(step: int) -> str:
    return json.dumps({"step": step, "time": f"2026-01-01T00:00:{step:02d}Z", "loss": 1.0}) + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "run" / "metrics" / "attempt-0001"
    made.mkdir(parents=True)
    return made


def read(reader: CurveReader, root: Path) -> list[int]:
    return [point.step for point in reader.read_points(Bucket.open(f"file://{root}"), "run")]


def test_a_part_that_cannot_be_read_is_an_error_and_is_read_again(folder: Path, tmp_path: Path) -> None:
    reader = CurveReader()
    (folder / "part-00001.jsonl").write_text(line(1))
    bad = folder / "part-00002.jsonl"
    bad.touch()
    os.truncate(bad, TOO_LARGE)
    with pytest.raises(StorageError, match="is not read"):
        read(reader, tmp_path)
    bad.write_text(line(2))
    assert read(reader, tmp_path) == [1, 2]


def test_a_part_is_read_once_and_later_parts_are_added(folder: Path, tmp_path: Path) -> None:
    reader = CurveReader()
    (folder / "part-00001.jsonl").write_text(line(1))
    assert read(reader, tmp_path) == [1]
    (folder / "part-00001.jsonl").write_text(line(9))
    (folder / "part-00002.jsonl").write_text(line(2))
    (folder / "other.txt").write_text(line(3))
    assert read(reader, tmp_path) == [1, 2]


def test_a_run_without_files_has_no_points(tmp_path: Path) -> None:
    assert read(CurveReader(), tmp_path) == []


def test_several_threads_read_many_runs(tmp_path: Path) -> None:
    for number in range(60):  # more than are kept
        folder = tmp_path / f"run-{number}" / "metrics" / "attempt-0001"
        folder.mkdir(parents=True)
        (folder / "part-00001.jsonl").write_text(line(number))
    reader, bucket = CurveReader(), Bucket.open(f"file://{tmp_path}")
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda number: reader.read_points(bucket, f"run-{number}"), list(range(60)) * 3))
    assert [points[0].step for points in found] == list(range(60)) * 3
