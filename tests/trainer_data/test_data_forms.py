"""Forms of files: content decides, then the name; what no reader knows is refused with its kind and what to do."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import random
import re
import resource
import sqlite3
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from data_cases import opened, texts, tokens_of
from pyarrow import parquet
from support.s3 import S3Server

from trainer.checkpoint.store import open_store
from trainer.commands.prepare import run
from trainer.config import DataConfig
from trainer.data.corpus import open_corpus
from trainer.data.files import unpacking
from trainer.errors import DataError

ROWS = [{"id": 1, "text": "one"}, {"text": ""}, {"text": None}, {"text": "two\nlines é"}]
DOCUMENTS = [b"one", "two\nlines é".encode()]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
ARRAY = json.dumps(ROWS, indent=2).encode()


def zstd(data: bytes) -> bytes:
    return bytes(pyarrow.Codec("zstd").compress(data))


def zipped(data: bytes, name: str = "inside.jsonl") -> bytes:
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return found.getvalue()


def arrow(stream: bool) -> bytes:
    table = pyarrow.Table.from_pylist(ROWS)
    found = pyarrow.BufferOutputStream()
    with (pyarrow.ipc.new_stream if stream else pyarrow.ipc.new_file)(found, table.schema) as writer:
        writer.write_table(table)
    return bytes(found.getvalue())


def parquet_file() -> bytes:
    found = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), found)
    return found.getvalue()


def show(value: object) -> str:
    """Return a parameter's part of a test's name; compressed bytes have times in them."""
    return value if isinstance(value, str) else "data"


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": zstd,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zip": zipped,
}


@pytest.mark.parametrize("kind", COMPRESSIONS)
@pytest.mark.parametrize("name", ["x.jsonl", "x", "x.bin"])
def test_compressed_rows_are_read_by_their_content_whatever_the_name(tmp_path: Path, kind: str, name: str) -> None:
    (tmp_path / name).write_bytes(COMPRESSIONS[kind](LINES))
    assert texts(tmp_path) == DOCUMENTS


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.json", ARRAY),
        ("x.json.gz", gzip.compress(ARRAY)),  # the names of C4, Dolma and RedPajama
        ("x.json.gz", gzip.compress(LINES)),
        ("x.txt", ARRAY),
        ("x.parquet", parquet_file()),
        ("x.txt", parquet_file()),
        ("x.parquet.gz", gzip.compress(parquet_file())),
        ("x.arrow", arrow(stream=True)),
        ("x.arrow", arrow(stream=False)),
        ("x.gz", gzip.compress(arrow(stream=False))),
        ("x.gz", gzip.compress(gzip.compress(LINES))),
        ("x.zst.gz", gzip.compress(zstd(LINES))),
        ("x.zip", zipped(zipped(LINES), "a.zip")),
        ("x.jsonl", gzip.compress(LINES[:20]) + gzip.compress(LINES[20:])),  # members of gzip, one after the other
        ("x.zst", zstd(LINES[:20]) + b"\x50\x2a\x4d\x18\x04\0\0\0skip" + zstd(LINES[20:])),
        ("x.jsonl", b"\xef\xbb\xbf" + LINES),
        ("x.jsonl", LINES.decode().encode("utf-16")),
        ("x.json", json.dumps(ROWS, ensure_ascii=False).encode("utf-16")),
        ("x.jsonl", LINES.replace(b"\n", b"\r\n")),
    ],
    ids=show,
)
def test_rows_of_every_form(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    assert texts(tmp_path) == DOCUMENTS


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("x.txt.gz", "plain é\n".encode(), "plain é\n"),  # not compressed in spite of its name
        ("x.txt", "é\U0001f600\n".encode("utf-16"), "é\U0001f600\n"),
        ("x.txt", b"\xfe\xff" + "é".encode("utf-16-be"), "é"),
        ("x.txt", b"\xef\xbb\xbfmarked", "marked"),
        ("x.txt", b"[1] A. Author, [2] Another", "[1] A. Author, [2] Another"),
        ("x.md", b"[link](there) and {braces}", "[link](there) and {braces}"),
        ("x.c", b"{\n  int a = 1;\n}\n", "{\n  int a = 1;\n}\n"),
        ("x.txt", b"PAR1, ORC and ID3 are names of formats", "PAR1, ORC and ID3 are names of formats"),
        ("page.html", b"<!DOCTYPE html><p>text", "<!DOCTYPE html><p>text"),
        ("x.json", b'{\n "text": "the only\\nrow"\n}', "the only\nrow"),
        ("x.txt", ("y" * 65_535 + "é").encode(), "y" * 65_535 + "é"),  # a character on the border of what is looked at
    ],
    ids=show,
)
def test_text_stays_text(tmp_path: Path, name: str, data: bytes, expected: str) -> None:
    (tmp_path / name).write_bytes(data)
    assert texts(tmp_path) == [expected.encode()]


def foreign_tar() -> bytes:
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.txt"), io.BytesIO())
    return found.getvalue()


@pytest.mark.parametrize(
    ("name", "data", "kind", "advice"),
    [
        ("a.txt", b"\x89PNG\r\n\x1a\n" + bytes(30), "a PNG image", "SOURCE:GLOB"),
        ("a.txt", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "a PDF document", "extract its text"),
        ("a.jsonl", pickle.dumps(["text"]), "a Python pickle", "pickles run code"),
        ("a.jsonl.gz", gzip.compress(pickle.dumps(["text"])), "a Python pickle", "pickles run code"),
        ("a.tar", foreign_tar(), "a tar archive", "tar -xf"),
        ("a.tar.gz", gzip.compress(foreign_tar()), "a tar archive", "tar -xf"),
        ("a", Path(sys.executable).read_bytes()[:5000], r"a program \(ELF\)", "SOURCE:GLOB"),
        ("a.parquet", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS", "git lfs pull"),
        ("a.jsonl", b"\n<!DOCTYPE html>\n<html><title>404", "an HTML page", "download the file again"),
        ("a.jsonl", b"<?xml version='1.0'?><Error><Code>NoSuchKey", "error answer of a bucket", "download"),
        ("a.txt", random.Random(1).randbytes(5000), "binary data", "SOURCE:GLOB"),
        ("a.txt", "café crème".encode("latin-1"), "another encoding than UTF-8, by byte 3", "iconv -f WINDOWS-1252"),
        ("a.txt", "text of Windows".encode("utf-16-le"), "UTF-16 without a byte-order mark", "iconv -f UTF-16LE"),
        ("a.docx", zipped(b"<w/>", "[Content_Types].xml"), "an Office file", "SOURCE:GLOB"),
        ("a.pt", zipped(b"\x80\x02", "archive/data.pkl"), "a model of PyTorch", "SOURCE:GLOB"),
    ],
    ids=show,
)
def test_other_files_are_refused_with_their_kind_and_what_to_do(
    tmp_path: Path, name: str, data: bytes, kind: str, advice: str
) -> None:
    (tmp_path / name).write_bytes(data)
    for read in (texts, opened):
        with pytest.raises(DataError) as refused:
            read(tmp_path)
        message = str(refused.value)
        assert name in message
        assert re.search(kind, message), message
        assert re.search(advice, message), message
        assert "\n" not in message


def test_a_database_is_refused_with_its_first_bytes(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "a.db").execute("create table t (x)").connection.close()
    with pytest.raises(DataError, match=r"SQLite database \(it begins with 53 51 4c 69 74 65 .*'SQLite format 3.'\)"):
        opened(tmp_path)


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_a_decompression_bomb_ends_with_file_and_reason(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "_ALWAYS_BYTES", 1 << 20)
    data = b"a line of text\n" * 100_000
    (tmp_path / "bomb.txt").write_bytes(zipped(data, "a.txt") if kind == "zip" else COMPRESSIONS[kind](data))
    with pytest.raises(DataError, match=r"bomb\.txt.*: more than [0-9,]+ bytes come out of its [0-9,]+, as of a deco"):
        texts(tmp_path)


def test_a_bomb_of_one_line_needs_little_memory(tmp_path: Path) -> None:
    """It runs in a process whose memory is limited."""
    (tmp_path / "bomb.jsonl").write_bytes(gzip.compress(b'{"text": "' + b"x" * (200 << 20), 1))
    found = subprocess.run(
        [sys.executable, "-m", "trainer", "prepare", str(tmp_path / "bomb.jsonl"), str(tmp_path / "tokens")],
        capture_output=True,
        check=False,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (600 << 20, 600 << 20)),
    )
    assert (found.returncode, found.stderr.count("\n")) == (3, 1), found.stderr
    assert "bomb.jsonl, line 1: longer than 128 MiB" in found.stderr


def test_files_compressed_too_often_are_refused(tmp_path: Path) -> None:
    data = b"text"
    for _ in range(6):
        data = gzip.compress(data)
    (tmp_path / "a.gz").write_bytes(data)
    with pytest.raises(DataError, match=r"a\.gz looks like a file that is compressed more than 5 times"):
        texts(tmp_path)


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_a_cut_file_is_named(tmp_path: Path, kind: str) -> None:
    data = COMPRESSIONS[kind](os.urandom(5000).hex().encode())
    (tmp_path / "cut").write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match="cut cannot be read"):
        texts(tmp_path)


def test_members_of_an_archive_are_read_in_its_order_without_hidden_ones(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name, data in (("b/two.jsonl", LINES), ("__MACOSX/x", b"\0"), ("b/.x", b"\0"), ("a.txt", b"last")):
            archive.writestr(name, data)
    assert texts(tmp_path) == [*DOCUMENTS, b"last"]


def test_a_run_converts_what_it_cannot_read_in_place_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_DATA_CACHE", str(tmp_path / "cache"))
    (tmp_path / "a.jsonl").write_bytes(LINES)
    notes = list[str]()
    corpus = opened(tmp_path / "a.jsonl", notes=notes)
    assert bytes(tokens_of(corpus)) == b"one\0two\nlines \xc3\xa9\0"
    assert notes[0].startswith(f"converting {tmp_path}/a.jsonl to token shards")
    before = len(notes)
    assert opened(tmp_path / "a.jsonl", notes=notes).fingerprint == corpus.fingerprint
    assert len(notes) == before
    run([str(tmp_path / "a.jsonl"), str(tmp_path / "tokens")])
    assert opened(tmp_path / "tokens").fingerprint == corpus.fingerprint
    with pytest.raises(DataError, match=r"a\.jsonl, line 1 has no key 'body', its keys are id, text: name the key"):
        open_corpus(DataConfig(source=str(tmp_path / "a.jsonl"), column="body"), print)


def test_objects_of_a_bucket_are_read_by_their_content(
    tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCH_DATA_CACHE", str(tmp_path / "cache"))
    s3.create_bucket("forms-of-tests")
    place = "s3://forms-of-tests/text"
    store = open_store(place)
    for name, data in {"a.bin": gzip.compress(LINES), "b.dat": zipped(ARRAY), "c.parquet": parquet_file()}.items():
        store.put(name, data)
    assert texts(place) == DOCUMENTS * 3
    assert bytes(tokens_of(opened(place))) == b"one\0two\nlines \xc3\xa9\0" * 3
    store.put("d.txt", b"\x89PNG\r\n\x1a\n" + bytes(30))
    for read in (texts, opened):
        with pytest.raises(DataError, match=r"d\.txt looks like a PNG image"):
            read(place)
