"""Memory and time that a file of anyone takes are bounded by more than what it declares."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from data_cases import texts
from prepare_process import REPOSITORY
from pyarrow import parquet

from trainer.data.documents import open_documents
from trainer.data.files import tables
from trainer.data.files.json_rows import MOST_VALUES
from trainer.data.limited_process import Limits
from trainer.errors import DataError

READ = """
import resource, sys
from trainer.data.documents import open_documents
from trainer.errors import DataError
if __name__ == "__main__":
    try:
        for text in open_documents(sys.argv[1], "text").read():
            print("text", len(text.data))
    except DataError as error:
        print(error)
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    print(int(status["VmHWM"].split()[0]) >> 10, resource.getrusage(resource.RUSAGE_SELF).ru_utime)
"""


def read_measured(path: Path) -> tuple[list[str], int, float]:
    """Return the output of a process that reads a file, its largest memory in MiB, and its seconds of processor."""
    script = path.with_name("read.py")
    script.write_text(READ)
    found = subprocess.run(
        [sys.executable, str(script), str(path)],
        capture_output=True,
        check=True,
        text=True,
        env={"PYTHONPATH": str(REPOSITORY), "ORCH_DATA_CACHE": str(path.parent)},
    )
    *lines, measured = found.stdout.splitlines()
    memory, seconds = measured.split()
    return lines, int(memory), float(seconds)


def write_repeated(path: Path, size: int = 25_000_000) -> None:
    """Write a table with one long text in 256 rows."""
    rows = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 256, pyarrow.int32()), pyarrow.array(["a" * size]))
    table = pyarrow.table({"text": rows})
    if path.suffix == ".parquet":
        parquet.write_table(table, path, compression="zstd", store_schema=False)
        return
    with pyarrow.ipc.new_file(str(path), table.schema, options=pyarrow.ipc.IpcWriteOptions(compression="zstd")) as file:
        file.write_table(table)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a.parquet", "a.parquet cannot be read: some rows need more than 3 GiB of memory together: write it with"),
        ("a.arrow", "a.arrow: more than 67,108,864 bytes come out of its"),
    ],
)
def test_a_table_of_a_few_bytes_that_declares_gigabytes_is_named(tmp_path: Path, name: str, reason: str) -> None:
    write_repeated(tmp_path / name)
    assert (tmp_path / name).stat().st_size < 5000
    lines, memory, _ = read_measured(tmp_path / name)
    assert lines[-1].startswith(reason)
    assert memory < 400


def test_a_row_of_a_table_with_too_many_values_is_a_bad_row(tmp_path: Path) -> None:
    many = [None] * (5 * MOST_VALUES)
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    rows = [{"messages": messages, "x": []}, {"messages": messages, "x": many}, {"messages": messages, "x": [1]}]
    schema = pyarrow.schema(
        [
            ("messages", pyarrow.list_(pyarrow.struct([("role", pyarrow.string()), ("content", pyarrow.string())]))),
            ("x", pyarrow.list_(pyarrow.int8())),
        ]
    )
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema), tmp_path / "a.parquet")
    reader = open_documents(str(tmp_path / "a.parquet"), "text", Rows(), max_bad=1)
    assert len(list(reader.read())) == 2
    assert reader.bad.describe() == "1 bad row: a.parquet, row 2: more than 1,000,000 values"


class Rows:
    """Turns any row into one text."""

    def read_row(self, row: Any, where: str) -> Any:
        from trainer.data.documents import TextChunk

        assert where
        yield TextChunk(json.dumps(row["messages"]).encode(), is_last=True)


@pytest.mark.parametrize("stream", [True, False])
def test_rows_of_a_table_that_are_not_utf8_are_bad_rows(tmp_path: Path, stream: bool) -> None:
    strings = pyarrow.array([b"a", b"x\xff", "é".encode()]).view(pyarrow.string())
    table = pyarrow.table({"id": [1, 2, 3], "text": strings})
    with (pyarrow.ipc.new_stream if stream else pyarrow.ipc.new_file)(str(tmp_path / "a.arrow"), table.schema) as file:
        file.write_table(table)
    parquet.write_table(table, tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"^a\.arrow, row 2: not UTF-8, by byte 1; max_bad=1"):
        list(open_documents(str(tmp_path), "text").read())
    reader = open_documents(str(tmp_path), "text", max_bad=2)
    assert [text.data for text in reader.read()] == [b"a", "é".encode()] * 2
    assert reader.bad.count == 2


def test_large_tables_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than one answer has, a group of rows that is larger than the limit, and a column that is not read."""
    monkeypatch.setattr(tables, "_LIMITS", Limits(memory=700 << 20, seconds=60.0))
    expected = [f"{number} " + "x" * (1 << 20) for number in range(400)]  # beside them 300 MiB are left
    table = pyarrow.table({"id": range(400), "other": ["y"] * 400, "text": expected})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=400, use_dictionary=False, write_batch_size=8)
    assert [text == bytes(row, "ascii") for text, row in zip(texts(tmp_path), expected, strict=True)] == [True] * 400
    parquet.write_table(pyarrow.table({"text": map(str, range(1000))}), tmp_path / "a.parquet")
    assert texts(tmp_path) == [b"%d" % number for number in range(1000)]


def test_rows_of_json_with_many_small_values_are_named(tmp_path: Path) -> None:
    lists = "[" + "[]," * 8_000_000 + "[]]"
    for name, content, where in (
        ("a.json", f"[{lists}]", "a.json, element 1"),
        ("a.jsonl", f'{{"text": "a", "x": {lists}}}\n', "a.jsonl, line 1"),
        ("b.json", f'{{\n"data": {lists}}}', "b.json, object 1"),
    ):
        (tmp_path / name).write_text(content)
        lines, memory, seconds = read_measured(tmp_path / name)
        assert lines[-1].startswith(f"{where}: more than 1,000,000 values: ")
        assert memory < 250
        assert seconds < 5


@pytest.mark.parametrize(
    "text",
    [
        "[" + " " * 30_000_000 + '{"text": "a"},' + "\n" * 30_000_000 + '"b"' + " " * 30_000_000 + "]",
        '[{"text": "a"}, {"text": "b", "x": "' + r"\"" * 4_000_000 + '"}]',
    ],
    ids=["space", "escapes"],
)
def test_space_and_escapes_in_an_array_are_passed_quickly(tmp_path: Path, text: str) -> None:
    """Character by character in Python, they would take a minute on a busy machine."""
    (tmp_path / "a.json").write_text(text)
    lines, memory, seconds = read_measured(tmp_path / "a.json")
    assert lines == ["text 1", "text 1"]
    assert memory < 250
    assert seconds < 3


def test_an_archive_of_too_many_members_is_refused_before_they_are_listed(tmp_path: Path) -> None:
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 65535, 65535, 900_000_000, 0, 0)
    header = struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, 0, 0, 0, 0, 0, 0, 1, 0)
    (tmp_path / "a.zip").write_bytes(header + b"x" + end)
    with pytest.raises(DataError, match=r"a\.zip has too many members for one archive: unpack it"):
        list(open_documents(str(tmp_path / "a.zip"), "text").read())
