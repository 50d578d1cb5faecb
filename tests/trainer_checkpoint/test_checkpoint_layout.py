"""The bucket layout as a contract: exact JSON, exact names, and readers that survive any input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.checkpoint import pointer
from trainer.checkpoint.layout import (
    format_region_key,
    parse_manifest,
    parse_region_key,
    part_name,
    read_data_state,
    run_folder,
    split_uri,
)
from trainer.checkpoint.manifest import CorruptCheckpoint, Latest, Part, StepFolder, order_step_folders
from trainer.checkpoint.snapshot import HostBuffer, group_pieces, parse_header
from trainer.checkpoint.store import open_store
from trainer.data.state import DataState
from trainer.errors import StorageError
from trainer.shape.box import Box, TensorRegion

EXAMPLE = {
    "format": 2,
    "step": 1200,
    "run_id": "r-20261120-abc",
    "attempt": 2,
    "epoch": 4,
    "world": 3,
    "time": "2026-11-20T18:30:00Z",
    "weights_only": False,
    "parts": [
        {"name": "part-00000-000.safetensors", "size": 10, "header": 8, "sha256": "a" * 64},
        {"name": "part-00002-001.safetensors", "size": 12, "header": 8, "sha256": "b" * 64},
    ],
    "data": {
        "step": 1200,
        "position": 38400,
        "seed": 7,
        "batch": 32,
        "seq_len": 128,
        "source": "python-stdlib",
        "total_tokens": 1000000,
        "vocab": 256,
        "fingerprint": "0123456789abcdef0123456789abcdef",
    },
    "eval_loss": 2.5,
    "config": {"model.dim": 128, "dtype": "fp32", "compile": False, "optim.lr": 0.003},
}


def test_the_manifest_is_exactly_the_documented_json() -> None:
    manifest = parse_manifest(json.dumps(EXAMPLE).encode(), StepFolder(1200))
    assert manifest.parts[1] == Part(name="part-00002-001.safetensors", size=12, header=8, sha256="b" * 64)
    assert read_data_state(manifest) == DataState(
        step=1200,
        seed=7,
        batch=32,
        seq_len=128,
        source="python-stdlib",
        total_tokens=1000000,
        vocab=256,
        fingerprint="0123456789abcdef0123456789abcdef",
    )
    assert json.loads(manifest.to_json()) == EXAMPLE
    imported = {**EXAMPLE, "step": 0, "weights_only": True, "data": None}
    assert json.loads(parse_manifest(json.dumps(imported).encode(), StepFolder(0)).to_json()) == imported


def test_names_and_pointer_are_exactly_as_documented() -> None:
    assert StepFolder(1200).name == "step-00001200"
    assert StepFolder(1234567890).name == "step-1234567890"
    assert StepFolder(1200, 2, 3).name == "step-00001200-e0002-a0003"
    assert part_name(3, 0) == "part-00003-000.safetensors"
    path = "step-00001200-e0002-a0003/manifest.json"
    assert StepFolder(1200, 2, 3).manifest == path
    assert json.loads(Latest(1200, path, 2).to_json()) == {"step": 1200, "manifest": path, "epoch": 2}
    assert Latest.from_json(b'{"step": 7, "manifest": "step-00000007/manifest.json"}') == Latest(
        7, StepFolder(7).manifest
    ), "as earlier versions of orch wrote it"
    assert run_folder("s3://bucket/run-1/checkpoints") == "s3://bucket/run-1"
    assert run_folder("file:///somewhere/else/") == "file:///somewhere/else"
    assert split_uri("gs://b/r/checkpoints/step-00001200/") == ("gs://b/r/checkpoints", 1200)
    assert split_uri("gs://b/r/checkpoints/step-00001200-e0002-a0003") == ("gs://b/r/checkpoints", 1200)
    assert split_uri("gs://b/r/checkpoints") == ("gs://b/r/checkpoints", None)
    region = TensorRegion("model/blocks.0.ffn.up.weight", (128, 64), Box((0, 32), (64, 32)))
    assert format_region_key(region) == "model/blocks.0.ffn.up.weight[0:64,32:64]of[128,64]"
    assert format_region_key(TensorRegion("model/norm.weight", (64,), Box((0,), (64,)))) == "model/norm.weight"


@given(*3 * [st.integers(min_value=0, max_value=10**12)])
def test_every_step_survives_its_folder_name(step: int, epoch: int, attempt: int) -> None:
    folder = StepFolder(step, epoch, attempt if epoch else 0)
    assert StepFolder.parse(folder.name) == folder


_OTHERS = ["step-1200", "step-0000001200", "step-00001200x", "xstep-00001200", "step-", "", "step-00001200-e0002"]


@pytest.mark.parametrize("name", [*_OTHERS, "step-00001200-e0000-a0001", "step-00001200-e00001-a0001"])
def test_other_folder_names_are_no_steps(name: str) -> None:
    assert StepFolder.parse(name) is None


def test_of_what_other_epochs_wrote_only_what_latest_named_is_the_newest() -> None:
    early, mine, late = StepFolder(7, 1, 1), StepFolder(7, 2, 2), StepFolder(9, 1, 1)
    plain = StepFolder(8)
    names = [one.name for one in (mine, late, early, plain)]
    unnamed = "latest.json never named it"
    assert order_step_folders([*names, "x"], Latest(7, mine.manifest, 2)) == [
        (late, unnamed),
        (plain, ""),
        (mine, ""),
        (early, ""),
    ]
    assert order_step_folders(names, Latest(7, early.manifest, 1))[2:] == [(early, ""), (mine, "")]
    assert [refusal for _, refusal in order_step_folders(names, None)] == [""] * 4, "a copy of single checkpoints"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": "2"}, "format"),
        ({"step": 1201}, "step 1201"),
        ({"step": "1200"}, "whole number"),
        ({"parts": []}, "no parts"),
        ({"parts": [{"name": "../../x.safetensors", "size": 1, "header": 1, "sha256": "a" * 64}]}, "impossible part"),
        ({"parts": [{"name": part_name(0, 1), "size": 1, "header": 1, "sha256": "A" * 64}]}, "impossible part"),
        ({"parts": [{"name": part_name(0, 1), "size": 1, "header": 2, "sha256": "a" * 64}]}, "impossible part"),
        ({"parts": [{"name": part_name(0, 1), "size": -1, "header": 0, "sha256": "a" * 64}]}, "whole number"),
        ({"data": {}}, "cannot be read"),
        ({"config": 3}, "cannot be read"),
    ],
)
def test_invalid_manifest_is_refused_with_a_reason(change: dict[str, object], reason: str) -> None:
    with pytest.raises(CorruptCheckpoint, match=reason):
        parse_manifest(json.dumps({**EXAMPLE, **change}).encode(), StepFolder(1200))


@pytest.mark.parametrize(
    ("number", "who"),
    [
        (1, "only the trainer of orch 0.1.0 reads"),
        (3, "an own program wrote"),
        (4, "a newer trainer wrote"),
    ],
)
def test_another_format_is_refused_and_never_skipped(number: int, who: str) -> None:
    with pytest.raises(StorageError, match=f"checkpoint 1200 is of format {number}, which {who}.*; .* format 2"):
        parse_manifest(json.dumps({**EXAMPLE, "format": number}).encode(), StepFolder(1200))


JSON = st.recursive(st.none() | st.integers() | st.text(), st.lists).map(lambda value: json.dumps(value).encode())


@given(st.binary() | JSON)
def test_random_bytes_are_a_corrupt_manifest_and_nothing_else(text: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        parse_manifest(text, StepFolder(1))
    with pytest.raises(CorruptCheckpoint):
        Latest.from_json(text)
    with pytest.raises(CorruptCheckpoint):
        parse_header(b"12345678" + text)


@given(data=st.data())
def test_truncated_manifest_is_corrupt(data: st.DataObject) -> None:
    text = json.dumps(EXAMPLE).encode()
    end = data.draw(st.integers(min_value=0, max_value=len(text) - 1))
    with pytest.raises(CorruptCheckpoint):
        parse_manifest(text[:end], StepFolder(1200))


@st.composite
def regions(draw: st.DrawFn) -> TensorRegion:
    shape = tuple(draw(st.lists(st.integers(1, 6), max_size=3)))
    low = tuple(draw(st.integers(0, count - 1)) for count in shape)
    extent = tuple(draw(st.integers(1, count - at)) for count, at in zip(shape, low, strict=True))
    name = draw(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12))
    return TensorRegion(f"model/{name}", shape, Box(low, extent))


@given(regions())
def test_every_region_survives_its_key(piece: TensorRegion) -> None:
    if "]of[" not in piece.name and "\n" not in piece.name:
        assert parse_region_key(format_region_key(piece), piece.box.extent) == piece


@pytest.mark.parametrize(
    ("key", "extent"),
    [("a[0:2]of[4]", (3,)), ("a[2:6]of[4]", (4,)), ("a[0:2,0:2]of[4]", (2, 2)), ("a[0:2]of[4]", (2, 1))],
)
def test_key_that_contradicts_its_shape_is_corrupt(key: str, extent: tuple[int, ...]) -> None:
    with pytest.raises(CorruptCheckpoint):
        parse_region_key(key, extent)


@settings(max_examples=60)
@given(st.lists(regions(), max_size=6, unique_by=format_region_key), st.integers(1, 400))
def test_the_library_reads_back_every_bit_of_the_parts(pieces: list[TensorRegion], limit: int) -> None:
    buffer = HostBuffer(pieces, limit)
    assert list(buffer.views) == pieces
    for number, view in enumerate(buffer.views.values()):
        view[...] = np.random.default_rng(number).standard_normal(view.shape, np.float32)
    found: dict[str, np.ndarray] = {}
    for part in buffer.parts:
        assert sum(piece.bytes for piece in part.views) <= limit or len(part.views) == 1
        found |= safetensors.numpy.load(bytes(part.data))
        assert [entry.key for entry in parse_header(part.data[: part.header])] == [
            format_region_key(piece) for piece in part.views
        ]
    assert found.keys() == {format_region_key(piece) for piece in pieces}
    for piece, view in buffer.views.items():
        np.testing.assert_array_equal(found[format_region_key(piece)], view)


def test_region_larger_than_a_part_has_its_own_part() -> None:
    pieces = [
        TensorRegion(f"model/{name}", (size,), Box((0,), (size,))) for name, size in (("a", 1), ("b", 50), ("c", 1))
    ]
    assert [[piece.name for piece in group] for group in group_pieces(pieces, 100)] == [
        ["model/a"],
        ["model/b"],
        ["model/c"],
    ]


@settings(max_examples=50)
@given(
    complete=st.sets(st.integers(1, 30), min_size=1),
    partial=st.sets(st.integers(1, 30)),
    keep=st.integers(1, 5),
    every=st.sampled_from([0, 0, 1, 4, 10]),
    data=st.data(),
)
def test_pruning_keeps_the_newest_the_multiples_what_latest_names_and_everything_newer(
    tmp_path_factory: pytest.TempPathFactory,
    complete: set[int],
    partial: set[int],
    keep: int,
    every: int,
    data: st.DataObject,
) -> None:
    named = data.draw(st.sampled_from(sorted(complete | partial)))
    place = tmp_path_factory.mktemp("prune")
    store = open_store(str(place), create=True)
    for step in complete | partial | {0}:
        folder = place / StepFolder(step).name
        folder.mkdir()
        (folder / part_name(0, 1)).touch()
        if step in complete | {0}:
            (folder / "manifest.json").touch()
    (place / "other").mkdir()
    (place / "other/keep.txt").touch()
    (place / "latest.json").write_bytes(Latest(named, StepFolder(named).manifest).to_json())
    removed = pointer.prune_checkpoints(store, keep, every)
    left = {one.step for path in place.iterdir() if (one := StepFolder.parse(path.name)) is not None}
    newer = {step for step in complete | partial if step > named}
    expected = newer | {named, 0} | set(sorted((step for step in complete if step <= named), reverse=True)[:keep])
    expected |= {step for step in complete if every and step % every == 0}
    assert left == expected
    assert set(removed) == {StepFolder(step).name for step in (complete | partial) - expected}
    assert (place / "other/keep.txt").exists()


def test_leftovers_of_killed_writers_are_removed_with_their_folder(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), create=True)
    store.put(StepFolder(5).manifest, b"{}")
    store.put("latest.json", Latest(5, StepFolder(5).manifest).to_json())
    for step, name in ((1, ".part-00000-000.safetensors.77.tmp"), (2, "manifest.json#1"), (3, "notes of a person")):
        (tmp_path / StepFolder(step).name).mkdir()
        (tmp_path / StepFolder(step).name / name).touch()
    (tmp_path / StepFolder(3).name / "notes of a person").rename(tmp_path / StepFolder(3).name / ".notes")
    pointer.prune_checkpoints(store, 1)
    assert sorted(store.list_folders()) == [StepFolder(3).name, StepFolder(5).name], "only what writers leave goes"


def test_without_a_pointer_nothing_is_pruned(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), create=True)
    store.put(StepFolder(1).manifest, b"{}")
    assert pointer.prune_checkpoints(store, 1) == []
    assert (tmp_path / StepFolder(1).manifest).exists()
