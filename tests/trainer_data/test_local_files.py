"""Local files that users name: pipes, sockets and devices are refused without waiting; a change is noticed."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from chat_tokenizers import byte_bpe
from data_cases import opened
from prepare_process import started
from pyarrow import parquet

from trainer.data.chat.reader import find_chat_template
from trainer.data.documents import open_documents
from trainer.data.files import inspection
from trainer.data.index import INDEX_NAME
from trainer.data.tokens.tokenizers import read_tokenizer
from trainer.errors import DataError, TrainerError


@pytest.fixture(params=["pipe", "socket", "device", "link to a pipe"])
def irregular(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Path of what is no file; nothing is at the other end of the pipe."""
    path = tmp_path / "x"
    if request.param == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
        return path
    if request.param == "device":
        return Path("/dev/zero")
    os.mkfifo(path)
    if request.param == "pipe":
        return path
    (tmp_path / "y").symlink_to(path)
    return tmp_path / "y"


READERS: dict[str, Callable[[str], object]] = {
    "run": opened,
    "prepare": lambda path: open_documents(path, "text"),
    "chat": lambda path: find_chat_template(path, "bytes", "\0"),
    "tokenizer": read_tokenizer,
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("use", READERS)
def test_what_is_no_file_is_refused_with_its_kind(irregular: Path, use: str) -> None:
    with pytest.raises(TrainerError, match=rf"{irregular} is a (pipe|socket|device), not a file: write what it gives"):
        READERS[use](str(irregular))


@pytest.mark.timeout(20)
def test_pipes_in_a_folder_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    os.mkfifo(tmp_path / "b.txt")
    os.mkfifo(tmp_path / INDEX_NAME)
    assert opened(tmp_path).total_tokens == 4


@pytest.mark.parametrize("change", ["longer", "same size", "replaced"])
def test_a_file_that_changes_while_it_is_read_is_named_and_no_index_is_written(tmp_path: Path, change: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n' * 3)
    documents = open_documents(str(path), "text")
    with pytest.raises(DataError, match=rf"^{path} changed while it was read: run the command again"):
        for number, _ in enumerate(documents.read()):
            if number == 1:
                change_file(path, change)


def change_file(path: Path, change: str) -> None:
    if change == "longer":
        with path.open("a") as file:
            file.write('{"text": "b"}\n')
        return
    other = path.with_name("other")
    place = other if change == "replaced" else path
    place.write_text('{"text": "b"}\n' * 3)
    os.utime(place, ns=(10**18, 10**18))
    if change == "replaced":
        other.rename(path)


def test_a_change_is_the_reason_also_where_what_is_read_makes_no_sense(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["a" * 1000] * 3000}), path, row_group_size=1000, use_dictionary=False)
    documents = open_documents(str(path), "text")
    with pytest.raises(DataError, match="changed while it was read"):
        for number, _ in enumerate(documents.read()):
            if number == 1:
                path.write_bytes(b"PAR1")


def test_a_file_that_changes_while_it_is_inspected_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a")
    recognize = inspection.recognize_form

    def change_and_recognize(name: str, head: bytes, place: str) -> object:
        path.write_text("longer")
        return recognize(name, head, place)

    monkeypatch.setattr(inspection, "recognize_form", change_and_recognize)
    with pytest.raises(DataError, match="changed while it was read"):
        opened(path)


def test_prepare_writes_no_index_of_a_file_that_grows(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "some text of a row"}\n' * 400_000)
    process = started(str(path), str(tmp_path / "out"), "shard_tokens=100000")
    while not (tmp_path / "out/shard-00000.bin").exists() and process.poll() is None:
        time.sleep(0.01)
    with path.open("a") as file:
        file.write('{"text": "more"}\n')
    _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors.count("\n")) == (3, 1), errors
    assert f"error[data]: {path} changed while it was read" in errors
    assert not (tmp_path / "out" / INDEX_NAME).exists()


def test_no_process_of_a_killed_prepare_stays(tmp_path: Path) -> None:
    """Neither the one that decodes tables, nor those that encode, nor the one that renders."""
    (tmp_path / "tokenizer.json").write_text(byte_bpe().to_str())
    messages = [{"role": "user", "content": "a b " * 50}, {"role": "assistant", "content": "c d " * 50}]
    parquet.write_table(pyarrow.table({"messages": [messages] * 20_000}), tmp_path / "a.parquet")
    words = (f"tokenizer={tmp_path / 'tokenizer.json'}", "eod=<|endoftext|>", "chat=x.jinja", "workers=2")
    template = tmp_path / "x.jinja"
    template.write_text("{% for m in messages %}[{{ m.content }}]{% endfor %}{% if add_generation_prompt %}{% endif %}")
    process = started(str(tmp_path / "a.parquet"), str(tmp_path / "out"), *words[:2], f"chat={template}", words[3])
    children = set[int]()
    deadline = time.monotonic() + 100
    while len(children) < 5 and process.poll() is None and time.monotonic() < deadline:
        children = set(map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()))
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    _, errors = process.communicate()
    assert len(children) == 5, errors  # and the one with which multiprocessing cleans up
    deadline = time.monotonic() + 30
    while any(map(is_running, children)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_running, children))


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
