"""The corpus: windows over many files as if they were one, and clear words when they are not there."""

from __future__ import annotations

import sysconfig
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.s3 import S3Server

from trainer.corpus import Corpus, LocalCorpus, open_corpus
from trainer.data import Batches
from trainer.errors import DataError, StorageError
from trainer.order import RowOrder


@given(contents=st.lists(st.binary(max_size=40), min_size=1, max_size=6), data=st.data())
def test_windows_are_those_of_the_files_put_together(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("files")
    for number, content in enumerate(contents):
        (folder / f"{number}.txt").write_bytes(content)
    whole = b"".join(contents)
    corpus = open_corpus(str(folder))
    assert corpus.total == len(whole)
    length = data.draw(st.integers(0, len(whole)))
    starts = data.draw(st.lists(st.integers(0, len(whole) - length), min_size=1, max_size=4))
    rows = corpus.read(np.array(starts, dtype=np.int64), length)
    assert [bytes(row) for row in rows] == [whole[start : start + length] for start in starts]


def test_folders_are_read_in_order_of_names_without_hidden_files(tmp_path: Path) -> None:
    for name, text in {"b.txt": "2", "a/z.txt": "1", "c.md": "3", ".git/x.txt": "hidden", ".y.txt": "hidden"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert whole(open_corpus(str(tmp_path))) == b"123"
    assert whole(open_corpus(f"{tmp_path}:*.txt")) == b"12"
    assert whole(open_corpus(f"{tmp_path}:**/*.txt")) == b"12"
    assert whole(open_corpus(f"file://{tmp_path}:a/*")) == b"1"
    assert whole(open_corpus(f"{tmp_path}/b.txt")) == b"2"


def test_a_path_with_a_colon_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "odd:name").write_text("x")
    assert whole(open_corpus(f"{tmp_path}/odd:name")) == b"x"


def test_the_fingerprint_follows_names_and_sizes(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("12")
    (tmp_path / "b").write_text("3")
    before = open_corpus(str(tmp_path)).fingerprint
    assert open_corpus(str(tmp_path)).fingerprint == before
    (tmp_path / "b").write_text("34")
    longer = open_corpus(str(tmp_path)).fingerprint
    (tmp_path / "b").rename(tmp_path / "c")
    renamed = open_corpus(str(tmp_path)).fingerprint
    assert len({before, longer, renamed}) == 3


def test_the_standard_library_is_read_where_it_lies() -> None:
    corpus = open_corpus("python-stdlib")
    assert isinstance(corpus, LocalCorpus)
    assert corpus.total > 5_000_000
    first = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[0]
    assert first.read_bytes()[:50] in whole_head(corpus, 200_000)
    assert open_corpus("python-stdlib").fingerprint == corpus.fingerprint


@pytest.mark.parametrize("source", ["/no/such/folder", "/no/such/folder:*.txt"])
def test_a_missing_place_is_named(source: str) -> None:
    with pytest.raises(DataError, match="/no/such/folder: no such file or folder"):
        open_corpus(source)


def test_a_pattern_that_matches_nothing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file here matches"):
        open_corpus(f"{tmp_path}:*.txt")


def test_a_file_that_shrinks_during_the_run_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100)
    corpus = open_corpus(str(tmp_path))
    (tmp_path / "a").write_bytes(b"x" * 10)
    with pytest.raises(DataError, match="became shorter"):
        corpus.read(np.array([50]), 20)


def test_an_error_in_the_reading_thread_reaches_the_loop(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 1000)
    corpus = open_corpus(str(tmp_path))
    batches = Batches(corpus, RowOrder(corpus.total, 4, 16, 0), rank=0, ranks=1)
    assert batches.take(0).shape == (4, 17)
    (tmp_path / "a").unlink()
    with pytest.raises(DataError, match="cannot read"):
        for step in (1, 2, 3):
            batches.take(step)
    batches.close()


def test_batches_of_all_ranks_are_the_batch_of_one(corpus: Path) -> None:
    text = open_corpus(str(corpus))
    order = RowOrder(text.total, 8, 32, 5)
    alone = Batches(text, order, 0, 1)
    several = [Batches(text, order, rank, 4) for rank in range(4)]
    for step in (0, 1, 7, 3):  # going back as well: a step needs nothing from the one before
        assert np.array_equal(np.concatenate([b.take(step) for b in several]), alone.take(step))
    for batches in (alone, *several):
        batches.close()


def test_a_bucket_gives_the_same_corpus_as_the_files(
    s3: S3Server, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    s3.create_bucket("corpus-of-tests")
    for path in corpus.iterdir():
        s3.client.put_object(Bucket="corpus-of-tests", Key=f"text/{path.name}", Body=path.read_bytes())
    s3.client.put_object(Bucket="corpus-of-tests", Key="text/readme.md", Body=b"not this")
    local, remote = open_corpus(str(corpus)), open_corpus("s3://corpus-of-tests/text:*.txt")
    assert (remote.total, remote.fingerprint) == (local.total, local.fingerprint)
    starts = np.array([0, 17, local.total - 40, 20_000, 30_000], dtype=np.int64)
    found: list[bool] = []
    thread = threading.Thread(
        target=lambda: found.append(np.array_equal(remote.read(starts, 40), local.read(starts, 40)))
    )
    thread.start()
    thread.join()
    assert found == [True]
    with pytest.raises(DataError, match="no object here matches"):
        open_corpus("s3://corpus-of-tests/text:*.rst")
    with pytest.raises(StorageError, match="cannot be listed"):
        open_corpus("s3://no-such-bucket-of-tests/text")


def whole(corpus: Corpus) -> bytes:
    return whole_head(corpus, corpus.total)


def whole_head(corpus: Corpus, length: int) -> bytes:
    return bytes(corpus.read(np.array([0]), length)[0])
