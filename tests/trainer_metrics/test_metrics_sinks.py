"""Other tools: the contents of TensorBoard and MLflow after a run; a missing library and a broken sink."""

from __future__ import annotations

import json
import math
import struct
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from metrics_cases import logged, record, until

from trainer.errors import ConfigError


def scalars(folder: Path) -> dict[tuple[str, int], float]:
    """Read the event files with the library's own definitions: records of length, checksum, data, checksum."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torch", None)  # the library would load it, for seconds and for nothing
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.record_writer import masked_crc32c

    found: dict[tuple[str, int], float] = {}
    for path in sorted(folder.iterdir()):
        assert ".tfevents." in path.name
        data, at = path.read_bytes(), 0
        while at < len(data):
            size, sum_of_size = struct.unpack_from("<QI", data, at)
            content = data[at + 12 : at + 12 + size]
            assert sum_of_size == masked_crc32c(data[at : at + 8])
            assert struct.unpack_from("<I", data, at + 12 + size)[0] == masked_crc32c(content)
            event: Any = Event.FromString(content)
            assert at > 0 or event.file_version == "brain.Event:2"
            assert event.wall_time == pytest.approx(time.time(), abs=60)
            if event.session_log.status == 1:  # START: TensorBoard forgets what it has from there on
                found = {key: value for key, value in found.items() if key[1] < event.step}
            found |= {(value.tag, event.step): value.simple_value for value in event.summary.value}
            at += 16 + size
    return found


def test_tensorboard_has_the_curves_of_both_attempts_and_no_step_twice(tmp_path: Path) -> None:
    notes: list[str] = []
    for attempt, steps in ((1, (1, 2, 3, 4)), (2, (3, 6))):
        with logged(notes, attempt, tensorboard=str(tmp_path / "board")) as opened:
            for step in steps:
                opened.write(record(step, loss=2.0 / step / attempt))
    found = scalars(tmp_path / "board")
    losses = {step: value for (name, step), value in found.items() if name == "loss"}
    assert losses == pytest.approx({1: 2.0, 2: 1.0, 3: 1 / 3, 6: 1 / 6})
    assert found["tokens_per_s", 6] == pytest.approx(41_000.4)
    assert not {name for name, _ in found} & {"step", "rank", "attempt", "time", "mfu"}
    assert len(list((tmp_path / "board").iterdir())) == 2
    assert notes == []


def test_a_broken_sink_is_a_note_and_the_others_continue(tmp_path: Path) -> None:
    (tmp_path / "board").write_text("in the way")
    notes: list[str] = []
    with logged(notes, tensorboard=str(tmp_path / "board"), file=str(tmp_path / "m.jsonl")) as opened:
        for step in (1, 2, 3):
            opened.write(record(step))
    assert len((tmp_path / "m.jsonl").read_text().splitlines()) == 3
    assert len(notes) == 1
    assert notes[0].startswith(f"note: metrics.tensorboard={tmp_path}/board: metrics are lost: ")


@pytest.mark.parametrize("library", ["wandb", "mlflow"])
def test_a_missing_library_is_reported_before_training(library: str) -> None:
    if find_spec(library):
        pytest.skip(f"{library} is installed")
    with pytest.raises(ConfigError, match=rf"metrics\.{library}=mine needs .*: pip install {library}"):
        logged([], **{library: "mine"})


def test_mlflow_has_one_run_for_all_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="an optional library")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path}/mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    notes: list[str] = []
    client = mlflow.MlflowClient()

    def status() -> str:
        mine = client.get_experiment_by_name("mine")
        return "".join(run.info.status for run in client.search_runs([mine.experiment_id])) if mine else ""

    for attempt, step in ((1, 1), (2, 2)):
        with logged(notes, attempt, mlflow="mine") as opened:
            opened.write(record(step, loss=1.0 / step))
            opened.write(record(step + 10, loss=math.nan))
            opened.flush()
            until(lambda: status() == "RUNNING")
    assert notes == []
    (run,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert [(found.step, found.value) for found in client.get_metric_history(run.info.run_id, "loss")] == [
        (1, 1.0),
        (2, 0.5),
    ]
    assert run.data.params["model.dim"] == "128"
    assert run.info.status == "FINISHED"


def histories(path: Path) -> list[dict[str, Any]]:
    """Read the library's own records from the file of an offline run.

    The format is LevelDB's log (blocks of 32 KiB; records of checksum, length, kind), after 7 bytes.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, begun, found = path.read_bytes(), 7, b"", list[dict[str, Any]]()
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        begun = (b"" if kind in (1, 2) else begun) + data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            item: Any = Record.FromString(begun)
            if item.HasField("history"):
                numbers = {"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in item.history.item}
                found.append(numbers)
    return found


def test_wandb_has_one_run_and_loses_no_repeated_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="an optional library")
    for name, value in {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "WANDB_SILENT": "true"}.items():
        monkeypatch.setenv(name, value)
    notes: list[str] = []
    with logged(notes, wandb="mine") as opened:
        for step in (1, 2, 3, 2, 3):  # as after a crash: the same run there continues
            opened.write(record(step, loss=step / 4))
        opened.write(record(4, loss=math.nan))
    assert notes == []
    (written,) = tmp_path.glob("wandb/offline-run-*-run-1/run-run-1.wandb")
    shown = [(numbers["step"], numbers["loss"]) for numbers in histories(written)]
    assert shown[:5] == [(step, step / 4) for step in (1, 2, 3, 2, 3)]
    assert shown[5][0] == 4
