"""Rows: bad ones are counted, shown and skipped up to a number; arrays are parsed as they come."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow
import pytest
from data_cases import texts
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from trainer.commands.prepare import run
from trainer.data import rows
from trainer.data.documents import open_documents
from trainer.data.index import INDEX_NAME
from trainer.errors import DataError

BAD = b'{"text": "a"}\nnot json\n{"text": "b"}\n{"body": 1}\n{"text": 3}\n{"text": "\xff"}\n{"text": "c"}\n'


def test_bad_rows_are_shown_with_file_and_line_and_skipped_up_to_a_number(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(BAD)
    for most in (0, 3):
        with pytest.raises(DataError) as refused:
            list(open_documents(str(tmp_path), "text", max_bad=most).read())
        message = str(refused.value)
        assert all(f"a.jsonl, line {number}" in message for number in (2, 4, 5))
        assert f"max_bad={most} allows fewer" in message
        assert "\n" not in message
    reader = open_documents(str(tmp_path), "text", max_bad=4)
    for _ in range(2):  # the same each time
        assert [text.data for text in reader.read()] == [b"a", b"b", b"c"]
        assert reader.bad.count == 4
    assert "line 6" not in reader.bad.describe()


def test_one_bad_row_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "a"}\n{"text": \n')
    with pytest.raises(DataError, match=r"^a\.jsonl, line 2: not JSON: .*; max_bad=1 \(data\.max_bad in a run\) skips"):
        texts(tmp_path)


def test_the_same_problem_is_explained_once(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"body": 1}\n' * 9)
    with pytest.raises(DataError) as refused:
        texts(tmp_path)
    assert str(refused.value).count("name the key") == 1
    assert "; likewise a.jsonl, line 2; likewise a.jsonl, line 3; max_bad=0" in str(refused.value)


def test_prepare_skips_bad_rows_when_it_may_and_goes_on_with_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_bytes(BAD)
    words = [str(tmp_path / "a.jsonl"), str(tmp_path / "tokens"), "shard_tokens=1"]
    with pytest.raises(DataError, match=r"3 bad rows: .*max_bad=2 allows fewer"):
        run([*words, "max_bad=2"])
    run([*words, "max_bad=10"])
    out = capsys.readouterr().out
    assert "note: skipped 4 bad rows: a.jsonl, line 2: not JSON" in out
    assert out.count("and 1 more") == 1
    assert (tmp_path / "tokens/shard-00000.bin").read_bytes()[:2] == b"a\0"
    assert json.loads((tmp_path / "tokens" / INDEX_NAME).read_text())["documents"] == 3


def test_text_that_is_no_utf8_further_in_counts_too(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"line\n" * 20_000 + "é".encode("latin-1") + b" end")
    with pytest.raises(DataError, match=r"a\.txt, byte 100,000: not UTF-8: convert it, as with iconv"):
        texts(tmp_path)
    found = b"".join(text.data for text in open_documents(str(tmp_path), "text", max_bad=1).read())
    assert found.endswith("line\n� end".encode())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    values=st.lists(st.dictionaries(st.text(max_size=5), VALUES, max_size=3), max_size=6), indent=st.none() | st.just(1)
)
def test_arrays_are_parsed_as_they_come(
    tmp_path_factory: pytest.TempPathFactory, values: list[object], indent: int | None
) -> None:
    from trainer.data.forms import Form
    from trainer.data.unpacking import Content

    path = tmp_path_factory.getbasetemp() / "array.json"
    path.write_text(json.dumps(values, indent=indent, ensure_ascii=False), encoding="utf-8", errors="surrogatepass")
    with pytest.MonkeyPatch.context() as patch, path.open("rb") as stream:
        patch.setattr(rows, "_PART", 3)
        found = rows.read_rows(Content(name="a", form=Form(kind="array"), stream=stream), None)
        assert [row.value for row in found] == values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"text": "a"}, {"text": "b"', "element 2: not JSON"),
        ('[{"text": "a"} {"text": "b"}]', "element 1: no ',' is where one belongs"),
        ('[{"text": "a"}]\n[{"text": "b"}]', "element 1: text follows the end"),
        ('[{"text": "a"}, {"text": oops, "x": "' + "y" * 100 + '"}]', "element 2: not JSON"),
        ('[{"text": "a"}, 3]', "element 2: the column holds int"),
    ],
)
def test_wrong_arrays_are_named_with_the_element(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError, match=rf"a\.json, {message}"):
        texts(tmp_path)


def test_a_row_that_is_too_long_is_a_bad_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_MOST_ROW", 1 << 20)
    line = json.dumps({"text": "x" * (3 << 20)}) + "\n"
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n' + line + '{"text": "b"}\n')
    reader = open_documents(str(tmp_path), "text", max_bad=1)
    assert [text.data for text in reader.read()] == [b"a", b"b"]
    assert reader.bad.describe() == "1 bad row: a.jsonl, line 2: longer than 1 MiB"


def test_rows_of_a_table_are_counted_like_lines(tmp_path: Path) -> None:
    parquet.write_table(pyarrow.table({"text": [["a"], ["b"]], "id": [1, 2]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"2 bad rows: a\.parquet, row 1: the column holds list, not text"):
        texts(tmp_path)
