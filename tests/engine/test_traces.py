"""The merged trace of several ranks: no event is lost or mixed up, and the times can be compared."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.operations.traces import merge_traces


def trace(folder: Path, rank: int, events: list[dict[str, Any]], name: str = "t.json", **more: Any) -> None:
    place = folder / f"rank-{rank}"
    place.mkdir(exist_ok=True)
    text = json.dumps({"traceEvents": events, **more})
    path = place / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())


def step(at: float, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "name": "step", "pid": 42, "tid": 1, "ts": at, "dur": 5, **more}


def merged(folder: Path) -> list[dict[str, Any]]:
    found = merge_traces(folder, folder / "all.json.gz", print)
    assert found is not None
    events: list[dict[str, Any]] = json.loads(gzip.decompress(found.file.read_bytes()))["traceEvents"]
    return events


def of(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event for event in events if event["name"] == name]


@pytest.mark.promise("P41")
def test_torch_ranks_share_one_clock(tmp_path: Path) -> None:
    trace(tmp_path, 0, [step(100.0)], baseTimeNanoseconds=1_000_000_000_000_000_000)
    trace(tmp_path, 1, [step(40.0)], baseTimeNanoseconds=1_000_000_000_000_070_000)
    times = [event["ts"] for event in of(merged(tmp_path), "step")]
    assert times == [0.0, pytest.approx(10.0)]
    found = merge_traces(tmp_path, tmp_path / "all.json.gz", print)
    assert found is not None and found.one_clock and found.ranks == (0, 1)


def test_without_a_clock_ranks_begin_together(tmp_path: Path) -> None:
    trace(tmp_path, 0, [step(7e9), step(7e9 + 30)], "plugins/profile/x/h.trace.json.gz")
    trace(tmp_path, 1, [step(5.0)], "plugins/profile/x/h.trace.json.gz")
    assert [event["ts"] for event in of(merged(tmp_path), "step")] == [0.0, 30.0, 0.0]
    found = merge_traces(tmp_path, tmp_path / "all.json.gz", print)
    assert found is not None and not found.one_clock


@pytest.mark.promise("P41")
def test_processes_and_flows_of_different_ranks_stay_separate(tmp_path: Path) -> None:
    name = {"ph": "M", "name": "process_name", "pid": 42, "args": {"name": "python"}}
    flow = {"ph": "s", "name": "flow", "id": 3, "pid": "Spans", "tid": 0, "ts": 1}
    for rank in (0, 1, 12):
        trace(tmp_path, rank, [name, step(1), flow])
    events = merged(tmp_path)
    assert len({event["pid"] for event in of(events, "step")}) == 3
    assert {event["id"] for event in of(events, "flow")} == {"0.3", "1.3", "12.3"}
    numbers = {event["pid"]: event["args"]["name"] for event in of(events, "process_name")}
    assert len(numbers) == 6, "each number is one process of one rank"
    assert {numbers[event["pid"]] for event in of(events, "step")} == {f"rank {rank} python" for rank in (0, 1, 12)}
    order = [event["args"]["sort_index"] for event in of(events, "process_sort_index")]
    assert order == sorted(order), "rank 12 stands after rank 1"


def test_other_files_are_ignored_and_damaged_traces_are_named(tmp_path: Path) -> None:
    said: list[str] = []
    whole = tmp_path / "all.json.gz"
    (tmp_path / "rank-0").mkdir()
    (tmp_path / "rank-0" / "memory.json").write_text('{"peak": 3}')
    assert merge_traces(tmp_path, whole, said.append) is None
    assert not whole.exists() and not said
    packed = gzip.compress(b'{"traceEvents": []}' * 99)
    damaged = {
        "cut.json": b'{"traceEvents": [',
        "cut.json.gz": packed[:-9],
        "no.json.gz": b"not packed",
        "bits.json.gz": packed[:12] + b"\xff" * 20 + packed[32:],
        "bytes.json": b"\xff\xfe",
    }
    for name, content in damaged.items():
        (tmp_path / "rank-0" / name).write_bytes(content)
    trace(tmp_path, 1, [step(1.0)])
    found = merge_traces(tmp_path, whole, said.append)
    assert found is not None and found.ranks == (1,), "the others are made one"
    assert {Path(line.partition(" is not a trace: ")[0]).name for line in said} == set(damaged)


def test_a_trace_that_cannot_be_written_leaves_no_partial_file(tmp_path: Path) -> None:
    trace(tmp_path, 0, [step(1.0)])
    (tmp_path / "all.json.gz").mkdir()
    with pytest.raises(OSError, match="all"):
        merge_traces(tmp_path, tmp_path / "all.json.gz", print)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.json.gz", "rank-0"]
