"""The corpus: windows over many files as over one file, and clear errors when files are missing."""

from __future__ import annotations

import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from data_cases import opened, tokens_of
from hypothesis import given
from hypothesis import strategies as st
from support.s3 import S3Server

from trainer.config import DataConfig
from trainer.data import readers
from trainer.data.corpus import Corpus, open_corpus
from trainer.data.fingerprints import is_same_corpus
from trainer.errors import DataError, StorageError


@pytest.mark.promise("P33")
@given(
    contents=st.lists(st.text("ab é\n", max_size=40).map(str.encode), min_size=1, max_size=6).filter(any),
    data=st.data(),
)
def test_windows_equal_those_of_the_concatenated_files(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("files")
    for number, content in enumerate(contents):
        (folder / f"{number}.txt").write_bytes(content)
    whole = b"".join(contents)
    corpus = opened(folder)
    assert (corpus.total_tokens, corpus.vocab) == (len(whole), 256)
    length = data.draw(st.integers(0, len(whole)))
    starts = data.draw(st.lists(st.integers(0, len(whole) - length), min_size=1, max_size=4))
    rows = corpus.read(np.array(starts, dtype=np.int64), length)
    assert [bytes(row) for row in rows] == [whole[start : start + length] for start in starts]


def test_folders_are_read_in_order_of_names_without_hidden_files(tmp_path: Path) -> None:
    for name, text in {"b.txt": "2", "a/z.txt": "1", "c.md": "3", ".git/x.txt": "hidden", ".y.txt": "hidden"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert text_of(opened(tmp_path)) == b"123"
    assert text_of(opened(f"{tmp_path}:*.txt")) == b"12"
    assert text_of(opened(f"{tmp_path}:**/*.txt")) == b"12"
    assert text_of(opened(f"file://{tmp_path}:a/*")) == b"1"
    assert text_of(opened(f"file://{tmp_path}")) == b"123"
    assert text_of(opened(f"{tmp_path}/b.txt")) == b"2"


def test_a_path_with_a_colon_is_taken_literally(tmp_path: Path) -> None:
    (tmp_path / "odd:name").write_text("x")
    assert text_of(opened(f"{tmp_path}/odd:name")) == b"x"


def test_the_fingerprint_follows_names_and_sizes(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("12")
    (tmp_path / "b").write_text("3")
    before = opened(tmp_path).fingerprint
    assert opened(tmp_path).fingerprint == before
    (tmp_path / "b").write_text("34")
    longer = opened(tmp_path).fingerprint
    (tmp_path / "b").rename(tmp_path / "c")
    renamed = opened(tmp_path).fingerprint
    assert len({before, longer, renamed}) == 3


def test_the_standard_library_is_read_in_place() -> None:
    corpus = opened("python-stdlib")
    assert corpus.total_tokens > 5_000_000
    first = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[0]
    assert first.read_bytes()[:50] in bytes(corpus.read(np.array([0]), 200_000)[0])
    assert opened("python-stdlib").fingerprint == corpus.fingerprint


@pytest.mark.parametrize("source", ["/no/such/folder", "/no/such/folder:*.txt"])
def test_a_missing_place_is_named(source: str) -> None:
    with pytest.raises(DataError, match="/no/such/folder: no such file or folder"):
        opened(source)


@pytest.mark.parametrize("source", ["", ":*.txt", "file://"])
def test_an_empty_place_does_not_mean_the_current_folder(source: str) -> None:
    with pytest.raises(DataError, match="names no place: give a path"):
        opened(source)


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(DataError, match=r"data=http://host/x: expected a path or an s3://, gs:// or hf:// address"):
        opened("http://host/x")


def test_a_pattern_that_matches_nothing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file here matches"):
        opened(f"{tmp_path}:*.txt")


def test_a_file_that_shrinks_during_the_run_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100)
    corpus = opened(tmp_path)
    (tmp_path / "a").write_bytes(b"x" * 10)
    with pytest.raises(DataError, match="became shorter"):
        corpus.read(np.array([50]), 20)


def test_an_index_of_another_program_is_json_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text('{"shards": []}')
    with pytest.raises(DataError, match=r"index\.json, line 1 has no key 'text', its keys are shards: name the key"):
        opened(tmp_path)
    as_text = open_corpus(DataConfig(source=str(tmp_path), column=""), print)
    assert text_of(as_text) == b'{"shards": []}'


def test_text_with_a_tokenizer_names_the_prepare_command(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x" * 100)
    with pytest.raises(DataError) as refused:
        opened(f"{tmp_path}:*.txt", "/my/tokenizer.json")
    assert f"python -m trainer prepare '{tmp_path}:*.txt' FOLDER tokenizer=/my/tokenizer.json" in str(refused.value)
    assert opened(f"{tmp_path}:*.txt", "bytes").vocab == 256


@pytest.mark.promise("P33")
@pytest.mark.parametrize("keep", [True, False])
def test_a_bucket_gives_the_same_corpus_as_the_files(
    s3: S3Server, text_folder: Path, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    """Read by several threads in parallel. keep: the corpus is small enough to be kept in memory as it is read."""
    if not keep:
        monkeypatch.setattr(readers, "_KEPT_WHOLE", 0)
    monkeypatch.setattr(readers, "_BLOCK", 10_000)
    bucket = f"corpus-of-tests-{keep}".lower()
    s3.create_bucket(bucket)
    for path in text_folder.iterdir():
        s3.client.put_object(Bucket=bucket, Key=f"text/{path.name}", Body=path.read_bytes())
    s3.client.put_object(Bucket=bucket, Key="text/readme.md", Body=b"not this")
    local, remote = opened(text_folder), opened(f"s3://{bucket}/text:*.txt")
    assert remote.total_tokens == local.total_tokens
    assert is_same_corpus(remote.fingerprint, local.fingerprint)
    some = np.random.default_rng(0)
    starts = [some.integers(0, local.total_tokens - 12_000, 12) for _ in range(6)]
    starts[0][:3] = [0, local.total_tokens - 12_000, 30_000]
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(lambda at: remote.read(at, 12_000), starts))
    assert all(np.array_equal(rows, local.read(at, 12_000)) for rows, at in zip(found, starts, strict=True))


def test_a_bucket_without_matching_objects_is_named(s3: S3Server) -> None:
    s3.create_bucket("empty-of-tests")
    s3.client.put_object(Bucket="empty-of-tests", Key="text/readme.md", Body=b"not this")
    with pytest.raises(DataError, match=r"no object here matches \*\.rst"):
        opened("s3://empty-of-tests/text:*.rst")
    with pytest.raises(StorageError, match="no-such-bucket-of-tests"):
        opened("s3://no-such-bucket-of-tests/text:*")


def text_of(corpus: Corpus) -> bytes:
    return bytes(tokens_of(corpus))
