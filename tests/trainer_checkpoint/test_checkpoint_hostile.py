"""The trainer's readers of a bucket whose writer means harm: a plain error or a skipped checkpoint, nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.hostile_bucket import OPTIONS, change_each_value, is_plain

from trainer.checkpoint import claim
from trainer.checkpoint.epoch import Epoch
from trainer.checkpoint.layout import read_data_state
from trainer.checkpoint.manifest import CorruptCheckpoint, Latest, Manifest, Part, StepFolder
from trainer.checkpoint.pointer import advance_latest, fence_latest, prune_checkpoints
from trainer.checkpoint.reader import find_newest_checkpoint
from trainer.checkpoint.restore_plan import read_model_config
from trainer.checkpoint.snapshot import parse_header
from trainer.checkpoint.store import open_store
from trainer.data.index import FORMAT, Index
from trainer.data.prepare import Progress
from trainer.environment import World
from trainer.errors import TrainerError
from trainer.tcp_team import SingleProcessTeam

FOLDER = StepFolder(7, 1, 1)
DATA = {
    "step": 7, "position": 28, "seed": 0, "batch": 4, "seq_len": 8, "source": "s", "total_tokens": 99, "vocab": 256,
    "fingerprint": "f",
}  # fmt: skip
PART = Part(name="part-00000-000.safetensors", size=3, header=1, sha256="0" * 64)
MANIFEST = json.loads(
    Manifest(
        step=7, run_id="r", attempt=1, world=1, time="2026-11-23T18:30:00Z", weights_only=False, parts=(PART,),
        data=DATA, config={"model.dim": 8}, epoch=1, folder=FOLDER.name,
    ).to_json()
)  # fmt: skip
FILES: dict[str, dict[str, Any]] = {
    "epoch.json": json.loads(Epoch(epoch=1, attempt=1, installation="i", host="h", job="c/1", time="now").to_json()),
    "checkpoints/latest.json": json.loads(Latest(7, FOLDER.manifest, 1).to_json()),
    f"checkpoints/{FOLDER.manifest}": MANIFEST,
}


def write_run(folder: Path) -> None:
    for path, content in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(json.dumps(content))
    (folder / "checkpoints" / FOLDER.name / PART.name).write_bytes(b"abc")


def use_every_reader(folder: Path) -> list[str]:
    """Return the errors and the reports of skipped checkpoints."""
    run, store = open_store(str(folder)), open_store(str(folder / "checkpoints"))
    team, said = SingleProcessTeam(World()), list[str]()
    own = Epoch(epoch=9, attempt=1, installation="", host="h", job="", time="now")
    readers: list[Callable[[], object]] = [
        lambda: claim.check_epoch(run, own),
        lambda: find_newest_checkpoint(store, team, said.append),
        lambda: prune_checkpoints(store, 1, epoch=9),
        lambda: fence_latest(store, 9),
        lambda: advance_latest(store, StepFolder(8, 9, 1)),
    ]
    for reader in readers:
        try:
            reader()
        except (TrainerError, CorruptCheckpoint) as error:
            said.append(str(error))
    return said


@pytest.mark.promise("P42")
@pytest.mark.parametrize("path", FILES)
def test_any_content_is_a_plain_error_or_a_skipped_checkpoint(tmp_path: Path, path: str) -> None:
    bodies = list(change_each_value(FILES[path]))
    if path.endswith("manifest.json"):
        bodies += [json.dumps({**MANIFEST, "data": {**DATA, key: value}}).encode() for key in DATA for value in OPTIONS]
        bodies += [json.dumps({**MANIFEST, "data": {**DATA, "more": 1}}).encode()]
    for body in bodies:
        write_run(tmp_path / "run")
        (tmp_path / "run" / path).write_bytes(body)
        for said in use_every_reader(tmp_path / "run"):
            assert is_plain(said), body[:200]
    assert [one.name for one in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("path", FILES)
def test_a_file_of_a_gigabyte_is_not_read(tmp_path: Path, path: str) -> None:
    write_run(tmp_path)
    with (tmp_path / path).open("r+b") as file:
        file.truncate(1 << 30)
    assert any("1073741824 bytes" in said for said in use_every_reader(tmp_path))


def test_a_data_state_has_the_types_of_one() -> None:
    manifest = Manifest.from_json(json.dumps(MANIFEST).encode(), FOLDER)
    assert read_data_state(manifest) is not None
    for name, value in (("step", "7"), ("seed", 1.5), ("batch", [4]), ("source", 3), ("vocab", 10**30)):
        changed = {**MANIFEST, "data": {**DATA, name: value}}
        with pytest.raises(CorruptCheckpoint):
            read_data_state(Manifest.from_json(json.dumps(changed).encode(), FOLDER))


INDEX = {
    "format": FORMAT, "dtype": "uint16", "vocab": 256, "tokenizer": "bytes", "eod": 0, "documents": 1,
    "shards": [{"name": "shard-00000.bin", "tokens": 4, "sha256": "0" * 64}],
    "source": "s", "made_from": "m", "tokens": 4,
}  # fmt: skip


def test_indexes_headers_and_configurations_of_any_content() -> None:
    for body in change_each_value(INDEX):
        for parse in (Index.from_json, Progress.from_json):
            try:
                parse(body, "gs://b")
            except TrainerError as error:
                assert is_plain(str(error)), body[:200]
        try:
            parse_header(b"\0" * 8 + body)
        except CorruptCheckpoint as error:
            assert is_plain(str(error)), body[:200]
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    for body in change_each_value(entry):
        try:
            parse_header(b"\0" * 8 + b'{"a": ' + body + b"}")
        except CorruptCheckpoint as error:
            assert is_plain(str(error)), body[:200]
    for key in ("model.dim", "model.layers", "model.vocab"):
        for value in OPTIONS:
            try:
                read_model_config({"model.dim": 8, key: value})  # type: ignore[dict-item]  # hostile
            except TrainerError as error:
                assert is_plain(str(error)), value
