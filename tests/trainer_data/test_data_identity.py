"""Edits are noticed: files are known by their content, which is read once while they stay the same."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from data_cases import opened
from support.s3 import S3Server

from trainer.checkpoint.store import open_store
from trainer.commands.prepare import run
from trainer.data.files import inspection
from trainer.data.fingerprints import drop_content, is_same_corpus
from trainer.data.state import DataState
from trainer.errors import ConfigError, DataError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORCH_DATA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache/files"


def state(fingerprint: str) -> DataState:
    return DataState(step=3, seed=0, batch=1, seq_len=1, source="x", total_tokens=9, vocab=256, fingerprint=fingerprint)


def test_an_edit_of_equal_size_is_another_corpus_also_with_the_same_time(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("some text")
    os.utime(path, ns=(10**18, 10**18))
    before = opened(path).fingerprint
    path.write_text("same size")
    os.utime(path, ns=(10**18, 10**18))
    now = opened(path).fingerprint
    with pytest.raises(DataError, match="corpus fingerprint"):
        state(now).check_compatible(state(before), allow_change=False)
    path.write_text("some text")
    assert opened(path).fingerprint == before, "the content counts, not the time"


def test_a_checkpoint_of_an_earlier_version_continues(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "a.txt").write_text("some text")
    now = opened(tmp_path / "a.txt").fingerprint
    earlier = drop_content(now)
    assert len(earlier) == 32 < len(now)
    assert state(now).check_compatible(state(earlier), allow_change=False) == []
    assert not is_same_corpus("0" + now[1:], now)


def test_files_are_read_once_while_they_stay_the_same(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "_TICK_SECONDS", -60.0)
    (tmp_path / "a.txt").write_text("some text")
    before = opened(tmp_path / "a.txt").fingerprint
    (kept,) = cache.glob("*.json")
    content = json.loads(kept.read_text())
    (identity,) = content
    content[identity]["sha256"] = "0" * 64
    kept.write_text(json.dumps(content))
    assert opened(tmp_path / "a.txt").fingerprint != before, "what is kept is used"
    os.utime(tmp_path / "a.txt")
    assert opened(tmp_path / "a.txt").fingerprint == before
    kept.write_text("{")
    assert opened(tmp_path / "a.txt").fingerprint == before


def test_what_was_just_written_is_not_kept(tmp_path: Path, cache: Path) -> None:
    """Two writes within a tick of the file system's clock leave equal times."""
    (tmp_path / "a.txt").write_text("some text")
    opened(tmp_path / "a.txt")
    assert [json.loads(path.read_text()) for path in cache.glob("*.json")] == [{}]


def test_without_a_usable_cache_the_files_are_read_at_each_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("some text")
    found = set[str]()
    for place in ("gs://bucket/cache", "/proc/none", str(tmp_path / "cache")):
        monkeypatch.setenv("ORCH_DATA_CACHE", place)
        found.add(opened(tmp_path / "a.txt").fingerprint)
    assert len(found) == 1


def test_prepare_notices_an_edit_of_equal_size(tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, tokens = tmp_path / "a.txt", tmp_path / "tokens"
    source.write_text("some text")
    words = [str(source), str(tokens)]
    run(words)
    run(words)
    assert "nothing to do" in capsys.readouterr().out
    source.write_text("same size")
    with pytest.raises(ConfigError, match="already has other tokens"):
        run(words)


def test_shards_of_an_earlier_version_stay_valid(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, tokens = tmp_path / "a.txt", tmp_path / "tokens"
    source.write_text("some text")
    index = tokens / "index.json"
    run([str(source), str(tokens)])
    content = json.loads(index.read_text())
    # The digest that version 0.2.0 wrote for this file: of its name and size, and of the settings.
    content["made_from"] = MADE_FROM
    index.write_text(json.dumps(content))
    run([str(source), str(tokens)])
    assert "an earlier version made these shards" in capsys.readouterr().out
    index.unlink()
    progress = {"made_from": MADE_FROM, "batches": 1, "documents": 1, "shards": content["shards"]}
    (tokens / "prepare-progress.json").write_text(json.dumps(progress))
    run([str(source), str(tokens)])
    assert "began these shards: they are made again" in capsys.readouterr().out
    assert json.loads(index.read_text())["documents"] == 1


MADE_FROM = "028f6db2f490a2959725f6ddbebbfd82"


def test_objects_of_a_bucket_are_known_by_their_tags(s3: S3Server) -> None:
    s3.create_bucket("tags-of-tests")
    store = open_store("s3://tags-of-tests/text")
    store.put("a.txt", b"some text")
    first = opened("s3://tags-of-tests/text").fingerprint
    assert opened("s3://tags-of-tests/text").fingerprint == first
    store.put("a.txt", b"same size")
    second = opened("s3://tags-of-tests/text").fingerprint
    assert drop_content(first) == drop_content(second)
    assert not is_same_corpus(first, second)
    moved = open_store("s3://tags-of-tests/moved")
    moved.put("a.txt", b"some text")
    assert is_same_corpus(first, opened("s3://tags-of-tests/moved").fingerprint), "tags mean nothing elsewhere"
