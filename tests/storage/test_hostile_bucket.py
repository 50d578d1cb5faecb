"""Every reader of a bucket, with a bucket whose writer means harm: a plain error or no effect, never a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.hostile_bucket import OPTIONS, change_each_value, is_plain

from orchestrator.engine.operations.checkpoints import RunLocation, choose_checkpoint, download_checkpoint
from orchestrator.engine.preparation.bucket_record import read_bucket_record
from orchestrator.engine.preparation.record_review import review_record
from orchestrator.errors import OrchError, StorageError
from orchestrator.storage.bucket import Bucket
from orchestrator.storage.checkpoints import find_newest_complete, list_checkpoints
from orchestrator.storage.epochs import Epoch, mark_ended, read_claim
from orchestrator.storage.objects import ObjectInfo
from trainer.checkpoint.manifest import Latest, Manifest, Part, StepFolder

RUN = "run-1"
FOLDER = StepFolder(7, 1, 1)
TASK = {
    "name": "a",
    "resources": {"infra": "local"},
    "run": "true",
    "checkpoint": {"bucket": "gs://bbb"},
    "envs": {"A": "b"},
}
EPOCH = json.loads(
    Epoch(epoch=1, attempt=1, installation="i", host="h", job="c/1", time="2026-11-23T18:30:00Z").to_json()
)
LATEST = json.loads(Latest(7, FOLDER.manifest, 1).to_json())
PART = Part(name="part-00000-000.safetensors", size=3, header=1, sha256="0" * 64)
MANIFEST = json.loads(
    Manifest(
        step=7, run_id=RUN, attempt=1, world=1, time="2026-11-23T18:30:00Z", weights_only=True, parts=(PART,),
        data=None, config={"model.dim": 8}, epoch=1, folder=FOLDER.name,
    ).to_json()
)  # fmt: skip


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    """A bucket with one complete run."""
    made = Bucket.open(f"file://{tmp_path}/bucket")
    made.put(f"{RUN}/task.json", json.dumps(TASK).encode())
    made.put(f"{RUN}/epoch.json", json.dumps(EPOCH).encode())
    made.put(f"{RUN}/checkpoints/latest.json", json.dumps(LATEST).encode())
    made.put(f"{RUN}/checkpoints/{FOLDER.manifest}", json.dumps(MANIFEST).encode())
    made.put(f"{RUN}/checkpoints/{FOLDER.name}/{PART.name}", b"abc")
    return made


def read_everything(bucket: Bucket, tmp_path: Path) -> list[str]:
    """Use every reader; return the errors as they are printed."""
    readers: list[Callable[[], object]] = [
        lambda: review_record(read_bucket_record(bucket.uri, RUN), None).lines(),
        lambda: read_claim(bucket, RUN),
        lambda: mark_ended(bucket, RUN, "c/1", "i"),
        lambda: [str(one) for one in list_checkpoints(bucket, RUN, "checksums")],
        lambda: find_newest_complete(bucket, RUN),
        lambda: download_checkpoint(RunLocation(bucket, RUN), tmp_path / "here", None, lambda _: None),
    ]
    said = []
    for reader in readers:
        try:
            reader()
        except OrchError as error:
            said.append("\n".join(error.lines()))
    return said


@pytest.mark.promise("P42")
@pytest.mark.parametrize(
    ("path", "valid"),
    [
        ("task.json", TASK),
        ("epoch.json", EPOCH),
        ("checkpoints/latest.json", LATEST),
        (f"checkpoints/{FOLDER.manifest}", MANIFEST),
    ],
)
def test_any_content_is_a_plain_error_or_has_no_effect(
    bucket: Bucket, tmp_path: Path, path: str, valid: dict[str, Any]
) -> None:
    bodies = list(change_each_value(valid))
    if path.endswith("manifest.json"):
        part = MANIFEST["parts"][0]
        bodies += [json.dumps({**valid, "parts": [{**part, key: value}]}).encode() for key in part for value in OPTIONS]
        bodies.append(json.dumps({**valid, "parts": [part, part]}).encode())
        bodies += [
            json.dumps({**valid, "format": 1, "parts": [{**part, "name": name}]}).encode()
            for name in ("..", ".", "../x", "/etc/passwd", "manifest.json\x00")
        ]
    for body in bodies:
        bucket.put(f"{RUN}/{path}", body)
        for said in read_everything(bucket, tmp_path):
            assert all(is_plain(line) for line in said.splitlines()), body[:200]
            assert len(said.splitlines()) <= 8, said
    outside = {one.name for one in tmp_path.iterdir()} - {"bucket", "here"}
    assert not outside
    assert {one.name for one in tmp_path.glob("here/*")} <= {"step-00000007"}


@pytest.mark.parametrize(
    "path", ["task.json", "epoch.json", "checkpoints/latest.json", f"checkpoints/{FOLDER.manifest}"]
)
def test_a_file_of_a_gigabyte_is_not_read(bucket: Bucket, tmp_path: Path, path: str) -> None:
    place = tmp_path / "bucket" / RUN / path
    with place.open("r+b") as file:
        file.truncate(1 << 30)  # it takes no space on the disk
    said = "\n".join([*read_everything(bucket, tmp_path), *map(str, list_or_none(bucket))])
    assert "1,073,741,824 bytes" in said or "more than the" in said
    assert "Traceback" not in said


def list_or_none(bucket: Bucket) -> list[object]:
    try:
        return list(list_checkpoints(bucket, RUN))
    except StorageError:
        return []


@pytest.mark.parametrize(
    "path", ["task.json", "epoch.json", "checkpoints/latest.json", f"checkpoints/{FOLDER.manifest}"]
)
def test_a_missing_file_and_a_folder_in_its_place(bucket: Bucket, tmp_path: Path, path: str) -> None:
    bucket.delete(f"{RUN}/{path}")
    assert all("error[fault]" not in said for said in read_everything(bucket, tmp_path))
    bucket.put(f"{RUN}/{path}/x", b"")
    assert all("error[fault]" not in said for said in read_everything(bucket, tmp_path))


@pytest.mark.parametrize("number", ["²", "٣", "99999999999999999999", "-1", "1e9", "0x1"])
def test_odd_numbers_of_attempts_are_none(bucket: Bucket, number: str) -> None:
    bucket.put(f"{RUN}/metrics/attempt-{number}/part-00001.jsonl", b"")
    assert read_bucket_record(bucket.uri, RUN).attempt == 1


def test_a_manifest_that_changes_between_two_reads_is_not_downloaded(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # of abc
    whole = {**MANIFEST, "parts": [{**MANIFEST["parts"][0], "sha256": digest}]}
    place = f"{RUN}/checkpoints/{FOLDER.manifest}"
    bucket.put(place, json.dumps(whole).encode())
    chosen = choose_checkpoint(RunLocation(bucket, RUN), None)
    bucket.put(place, json.dumps({**whole, "config": {"model.dim": 9}}).encode())
    monkeypatch.setattr("orchestrator.engine.operations.checkpoints.choose_checkpoint", lambda *_: chosen)
    with pytest.raises(StorageError, match="changed while the checkpoint was read"):
        download_checkpoint(RunLocation(bucket, RUN), tmp_path / "here", None, lambda _: None)
    assert not list(tmp_path.glob("here/*/*"))


def test_an_object_that_grows_while_it_is_read_ends_at_its_bound(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The size in the answer's head is not believed either."""
    bucket.put("grows", b"0123456789" * 100_000)
    lie = ObjectInfo.__init__

    def small(self: ObjectInfo, **values: Any) -> None:
        lie(self, **{**values, "size": 1})

    monkeypatch.setattr(ObjectInfo, "__init__", small)
    with pytest.raises(StorageError, match="more than the 10 bytes"):
        bucket.get_bounded("grows", 10)


def test_a_link_leads_no_reader_or_writer_out_of_a_folder_bucket(bucket: Bucket, tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir()
    (private / "key").write_text("secret")
    (tmp_path / "bucket" / "run-2").symlink_to(private)
    (tmp_path / "bucket" / "link").symlink_to(tmp_path / "bucket" / RUN)
    for act in (
        lambda: bucket.get("run-2/key"),
        lambda: bucket.put("run-2/key", b"x"),
        lambda: bucket.put("run-2/logs/x", b"x"),
        lambda: bucket.put_if_absent("run-2/new", b"x"),
        lambda: bucket.delete("run-2/key"),
    ):
        with pytest.raises(StorageError, match="is a link"):
            act()
    with pytest.raises(StorageError, match="is a link"):
        bucket.list_dir("run-2/logs")
    with pytest.raises(StorageError, match="is a link"):
        list(bucket.list("run-2/logs"))
    assert [path.name for path in private.iterdir()] == ["key"] and (private / "key").read_text() == "secret"
    assert bucket.list_dir().folders == (RUN,)
    with pytest.raises(StorageError, match="is a link"):
        bucket.get("link/task.json")
