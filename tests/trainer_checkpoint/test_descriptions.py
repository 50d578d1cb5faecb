"""The description of a model and its tokenizer: stored once, named by its digest, joined from model and data."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from checkpoint_toy import ToyEngine, as_world, config_of, data_of, folder_of, manifest_of, resume, save
from hypothesis import given
from hypothesis import strategies as st

from trainer.__main__ import main
from trainer.checkpoint.byte_tokenizer import describe_bytes, is_byte_tokenizer, make_byte_tokenizer
from trainer.checkpoint.description import Description, find_description, store_description
from trainer.checkpoint.manifest import CorruptCheckpoint, Manifest, StepFolder
from trainer.checkpoint.session import Checkpoints
from trainer.checkpoint.store import open_store
from trainer.data.tokens.roles import parse_tokens
from trainer.environment import Run
from trainer.errors import Exit
from trainer.shape.mesh import Mesh
from trainer.team import Team

BYTES = config_of("model.vocab=256", "checkpoint.keep=1")


def named_digest(place: Path, step: int, epoch: int = 1, attempt: int = 1) -> str:
    digest: str = json.loads((place / manifest_of(step, epoch, attempt)).read_text())["description"]
    return digest


def train(place: Path, *steps: int, attempt: int = 1) -> None:
    """Start the run, which resumes where it can, and save these steps."""

    def rank(team: Team) -> None:
        run = Run(run_id="run", attempt=attempt, checkpoint_uri=str(place))
        session = Checkpoints.open(BYTES, run, team, lambda _: None)
        session.resume(ToyEngine(BYTES, Mesh()), data_of(0))
        for step in steps:
            assert session.save(ToyEngine(BYTES, Mesh(), steps=step), data_of(step), wait=True)

    as_world(1, rank)


def test_a_description_is_written_once_and_outlives_the_checkpoints_that_named_it(tmp_path: Path) -> None:
    train(tmp_path, 1, 2)
    digest = describe_bytes().digest
    assert named_digest(tmp_path, 2) == digest
    assert not (tmp_path / folder_of(1)).exists()
    path = tmp_path / f"description-{digest}.json"
    written = path.stat().st_mtime_ns
    train(tmp_path, 3, attempt=2)
    assert named_digest(tmp_path, 3, 2, 2) == digest
    assert path.stat().st_mtime_ns == written
    path.write_text("{}")
    train(tmp_path, 4, attempt=3)
    assert path.read_bytes() == describe_bytes().content, "a damaged one is written again"


@pytest.mark.parametrize("damage", [None, b"", b"{}", b'{"files": {}, "end": null, "turn_ends": []}'])
def test_a_checkpoint_without_its_description_resumes_and_is_exported_with_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: bytes | None
) -> None:
    place = tmp_path / "run"
    train(place, 1)
    path = place / f"description-{named_digest(place, 1)}.json"
    path.unlink()
    if damage is not None:
        path.write_bytes(damage)
    done, _, lines = resume(str(place), BYTES, Mesh(), 1)
    assert (done, len([line for line in lines if line.startswith("note: file://")])) == (1, 1)
    assert main(["export", str(place), str(tmp_path / "hf")]) == 0
    found = "is missing" if damage is None else "does not have its checksum"
    assert f"note: {path.as_uri()} {found}" in capsys.readouterr().out
    assert (tmp_path / "hf" / "tokenizer.json").exists()


@pytest.mark.timeout(60)
def test_an_export_refuses_a_tokenizer_that_is_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path / "run", 1)
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path / "pipe", "a pipe"), (Path("/dev/zero"), "a device")):
        assert main(["export", str(tmp_path / "run"), str(tmp_path / "hf"), f"tokenizer={path}"]) == Exit.CONFIG
        assert f"tokenizer={path}: {path} is {kind}, not a file" in capsys.readouterr().err


def test_the_tokenizer_of_the_data_replaces_that_of_the_model_and_adds_to_its_own(tmp_path: Path) -> None:
    model = Description(files={"config.json": "{}", "tokenizer.json": "1", "tokenizer_config.json": "2"}, end=5)
    same = Description(files={"tokenizer.json": "1", "chat_template.jinja": "3"}, end=6, turn_ends=(7,))
    joined = model.join(same)
    assert (dict(joined.files), joined.end, joined.turn_ends) == ({**model.files, **same.files}, 6, (7,))
    assert joined.join(same) == joined, "a resume changes nothing"
    other = Description(files={"tokenizer.json": "9"})
    assert dict(model.join(other).files) == {"config.json": "{}", "tokenizer.json": "9"}
    store = open_store(str(tmp_path))
    store_description(store, joined)
    assert find_description(store, joined.digest, pytest.fail) == joined


@given(st.recursive(st.none() | st.integers() | st.text(), lambda one: st.lists(one) | st.dictionaries(st.text(), one)))
def test_nonsense_is_no_description_and_no_tokenizer(content: object) -> None:
    text = json.dumps({"files": content, "end": None, "turn_ends": []}).encode()
    try:
        assert all(isinstance(file, str) for file in Description.from_json(text).files.values())
    except CorruptCheckpoint as error:
        assert "\n" not in str(error)
    for shaped in (content, {"model": content}, {"model": {"vocab": content}, "added_tokens": content}):
        parse_tokens(json.dumps(shaped))
        assert not is_byte_tokenizer(json.dumps(shaped))


@pytest.mark.parametrize("digest", [1, "x", "../" * 21 + "a", ["0" * 64]])
def test_a_manifest_names_a_digest_or_none(tmp_path: Path, digest: object) -> None:
    save(str(tmp_path), BYTES, Mesh(), 1, 1)
    content = json.loads((tmp_path / manifest_of(1)).read_text())
    assert Manifest.from_json(json.dumps({**content, "description": ""}).encode(), StepFolder(1)).description == ""
    with pytest.raises(CorruptCheckpoint):
        Manifest.from_json(json.dumps({**content, "description": digest}).encode(), StepFolder(1))


def test_the_tokenizer_of_bytes_is_known_again_also_that_of_earlier_versions() -> None:
    text = make_byte_tokenizer()
    assert is_byte_tokenizer(text)
    content = json.loads(text)
    vocabulary = {"Ā" if token == "\0" else token: number for token, number in content["model"]["vocab"].items()}
    earlier = {**content, "added_tokens": [], "model": {**content["model"], "vocab": vocabulary}}
    assert is_byte_tokenizer(json.dumps(earlier))
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    assert not is_byte_tokenizer(json.dumps(earlier))
