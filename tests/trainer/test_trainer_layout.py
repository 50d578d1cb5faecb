"""The bucket layout as a contract: exact JSON, exact names, and no reader that trips over rubbish."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.checkpoint import pointer
from trainer.checkpoint.layout import (
    Broken,
    Latest,
    Manifest,
    Part,
    manifest_path,
    part_name,
    run_folder,
    step_folder,
    step_of,
)
from trainer.checkpoint.store import open_store
from trainer.data import DataState

EXAMPLE = {
    "format": 1,
    "step": 1200,
    "run_id": "r-20261120-abc",
    "attempt": 2,
    "world": 2,
    "time": "2026-11-20T18:30:00Z",
    "parts": [
        {"name": "part-00000-of-00002.safetensors", "size": 10, "sha256": "a" * 64},
        {"name": "part-00001-of-00002.safetensors", "size": 12, "sha256": "b" * 64},
    ],
    "data": {
        "step": 1200,
        "position": 38400,
        "seed": 7,
        "batch": 32,
        "seq_len": 128,
        "source": "python-stdlib",
        "total_bytes": 1000000,
        "fingerprint": "0123456789abcdef0123456789abcdef",
    },
    "config": {"model.dim": 128, "dtype": "fp32", "compile": False, "optim.lr": 0.003},
}


def test_the_manifest_is_exactly_the_documented_json() -> None:
    manifest = Manifest.from_json(json.dumps(EXAMPLE).encode(), 1200)
    assert manifest.parts[1] == Part("part-00001-of-00002.safetensors", 12, "b" * 64)
    assert manifest.data == DataState(1200, 7, 32, 128, "python-stdlib", 1000000, "0123456789abcdef0123456789abcdef")
    assert json.loads(manifest.to_json()) == EXAMPLE


def test_names_and_pointer_are_exactly_as_documented() -> None:
    assert step_folder(1200) == "step-00001200"
    assert step_folder(1234567890) == "step-1234567890"
    assert part_name(0, 4) == "part-00000-of-00004.safetensors"
    assert manifest_path(1200) == "step-00001200/manifest.json"
    assert json.loads(Latest(1200).to_json()) == {"step": 1200, "manifest": "step-00001200/manifest.json"}
    assert run_folder("s3://bucket/run-1/checkpoints") == "s3://bucket/run-1"
    assert run_folder("file:///somewhere/else/") == "file:///somewhere/else"


@given(st.integers(min_value=0, max_value=10**12))
def test_every_step_survives_its_folder_name(step: int) -> None:
    assert step_of(step_folder(step)) == step


@pytest.mark.parametrize("name", ["step-1200", "step-0000001200", "step-00001200x", "xstep-00001200", "step-", ""])
def test_other_folder_names_are_no_steps(name: str) -> None:
    assert step_of(name) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": 2}, "format"),
        ({"step": 1201}, "step 1201"),
        ({"step": "1200"}, "whole number"),
        ({"world": 3}, "2 parts for 3 ranks"),
        ({"parts": [{"name": "../../x.safetensors", "size": 1, "sha256": "a" * 64}], "world": 1}, "impossible part"),
        ({"parts": [{"name": part_name(0, 1), "size": 1, "sha256": "A" * 64}], "world": 1}, "impossible part"),
        ({"parts": [{"name": part_name(0, 1), "size": -1, "sha256": "a" * 64}], "world": 1}, "whole number"),
        ({"data": {}}, "cannot be read"),
        ({"config": 3}, "cannot be read"),
    ],
)
def test_a_manifest_that_is_not_right_says_why(change: dict[str, object], reason: str) -> None:
    with pytest.raises(Broken, match=reason):
        Manifest.from_json(json.dumps({**EXAMPLE, **change}).encode(), 1200)


JSON = st.recursive(st.none() | st.integers() | st.text(), st.lists).map(lambda value: json.dumps(value).encode())


@given(st.binary() | JSON)
def test_rubbish_is_broken_and_nothing_else(text: bytes) -> None:
    with pytest.raises(Broken):
        Manifest.from_json(text, 1)
    with pytest.raises(Broken):
        Latest.from_json(text)


@given(data=st.data())
def test_a_cut_manifest_is_broken(data: st.DataObject) -> None:
    text = json.dumps(EXAMPLE).encode()
    end = data.draw(st.integers(min_value=0, max_value=len(text) - 1))
    with pytest.raises(Broken):
        Manifest.from_json(text[:end], 1200)


@given(
    complete=st.sets(st.integers(1, 30), min_size=1),
    partial=st.sets(st.integers(1, 30)),
    keep=st.integers(1, 5),
    data=st.data(),
)
def test_pruning_keeps_the_newest_what_latest_names_and_everything_newer(
    tmp_path_factory: pytest.TempPathFactory, complete: set[int], partial: set[int], keep: int, data: st.DataObject
) -> None:
    named = data.draw(st.sampled_from(sorted(complete | partial)))
    place = tmp_path_factory.mktemp("prune")
    store = open_store(str(place), create=True)
    for step in complete | partial:
        store.put(f"{step_folder(step)}/{part_name(0, 1)}", b"part")
        if step in complete:
            store.put(manifest_path(step), b"{}")
    store.put("other/keep.txt", b"")
    store.put("latest.json", Latest(named).to_json())
    removed = pointer.prune(store, keep)
    left = {step for path in place.iterdir() if (step := step_of(path.name)) is not None}
    newer = {step for step in complete | partial if step > named}
    expected = newer | {named} | set(sorted((step for step in complete if step <= named), reverse=True)[:keep])
    assert left == expected
    assert set(removed) == (complete | partial) - expected
    assert (place / "other/keep.txt").exists()


def test_without_a_pointer_nothing_is_pruned(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), create=True)
    store.put(manifest_path(1), b"{}")
    assert pointer.prune(store, 1) == []
    assert (tmp_path / manifest_path(1)).exists()
