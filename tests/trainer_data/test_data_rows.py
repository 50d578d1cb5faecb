"""Rows: bad ones are counted, shown and skipped up to a number; arrays are parsed as they come."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from data_cases import texts
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from trainer.commands.prepare import run
from trainer.data.chat.reader import ChatReader, find_chat_template
from trainer.data.documents import open_documents
from trainer.data.files import json_rows
from trainer.data.files.forms import Form
from trainer.data.files.rows import read_rows
from trainer.data.files.tables import TableReader
from trainer.data.files.unpacking import Content
from trainer.data.index import INDEX_NAME
from trainer.data.tokens.control_tokens import ControlTokens
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
    assert str(refused.value).endswith("; likewise a.jsonl, line 2; likewise a.jsonl, line 3")


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


@pytest.mark.parametrize("lines", [1, 20_000, 1_000_000])  # in the head, in the first chunk, far behind it
@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_a_text_that_is_not_utf8_anywhere_is_one_bad_row_and_no_part_of_it_is_read(
    tmp_path: Path, lines: int, compress: Callable[[bytes], bytes]
) -> None:
    bad = b"line\n" * lines + "é".encode("latin-1") * 50 + b" end"
    (tmp_path / "a.txt").write_bytes(compress(bad))
    with pytest.raises(DataError) as refused:
        texts(tmp_path)
    assert re.search(
        rf"a\.txt: text in another encoding than UTF-8, by byte {5 * lines:,}: .*iconv", str(refused.value)
    )
    assert "max_bad" not in str(refused.value), "it has nothing else"
    (tmp_path / "b.txt").write_text("é" * (3 << 20))
    with pytest.raises(DataError, match="max_bad=1"):
        texts(tmp_path)
    reader = open_documents(str(tmp_path), "text", max_bad=1)
    assert b"".join(text.data for text in reader.read()) == (tmp_path / "b.txt").read_bytes()
    assert reader.bad.count == 1


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_prepare_that_goes_on_with_a_larger_max_bad_has_nothing_of_the_bad_text(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    (tmp_path / "in").mkdir()
    for name, content in (("a", b"good\n" * 500_000), ("b", b"bad\n" * 900_000 + b"\xff"), ("c", b"more\n" * 500_000)):
        (tmp_path / "in" / name).write_bytes(compress(content))
    words = [str(tmp_path / "in"), str(tmp_path / "tokens"), "shard_tokens=1000000"]
    with pytest.raises(DataError, match=r"^b: text in another encoding than UTF-8, by byte 3,600,000: .*max_bad=1"):
        run(words)
    assert (tmp_path / "tokens/shard-00000.bin").exists()
    run([*words, "max_bad=1"])
    shards = sorted((tmp_path / "tokens").glob("shard-*.bin"))
    written = b"".join(shard.read_bytes() for shard in shards)
    assert written == b"good\n" * 500_000 + b"\0" + b"more\n" * 500_000 + b"\0"


def test_a_damaged_text_in_utf16_is_a_bad_row_too(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("b")
    for lines in (10, 100_000):
        (tmp_path / "a.txt").write_bytes(("line\n" * lines).encode("utf-16") + b"\x00\xd8x\0")
        with pytest.raises(DataError, match=r"^a\.txt: not UTF-16-LE, as its byte-order mark says; max_bad=1"):
            texts(tmp_path)
        reader = open_documents(str(tmp_path), "text", max_bad=1)
        assert [text.data for text in reader.read()] == [b"b"]


def test_a_text_cut_within_a_character_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"x" * (1 << 20) + "é".encode()[:1])
    with pytest.raises(DataError, match=r"UTF-8, by byte 1,048,576"):
        texts(tmp_path)


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
    path = tmp_path_factory.getbasetemp() / "array.json"
    path.write_text(json.dumps(values, indent=indent, ensure_ascii=False), encoding="utf-8", errors="surrogatepass")
    with pytest.MonkeyPatch.context() as patch, path.open("rb") as stream:
        patch.setattr(json_rows, "_PART", 3)
        found = read_rows(Content(name="a", form=Form(kind="array"), stream=stream), None, TableReader())
        assert [row.value for row in found] == values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"text": "a"}, {"text": "b"', "element 2: the file ends within the array; has it been cut"),
        ('[{"text": "a"}, {"text": "b"}', "element 2: the file ends within the array; has it been cut"),
        ('[{"text": "a"}, {"text": "b}]', "element 2: the file ends within the array; has it been cut"),
        ('[{"text": "a"} {"text": "b"}, {"text": "c"}]', "element 1: not JSON: more follows the end of the value"),
        ('[{"text": "a"},, {"text": "b"}]', "element 2: not JSON"),
        ('[{"text": "a"}, {"text": "b"},]', "element 3: not JSON"),
        ('[{"text": "a"}, {"text": oops, "x": "' + "y" * 100 + '"}]', "element 2: not JSON"),
        ('[{"text": "a"}, 3]', "element 2 is a number: neither text nor an object with keys"),
        (
            "[3, [4]]",
            r"element 1 is a number: neither text nor an object with keys; a\.json, element 2 is a list: [^;]*$",
        ),
    ],
)
def test_wrong_arrays_are_named_with_the_element(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError, match=rf"a\.json, {message}"):
        texts(tmp_path)


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_what_follows_a_bad_element_is_read(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    text = '[{"text": "a"}, {"text": oops}, {"text": "[,}\\"]"} , {"text": "b"} x, "c"]'
    (tmp_path / "a.json").write_bytes(compress(text.encode()))
    reader = open_documents(str(tmp_path), "text", max_bad=2)
    assert [text.data for text in reader.read()] == [b"a", b'[,}"]', b"c"]
    (tmp_path / "a.json").write_bytes(compress(b'[{"text": "a"}]\n[{"text": "b"}]'))
    with pytest.raises(DataError, match=r"a\.json: text follows the end of the array, after element 1$"):
        list(reader.read())


@pytest.mark.parametrize(
    "text",
    ['{"text": "a"}{"text": "b"}', '{\n "text": "a"\n}\n{\n "text": "b"\n}\n', '{"text": "a"}{"text": "b"}' * 4000],
)
def test_objects_that_follow_each_other_are_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    assert texts(tmp_path) == [b"a", b"b"] * text.count("b")
    (tmp_path / "a.json").write_text(text + '{"text": "c"')
    with pytest.raises(DataError, match=r"a\.json, object \d+: not JSON: .*max_bad=1"):
        texts(tmp_path)


ROWS = [{"text": "one"}, {"text": "two"}]


@pytest.mark.parametrize(
    ("name", "content", "shown"),
    [
        ("a.json", json.dumps({"data": ROWS}), """its key 'data', .*: jq -c '.["data"][]' FILE > ROWS.jsonl"""),
        ("a.json", json.dumps({"v": 1, "train": ROWS, "test": ROWS}, indent=1), "'train' and 'test'"),
        ("a.jsonl", json.dumps({"data": ROWS}), "jq -c"),
        ("a.json", json.dumps({"data": ROWS * 5000}), "jq -c"),
        ("a.json", json.dumps({"text": ["one", "two"]}), "jq -c"),
    ],
    ids=range(5),
)
def test_rows_wrapped_in_an_object_are_written_out_by_the_command_that_the_error_names(
    tmp_path: Path, name: str, content: str, shown: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError) as refused:
        texts(tmp_path)
    assert re.search(re.escape(shown).replace(r"\.\*", ".*"), str(refused.value)), str(refused.value)
    assert "max_bad" not in str(refused.value)
    assert "column=" not in str(refused.value)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ('{"text": "b", "n": ' + "1" * 5000 + "}", "a number of more than 4,300 digits"),
        ('{"text": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
        (r'{"text": "b\ud800"}', r"has \\ud800, which is half of a character"),
        ('{"text": "b", "text": "c"}', "the key 'text' occurs twice"),
        ('{"text": "b"} {"text": "c"}', "not JSON: more follows the end of the value, at character 15"),
    ],
    ids=range(5),
)
def test_rows_of_which_something_would_be_lost_are_bad(tmp_path: Path, row: str, problem: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a", "n": {"text": 1, "text": 2}, "m": 1, "m": 2}\n' + row)
    with pytest.raises(DataError, match=rf"^a\.jsonl, line 2: {problem}; max_bad=1"):
        texts(tmp_path)
    assert [text.data for text in open_documents(str(tmp_path), "text", max_bad=1).read()] == [b"a"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (r'{"role": "user", "content": "\uD83D."}', r"has \\ud83d, which is half of a character"),
        ('{"role": "user", "content": "a", "content": "b"}', "the key 'content' occurs twice"),
    ],
)
def test_chat_rows_of_which_something_would_be_lost_are_bad(tmp_path: Path, content: str, problem: str) -> None:
    good = r'{"messages": [{"role": "user", "content": "\ud83d\ude00"}, {"role": "assistant", "content": "b"}]}'
    reply = '{"role": "assistant", "content": "b"}'
    (tmp_path / "a.jsonl").write_text(good + "\n" + '{"messages": [' + content + ", " + reply + "]}")
    chat = ChatReader(find_chat_template("plain", "bytes", "\0"), ControlTokens())
    with pytest.raises(DataError, match=rf"^a\.jsonl, line 2: {problem}; max_bad=1"):
        list(open_documents(str(tmp_path), "text", chat).read())
    assert len(list(open_documents(str(tmp_path), "text", chat, max_bad=1).read())) == 1


def test_a_row_that_is_too_long_is_a_bad_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_rows, "MOST_ROW", 1 << 20)
    line = json.dumps({"text": "x" * (3 << 20)}) + "\n"
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n' + line + '{"text": "b"}\n')
    reader = open_documents(str(tmp_path), "text", max_bad=1)
    assert [text.data for text in reader.read()] == [b"a", b"b"]
    assert "1 bad row: a.jsonl, line 2: longer than 1 MiB" in reader.bad.describe()


def test_rows_of_a_table_are_counted_like_lines(tmp_path: Path) -> None:
    parquet.write_table(pyarrow.table({"text": [["a"], ["b"]], "id": [1, 2]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"2 bad rows: a\.parquet, row 1: the column holds list, not text"):
        texts(tmp_path)
