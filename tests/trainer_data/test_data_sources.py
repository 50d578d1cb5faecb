"""Input of `prepare`: plain and compressed text, JSON lines, Parquet, data sets of the hub."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pyarrow
import pytest
from data_cases import opened, texts, tokens_of
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from support.s3 import S3Server

from trainer.data import documents
from trainer.data.documents import split_document
from trainer.data.files import source_files
from trainer.data.hub import HubName, parse_hub_name, query_version
from trainer.data.state import DataState
from trainer.errors import DataError


@given(text=st.text(alphabet="aé€\U0001f600\n", max_size=60))
def test_chunks_join_to_the_document_and_split_no_character(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "_PART", 7)
        parts = list(split_document(io.BytesIO(text.encode())))
    assert b"".join(part.data for part in parts) == text.encode()
    assert [part.is_last for part in parts] == [False] * (len(parts) - 1) + [True] * bool(text)
    for part in parts:
        part.data.decode()


def test_kinds_of_files(tmp_path: Path) -> None:
    rows = [{"text": "one"}, {"text": ""}, {"text": None}, {"text": "two\nlines"}]
    lines = "\n".join(json.dumps(row) for row in rows) + "\n\n"
    (tmp_path / "a.jsonl").write_text(lines)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (tmp_path / "c.py").write_text("print()\n")
    (tmp_path / "d.txt.gz").write_bytes(gzip.compress(b"packed"))
    (tmp_path / "e.txt").write_text("")
    assert texts(tmp_path) == [b"one", b"two\nlines"] * 2 + [b"print()\n", b"packed"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "x"}\n{"body": "y"}\n', "a.jsonl, line 2 has no key 'text', its keys are body"),
        ("a.jsonl", b'{"text": 3}\n', "a.jsonl, line 1: the column holds int, not text"),
        ("a.jsonl", b"text\n", "a.jsonl, line 1: not JSON"),
        ("a.txt.gz", gzip.compress(b"x" * 100_000)[:-20], "a.txt.gz cannot be read"),
    ],
)
def test_unreadable_input_is_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        texts(tmp_path)


def test_objects_of_a_bucket_are_streamed(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_files, "_BUFFER", 1000)
    s3.create_bucket("sources-of-tests")
    line = json.dumps({"text": "many words " * 30}).encode() + b"\n"
    s3.client.put_object(Bucket="sources-of-tests", Key="text/a.jsonl.gz", Body=gzip.compress(line * 200, 0))
    assert texts("s3://sources-of-tests/text:*.gz") == [b"many words " * 30] * 200


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.txt.zst"])
def test_a_missing_library_is_named(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    beginning = {"a.parquet": b"PAR1", "a.arrow": b"ARROW1\0\0", "a.txt.zst": b"\x28\xb5\x2f\xfd"}
    (tmp_path / name).write_bytes(beginning[name])
    for module in ("pyarrow", "pyarrow.parquet", "pyarrow.ipc"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DataError, match=rf"{re.escape(name)}: .* need the library `pyarrow`: pip install pyarrow"):
        texts(tmp_path)


def test_a_wrong_table_and_an_absent_column_are_named(tmp_path: Path) -> None:
    parquet.write_table(pyarrow.table({"body": ["one", None, "two"]}), tmp_path / "a.parquet")
    assert texts(tmp_path, "body") == [b"one", b"two"]
    with pytest.raises(DataError, match="has no column 'text'; choose column=NAME: body"):
        texts(tmp_path)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"a\.parquet cannot be read"):
        texts(tmp_path)


def test_hub_names_are_parsed() -> None:
    assert parse_hub_name("hf://owner/name") == HubName(name="owner/name", config="", revision="", split="train")
    assert parse_hub_name("hf://wikitext#wikitext-2-raw-v1@abc:test") == HubName(
        name="wikitext", config="wikitext-2-raw-v1", revision="abc", split="test"
    )
    with pytest.raises(DataError, match=r"must be hf://NAME\[#CONFIG\]"):
        parse_hub_name("hf://#x")


def test_a_folder_of_a_data_set_is_another_version_when_a_file_changes(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.jsonl").write_text("one")
    name = parse_hub_name(f"hf://{tmp_path}")
    versions = [query_version(name), query_version(name)]
    os.utime(tmp_path / "data/a.jsonl", ns=(0, 0))
    versions.append(query_version(name))
    (tmp_path / "data/a.jsonl").rename(tmp_path / "data/b.jsonl")
    versions.append(query_version(name))
    assert [versions.index(version) for version in versions] == [0, 0, 2, 3]
    commit = "0123456789abcdef0123456789abcdef01234567"
    assert query_version(HubName(name="no/such-set", config="", revision=commit, split="train")) == commit


def test_the_cache_is_a_folder_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_DATA_CACHE", "gs://bucket/cache")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DataError, match="ORCH_DATA_CACHE=gs://bucket/cache: must be a folder on this machine"):
        opened("hf://owner/name")


def test_a_data_set_becomes_shards_once_for_each_version_or_its_library_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCH_DATA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    source, notes = f"hf://{tmp_path}/set", list[str]()
    if find_spec("datasets") is None:
        with pytest.raises(DataError, match="pip install datasets"):
            opened(source)
        return
    (tmp_path / "set").mkdir()
    (tmp_path / "set/train.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    first = opened(source, notes=notes)
    assert bytes(tokens_of(first)) == b"one\0two\0"
    assert "becomes token shards" in notes[0]
    message = len(notes)
    assert opened(source, notes=notes).fingerprint == first.fingerprint
    assert len(notes) == message
    (tmp_path / "set/train.jsonl").write_text('{"text": "one"}\n{"text": "six"}\n')
    second = opened(source)
    assert bytes(tokens_of(second)) == b"one\0six\0"
    before, now = (
        DataState(
            step=3,
            seed=0,
            batch=1,
            seq_len=1,
            source=source,
            total_tokens=each.total_tokens,
            vocab=256,
            fingerprint=each.fingerprint,
        )
        for each in (first, second)
    )
    with pytest.raises(DataError, match="corpus fingerprint"):
        now.check_compatible(before, allow_change=False)
    (tmp_path / "set").rename(tmp_path / "away")
    assert opened(source).fingerprint == second.fingerprint, "without a query, the last known version counts"
    with pytest.raises(DataError, match="cannot be read"):
        opened("hf://no/such-set")
