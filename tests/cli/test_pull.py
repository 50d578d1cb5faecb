"""`orch pull`: whole or not at all, verified, resumable, and with words that help when there is nothing."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.s3 import S3Server, s3_server

from orchestrator.catalog.buckets import BucketPlace
from orchestrator.engine.operations import checkpoints as engine
from orchestrator.engine.operations.transfers import list_launch_transfers
from orchestrator.engine.preparation.bucket_locations import save_bucket_location
from orchestrator.engine.preparation.commands import prepare_launch
from orchestrator.errors import StorageError
from orchestrator.plan.desired import Run
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.storage.bucket import Bucket
from orchestrator.task.parse import parse_task
from orchestrator.values import Text

RUN = "run-k3x9q"
Orch = Callable[..., Any]


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(params=["file", "s3"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    if request.param == "file":
        (tmp_path / "bu cket").mkdir()
        return Bucket.open(f"file://{tmp_path}/bu cket")
    server: S3Server = request.getfixturevalue("s3")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    name = f"b{uuid4().hex[:20]}"
    server.create_bucket(name)
    return Bucket.open(f"s3://{name}/runs")


def save(bucket: Bucket, step: int, parts: int = 3) -> dict[str, bytes]:
    """A whole checkpoint, in the layout's own words. Returns its files."""
    folder = f"{RUN}/checkpoints/step-{step:08d}"
    files = {f"part-{rank:05d}-000.safetensors": f"{step} {rank} ".encode() * 9000 for rank in range(parts)}
    listed = [
        {"name": name, "size": len(data), "header": 8, "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
    ]
    manifest = {"format": 2, "step": step, "run_id": RUN, "attempt": 1, "world": parts + 1, "weights_only": False}
    manifest |= {"time": "2026-11-20T18:30:00Z", "parts": listed, "data": None, "config": {}}
    files["manifest.json"] = json.dumps(manifest).encode()
    for name, data in files.items():
        bucket.put(f"{folder}/{name}", data)
    return files


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_newest_complete_checkpoint_is_downloaded_once(orch: Orch, bucket: Bucket, tmp_path: Path) -> None:
    save(bucket, 100)
    files = save(bucket, 200)
    broken = save(bucket, 300)
    bucket.delete(f"{RUN}/checkpoints/step-00000300/part-00001-000.safetensors")
    home = tmp_path / "home"
    said = orch("pull", RUN, str(home), "--bucket", bucket.uri)
    assert said.status == 0, said.err
    assert said.out == f"{home}/step-00000200\n"
    assert content(home / "step-00000200") == files
    assert "skipped step 300: part-00001-000.safetensors is missing" in said.err
    assert f"checkpoint 200 is in {home}/step-00000200; fetched " in said.err
    again = orch("pull", f"{bucket.uri}/{RUN}/checkpoints", str(home), "-o", "json")
    shown = json.loads(again.out)
    assert (shown["step"], shown["fetched"], shown["size"]) == (
        200,
        0,
        sum(map(len, files.values())) - len(files["manifest.json"]),
    )
    assert "nothing: it was here" in again.err
    assert broken
    older = orch("pull", RUN, str(home), "--bucket", bucket.uri, "--step", "100")
    assert older.out == f"{home}/step-00000100\n"


def test_what_an_interrupted_pull_left_is_completed(orch: Orch, bucket: Bucket, tmp_path: Path) -> None:
    files = save(bucket, 200)
    target = tmp_path / "home" / "step-00000200"
    target.mkdir(parents=True)
    names = sorted(files)
    (target / names[1]).write_bytes(files[names[1]])
    (target / names[2]).write_bytes(files[names[2]][:-1] + b"?")  # of the same size, but not the same
    stamp = (target / names[1]).stat().st_mtime_ns
    said = orch("pull", RUN, str(tmp_path / "home"), "--bucket", bucket.uri, "-o", "json")
    assert said.status == 0, said.err
    assert content(target) == files
    assert (target / names[1]).stat().st_mtime_ns == stamp, "what was whole was not fetched again"
    assert json.loads(said.out)["fetched"] == sum(len(files[name]) for name in names if name.startswith("part")) - len(
        files[names[1]]
    )


def test_the_description_of_the_model_comes_along_unless_it_is_damaged(bucket: Bucket, tmp_path: Path) -> None:
    text = b'{"end": 0, "files": {}, "turn_ends": []}'
    digest = hashlib.sha256(text).hexdigest()
    name, run = f"description-{digest}.json", engine.RunLocation(bucket, RUN)
    path = f"{RUN}/checkpoints/step-{100:08d}/manifest.json"
    manifest = {**json.loads(save(bucket, 100)["manifest.json"]), "description": digest}
    bucket.put(path, json.dumps(manifest).encode())
    for stored, downloaded in ((None, False), (b"{}", False), (text, True), (None, True)):
        if stored is not None:
            bucket.put(f"{RUN}/checkpoints/{name}", stored)
        engine.download_checkpoint(run, tmp_path / "pulled", None, lambda _: None)
        assert (tmp_path / "pulled" / name).exists() == downloaded
    assert (tmp_path / "pulled" / name).read_bytes() == text
    bucket.put(path, json.dumps({**manifest, "description": "../x"}).encode())
    with pytest.raises(StorageError, match=r"no checkpoint in .* is complete"):
        engine.download_checkpoint(run, tmp_path / "pulled", None, lambda _: None)


def test_a_damaged_part_is_never_left_behind_and_no_manifest_with_it(
    orch: Orch, bucket: Bucket, tmp_path: Path
) -> None:
    files = save(bucket, 200)
    name = "part-00001-000.safetensors"
    bucket.put(f"{RUN}/checkpoints/step-00000200/{name}", b"x" * len(files[name]))
    said = orch("pull", RUN, str(tmp_path / "home"), "--bucket", bucket.uri)
    assert said.status == 10
    assert f"{name} is damaged" in said.err
    assert "next: take an older one: orch pull RUN --step N" in said.err
    left = content(tmp_path / "home" / "step-00000200")
    assert name not in left
    assert "manifest.json" not in left
    assert not any(path.startswith(".orch-") for path in left)


def test_another_attempts_manifest_goes_before_its_parts_are_replaced(
    orch: Orch, bucket: Bucket, tmp_path: Path
) -> None:
    files = save(bucket, 200)
    target = tmp_path / "home" / "step-00000200"
    target.mkdir(parents=True)
    (target / "manifest.json").write_bytes(b"of another attempt")
    name = "part-00001-000.safetensors"
    bucket.put(f"{RUN}/checkpoints/step-00000200/{name}", b"x" * len(files[name]))
    assert orch("pull", RUN, str(tmp_path / "home"), "--bucket", bucket.uri).status == 10
    assert not (target / "manifest.json").exists()


def test_where_there_is_nothing_the_next_step_is_named(orch: Orch, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    bucket = Bucket.open(f"file://{tmp_path}/b")
    unknown = orch("pull", RUN)
    assert (unknown.status, f"next: orch pull {RUN} --bucket URI" in unknown.err) == (3, True)
    empty = orch("pull", RUN, "--bucket", bucket.uri)
    assert (empty.status, f"next: orch storage ls -r {bucket.uri}" in empty.err) == (3, True)
    save(bucket, 100)
    missing = orch("pull", RUN, "--bucket", bucket.uri, "--step", "7")
    assert (missing.status, "complete ones: steps 100" in missing.err) == (3, True)
    bucket.delete(f"{RUN}/checkpoints/step-00000100/manifest.json")
    unfinished = orch("pull", RUN, "--bucket", bucket.uri)
    assert (unfinished.status, "step 100: unfinished: it has no manifest.json" in unfinished.err) == (10, True)
    for name in ("gs://bbb", "s3://bbb/", "gs://bbb/checkpoints"):
        whole = orch("pull", name)
        at = name.removesuffix("/").removesuffix("/checkpoints")
        assert (whole.status, f"name the run's folder: {at}/RUN_ID" in whole.err) == (2, True)
    for said in (unknown, empty, missing, unfinished):
        assert len(said.err.splitlines()) <= 5
        assert said.out == ""


def test_a_pulled_checkpoint_is_exported_by_the_trainer(orch: Orch, tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    safetensors_numpy = pytest.importorskip("safetensors.numpy")
    weights = _llama(tmp_path / "llama", numpy, safetensors_numpy)
    (tmp_path / "llama" / "generation_config.json").write_text('{"eos_token_id": [1, 4]}')
    place = f"file://{tmp_path}/bucket/{RUN}/checkpoints"
    subprocess.run([sys.executable, "-m", "trainer", "import", str(tmp_path / "llama"), place], check=True)
    said = orch("pull", RUN, str(tmp_path / "home"), "--bucket", f"file://{tmp_path}/bucket", "--export")
    assert said.status == 0, said.err
    assert said.out == f"{tmp_path}/home/step-00000000-llama\n"
    assert "note: no tokenizer.json is written" in said.err
    generation = tmp_path / "home/step-00000000-llama/generation_config.json"
    assert generation.read_text() == '{"eos_token_id": [1, 4]}', "the description came along"
    found = safetensors_numpy.load_file(tmp_path / "home/step-00000000-llama/model.safetensors")
    assert found.keys() == weights.keys()
    assert all(numpy.array_equal(found[name], values) for name, values in weights.items())
    again = orch("pull", RUN, str(tmp_path / "home"), "--bucket", f"file://{tmp_path}/bucket", "--export")
    assert (again.status, "exists already and was not changed" in again.err) == (0, True)


def _llama(folder: Path, numpy: Any, safetensors_numpy: Any) -> dict[str, Any]:
    shapes = {"model.embed_tokens.weight": (16, 8), "model.norm.weight": (8,)}
    block = "model.layers.0"
    shapes |= {f"{block}.{name}.weight": (8,) for name in ("input_layernorm", "post_attention_layernorm")}
    shapes |= {f"{block}.self_attn.{name}_proj.weight": (8, 8) for name in "qkvo"}
    shapes |= {f"{block}.mlp.{name}_proj.weight": (12, 8) for name in ("gate", "up")}
    shapes |= {f"{block}.mlp.down_proj.weight": (8, 12)}
    draw = numpy.random.default_rng(1)
    weights = {name: draw.standard_normal(shape, numpy.float32) for name, shape in shapes.items()}
    folder.mkdir()
    safetensors_numpy.save_file(weights, folder / "model.safetensors")
    settings = {"model_type": "llama", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    settings |= {"num_key_value_heads": 2, "intermediate_size": 12, "vocab_size": 16, "tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(settings))
    return weights


class _Pruned(Bucket):
    """A bucket whose run removes a checkpoint while it is fetched."""

    def read_chunks(self, path: str) -> Iterator[bytes]:
        for info in list(self.list(f"{RUN}/checkpoints/step-00000200")):
            self.delete(info.path)
        return super().read_chunks(path)


def test_a_checkpoint_that_is_pruned_meanwhile_is_reported_as_such(bucket: Bucket, tmp_path: Path) -> None:
    save(bucket, 200)
    location = engine.RunLocation(_Pruned(bucket.address, bucket.backend), RUN)
    with pytest.raises(StorageError, match="checkpoint 200 was removed while it was downloaded") as caught:
        engine.download_checkpoint(location, tmp_path / "home", None, lambda _: None)
    assert "downloads the newest" in caught.value.next_step


class _Unread(Bucket):
    """A bucket of which no part may be fetched."""

    def read_chunks(self, path: str) -> Iterator[bytes]:
        raise AssertionError(path)


def test_what_the_disk_cannot_hold_is_not_begun(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    bucket = Bucket.open(f"file://{tmp_path}/b")
    save(bucket, 200, parts=1)
    folder = tmp_path / "b" / RUN / "checkpoints" / "step-00000200"
    manifest = json.loads((folder / "manifest.json").read_text())
    part, size = folder / manifest["parts"][0]["name"], 8 << 40
    os.truncate(part, size)  # a file of holes
    manifest["parts"][0]["size"] = size
    (folder / "manifest.json").write_text(json.dumps(manifest))
    location = engine.RunLocation(_Unread(bucket.address, bucket.backend), RUN)
    with pytest.raises(StorageError, match=r"checkpoint 200 does not fit into .*: 8,796\.1 GB to download"):
        engine.download_checkpoint(location, tmp_path / "home", None, lambda _: None)


def test_a_download_that_costs_much_needs_consent(
    orch: Orch, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With bounds of a byte and a cent, since no test has 100 GiB."""
    monkeypatch.setattr("orchestrator.engine.operations.transfers._NAMED_FROM", 1)
    monkeypatch.setattr("orchestrator.engine.operations.transfers.CONSENT_FROM", 1e-9)
    save(bucket, 100)
    home = tmp_path / "home"
    said = orch("pull", RUN, str(home), "--bucket", bucket.uri)
    if bucket.address.scheme == "file":
        assert said.status == 0 and "transfer" not in said.err, "nothing leaves this computer"
        return
    assert said.status == 2 and "add --yes" in said.err and "$0.09 per GiB, price of 2026-06-30" in said.err
    assert not list(home.rglob("*.safetensors"))
    said = orch("pull", RUN, str(home), "--bucket", bucket.uri, "--yes")
    assert said.status == 0 and "to this computer: " in said.err and list(home.rglob("*.safetensors"))
    copied = orch("storage", "sync", f"{bucket.uri}/{RUN}", str(tmp_path / "again"))
    assert copied.status == 2 and "add --yes" in copied.err and not (tmp_path / "again").exists()


def test_a_resume_in_another_region_names_the_size_of_its_checkpoint(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if bucket.address.scheme == "file":
        pytest.skip("a folder is in no region")
    monkeypatch.setenv("ORCH_HOME", str(tmp_path / "orch"))
    save(bucket, 100)
    text = f"resources: {{infra: aws/us-west-2, accelerators: H100:8}}\ncheckpoint: {{bucket: {bucket.uri}}}\nrun: x\n"
    ready = prepare_launch(parse_task(text, file="t", env={}).only, cluster=None, after=TeardownPolicy.KEEP)
    assert isinstance(ready.desired, Run) and list_launch_transfers(ready) == ()
    save_bucket_location(bucket.uri, BucketPlace("us-east-1"))
    resumed = replace(ready, desired=replace(ready.desired, run_id=Text.of(RUN), resume_from=Text.of("latest")))
    (found,) = list_launch_transfers(resumed)
    assert found.size == sum(len(f"100 {rank} ") * 9000 for rank in range(3)) and found.dollars is not None
    assert f"the checkpoint from s3://{bucket.address.container} in us-east-1, to us-west-2" in str(found)
