"""Finding the checkpoint to resume from: only a whole one counts, and every step passed over says why."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from storage_places import Place, make_place

from orchestrator.errors import NotFoundError
from orchestrator.storage.bucket import Bucket
from orchestrator.storage.checkpoints import (
    Checkpoint,
    Skipped,
    find_newest_complete,
    get_task,
    list_checkpoints,
    list_runs,
    put_task,
)
from trainer.checkpoint.layout import parse_manifest
from trainer.checkpoint.manifest import CorruptCheckpoint, StepFolder
from trainer.errors import StorageError

RUN = "run-1"


def test_the_newest_complete_checkpoint_is_found(place: Place) -> None:
    for step in (100, 1200, 99999999, 100000000):
        _save(place.bucket, step)
    found = find_newest_complete(place.bucket, RUN, "checksums")
    assert found.skipped == ()
    assert found.checkpoint is not None
    assert found.checkpoint.step == 100000000
    assert found.checkpoint.uri == f"{place.uri}/run-1/checkpoints/step-100000000"
    assert found.checkpoint.size == 4 * 1000
    assert found.checkpoint.manifest.data == {"position": 7}


def test_a_run_without_checkpoints_has_none(bucket: Bucket) -> None:
    bucket.put("other/checkpoints/step-00000001/manifest.json", b"{}")
    assert find_newest_complete(bucket, RUN).checkpoint is None
    assert find_newest_complete(bucket, RUN).skipped == ()


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"format": 4},
        {"format": "2"},
        {"step": 201},
        {"time": "yesterday"},
        {"world": 0},
        {"parts": []},
        {"parts": [{"name": "../x", "size": 1, "header": 1, "sha256": "0" * 64}]},
        {"config": None},
    ],
)
def test_the_trainer_and_storage_judge_a_manifest_by_one_definition(bucket: Bucket, change: dict[str, object]) -> None:
    content = b"weights"
    part = {"name": "part-00000-000.safetensors", "size": 7, "header": 1, "sha256": hashlib.sha256(content).hexdigest()}
    manifest: dict[str, object] = {"format": 2, "step": 200, "run_id": RUN, "attempt": 1, "world": 1, "data": None}
    manifest |= {"time": "2026-11-20T18:30:00Z", "weights_only": True, "parts": [part], "config": {}, **change}
    text = json.dumps(manifest).encode()
    path = f"{RUN}/checkpoints/step-00000200"
    bucket.put(f"{path}/part-00000-000.safetensors", content)
    bucket.put(f"{path}/manifest.json", text)
    (entry,) = list_checkpoints(bucket, RUN)
    try:
        read = parse_manifest(text, StepFolder(200))
    except (CorruptCheckpoint, StorageError) as error:
        assert isinstance(entry, Skipped)
        assert change
        refused = manifest["format"] == 4  # the trainer's error also says which version reads it
        assert "format 4" in str(error) + entry.reason if refused else entry.reason == str(error)
    else:
        assert isinstance(entry, Checkpoint)
        assert entry.manifest == read
        assert not change


def _no_manifest(bucket: Bucket, path: str) -> None:
    bucket.delete(f"{path}/manifest.json")


def _half_manifest(bucket: Bucket, path: str) -> None:
    bucket.put(f"{path}/manifest.json", bucket.get(f"{path}/manifest.json")[:100])


def _missing_part(bucket: Bucket, path: str) -> None:
    bucket.delete(f"{path}/part-00002-of-00004.safetensors")


def _short_part(bucket: Bucket, path: str) -> None:
    bucket.put(f"{path}/part-00002-of-00004.safetensors", b"2" * 999)


def _damaged_part(bucket: Bucket, path: str) -> None:
    bucket.put(f"{path}/part-00002-of-00004.safetensors", b"2" * 999 + b"3")


def _other_run(bucket: Bucket, path: str) -> None:
    _edit(bucket, path, run_id="run-2")


def _new_format(bucket: Bucket, path: str) -> None:
    _edit(bucket, path, format=4)


def _no_parts(bucket: Bucket, path: str) -> None:
    _edit(bucket, path, parts=[])


def _one_part_short(bucket: Bucket, path: str) -> None:
    _edit(bucket, path, parts=json.loads(bucket.get(f"{path}/manifest.json"))["parts"][:3])


def _escaping_part(bucket: Bucket, path: str) -> None:
    _edit(bucket, path, parts=[{"name": "../x", "size": 1, "sha256": "0" * 64}])


DAMAGES = [
    (_no_manifest, "no manifest.json"),
    (_half_manifest, "cannot be read"),
    (_missing_part, "part-00002-of-00004.safetensors is missing"),
    (_short_part, "999 bytes, not 1000"),
    (_damaged_part, "part-00002-of-00004.safetensors is damaged"),
    (_other_run, "of run run-2"),
    (_new_format, "format"),
    (_no_parts, "parts"),
    (_one_part_short, "3 parts for 4 ranks"),
    (_escaping_part, "name"),
]


@pytest.mark.parametrize(("damage", "reason"), DAMAGES)
def test_an_incomplete_checkpoint_is_skipped_with_its_reason(bucket: Bucket, damage: Any, reason: str) -> None:
    _save(bucket, 100)
    path = _save(bucket, 200)
    damage(bucket, path)
    found = find_newest_complete(bucket, RUN, "checksums")
    assert found.checkpoint is not None
    assert found.checkpoint.step == 100
    assert [(skipped.step, skipped.path) for skipped in found.skipped] == [(200, path)]
    assert reason in found.skipped[0].reason
    kinds = [type(entry) for entry in list_checkpoints(bucket, RUN, "checksums")]
    assert kinds == [Skipped, Checkpoint]


def test_only_checksums_see_a_damage_that_keeps_the_size(bucket: Bucket) -> None:
    _damaged_part(bucket, _save(bucket, 100))
    assert find_newest_complete(bucket, RUN, "sizes").checkpoint is not None
    assert find_newest_complete(bucket, RUN, "checksums").checkpoint is None


def test_folders_that_are_no_steps_are_ignored(bucket: Bucket) -> None:
    _save(bucket, 100)
    for name in (
        "step-1/manifest.json",
        "step-0000009x/manifest.json",
        "step-000000200/x",
        "tmp/manifest.json",
        "latest.json",
    ):
        bucket.put(f"{RUN}/checkpoints/{name}", b"{}")
    assert [entry.step for entry in list_checkpoints(bucket, RUN)] == [100]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    manifest=st.binary(max_size=60)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["step", "parts"]), inner),
    ).map(lambda value: json.dumps(value).encode())
)
def test_no_manifest_however_broken_stops_the_search(request: pytest.FixtureRequest, manifest: bytes) -> None:
    place = make_place("file", request)
    _save(place.bucket, 100)
    place.bucket.put(f"{RUN}/checkpoints/step-00000200/manifest.json", manifest)
    found = find_newest_complete(place.bucket, RUN)
    assert found.checkpoint is not None
    assert found.checkpoint.step == 100
    assert found.skipped[0].step == 200
    place.bucket.delete_all([info.path for info in place.bucket.list()])


def test_a_runs_task_is_kept_once_and_runs_are_listed(bucket: Bucket) -> None:
    assert put_task(bucket, "run-b", b'{"a": 1}') is True
    assert put_task(bucket, "run-b", b"other") is False
    assert get_task(bucket, "run-b", 100) == b'{"a": 1}'
    _save(bucket, 100)
    bucket.put("not-a-run/file", b"")
    bucket.put("file", b"")
    assert list_runs(bucket) == [RUN, "run-b"]


def test_an_unknown_run_is_reported_with_the_command_that_lists_runs(bucket: Bucket) -> None:
    put_task(bucket, "run-b", b"{}")
    with pytest.raises(NotFoundError, match="there is no run run-x") as caught:
        get_task(bucket, "run-x", 100)
    assert caught.value.next_step.endswith(f"orch storage ls {bucket.uri}")


@pytest.mark.slow
def test_what_the_trainer_writes_is_complete_here_and_damage_is_seen_by_both(tmp_path: Path) -> None:
    """The manifest has one definition; the folders' layout is still known to both sides, so a real run must fit it."""
    pytest.importorskip("torch")
    place = f"file://{tmp_path}/bu cket"
    environment = {**os.environ, "ORCH_CHECKPOINT_URI": f"{place}/{RUN}/checkpoints", "ORCH_RUN_ID": RUN}
    argv = [sys.executable, "-m", "trainer", "model=tiny", "steps=4", "batch=2", "seq_len=16", "checkpoint.every=2"]
    words: dict[str, Any] = {"env": environment, "cwd": tmp_path, "capture_output": True, "text": True}
    done = subprocess.run([*argv, f"data={__file__}"], check=False, **words)
    assert done.returncode == 0, done.stderr
    bucket = Bucket.open(place)
    found = find_newest_complete(bucket, RUN, "checksums")
    assert found.checkpoint is not None, found.skipped
    assert (found.checkpoint.step, found.skipped) == (4, ())
    assert json.loads(bucket.get(f"{RUN}/checkpoints/latest.json"))["step"] == 4
    assert list_runs(bucket) == [RUN]
    part = found.checkpoint.manifest.parts[0]
    bucket.put(f"{found.checkpoint.path}/{part.name}", bytes(part.size))
    assert find_newest_complete(bucket, RUN, "sizes").checkpoint is not None
    again = find_newest_complete(bucket, RUN, "checksums")
    assert again.checkpoint is not None
    assert (again.checkpoint.step, [skipped.step for skipped in again.skipped]) == (2, [4])
    resumed = subprocess.run([*argv[:4], "steps=6", *argv[5:], f"data={__file__}"], check=False, **words)
    assert resumed.returncode == 0, resumed.stderr
    assert find_newest_complete(bucket, RUN, "checksums").checkpoint is not None
    assert "skipped checkpoint 4" in resumed.stdout + resumed.stderr


def _save(bucket: Bucket, step: int) -> str:
    """A whole checkpoint of four parts, written by the layout's own words."""
    path = f"{RUN}/checkpoints/step-{step:08d}"
    parts = []
    for rank in range(4):
        name, data = f"part-{rank:05d}-of-00004.safetensors", str(rank).encode() * 1000
        bucket.put(f"{path}/{name}", data)
        parts.append({"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()})
    manifest = {
        "format": 1,
        "step": step,
        "run_id": RUN,
        "attempt": 1,
        "world": 4,
        "time": "2026-11-20T18:30:00Z",
        "parts": parts,
        "data": {"position": 7},
        "config": {"steps": 10},
        "later-field": "ignored",
    }
    assert bucket.put_if_absent(f"{path}/manifest.json", json.dumps(manifest).encode())
    pointer = {"step": step, "manifest": f"step-{step:08d}/manifest.json"}
    bucket.put(f"{RUN}/checkpoints/latest.json", json.dumps(pointer).encode())
    return path


def _edit(bucket: Bucket, path: str, **changes: object) -> None:
    manifest = json.loads(bucket.get(f"{path}/manifest.json"))
    bucket.put(f"{path}/manifest.json", json.dumps(manifest | changes).encode())
