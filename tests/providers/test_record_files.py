"""One JSON file per slice: whole, for the user only, and clear words when it cannot be read or written."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import CloudError
from orchestrator.private_files import write_whole
from orchestrator.providers.records import RecordFiles


@dataclass(frozen=True, slots=True)
class Note:
    name: str
    hosts: tuple[str, ...] = ()


class Notes(RecordFiles[Note]):
    every = "the notes"

    @staticmethod
    def parsed(fields: dict[str, Any]) -> Note:
        return Note(fields["name"], tuple(fields["hosts"]))


def test_what_is_written_is_read_again_by_another_command(tmp_path: Path) -> None:
    folder, notes = tmp_path / "a" / "notes", [Note("one-1", ("a", "b")), Note("two-1")]
    assert (Notes(folder).all(), Notes(folder).read("one-1")) == ([], None)
    for note in reversed(notes):
        Notes(folder).put(note)
    assert (Notes(folder).all(), Notes(folder).read("one-1")) == (notes, notes[0])
    assert (folder / "one-1.json").read_text() == json.dumps({"name": "one-1", "hosts": ["a", "b"]}, indent=1)
    assert [path.stat().st_mode & 0o777 for path in (folder, folder / "one-1.json")] == [0o700, 0o600]
    Notes(folder).drop("one-1")
    Notes(folder).drop("one-1")
    assert [path.name for path in folder.iterdir()] == ["two-1.json"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"name": "one-1"}', b"\xff"])
def test_a_file_that_is_no_record_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "one-1.json").write_bytes(content)
    for look in (lambda: Notes(tmp_path).read("one-1"), Notes(tmp_path).all):
        with pytest.raises(CloudError, match="record of 'one-1' cannot be read") as told:
            look()
        assert str(tmp_path / "one-1.json") in told.value.next_step


def test_a_folder_that_is_none_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.write_text("")
    with pytest.raises(CloudError, match="the notes cannot be read"):
        Notes(folder).all()
    with pytest.raises(CloudError, match="record of 'one-1' cannot be written"):
        Notes(folder).put(Note("one-1"))
    (tmp_path / "one-1.json").mkdir()
    with pytest.raises(CloudError, match="record of 'one-1' cannot be deleted"):
        Notes(tmp_path).drop("one-1")


def test_a_write_that_is_cut_off_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_whole(path, "old")

    def cut_off(_: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "fsync", cut_off)
        write_whole(path, "new and longer")
    assert path.read_text() == "old"
    before = os.umask(0o077)
    try:
        write_whole(path, "new", mode=0o755)
    finally:
        os.umask(before)
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o755)
