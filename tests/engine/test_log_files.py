"""The local copies of logs, and reading them from a time or a number of lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.engine.loop.follow import LogFiles, find_size_at
from orchestrator.engine.operations.log_sources import LogStart, read_log_from


@pytest.mark.parametrize(
    ("moment", "size"),
    [(99.0, 0), (100.0, 0), (104.0, 0), (106.0, 30), (150.0, 30), (200.0, 30), (206.0, 50), (900.0, 50)],
)
def test_size_at_a_moment_is_known_to_within_the_notes_interval(tmp_path: Path, moment: float, size: int) -> None:
    log = tmp_path / "0.log"
    log.write_bytes(bytes(50))
    log.with_suffix(".times").write_text("100 0\n200 30\n")
    assert find_size_at(log, moment) == size


def test_log_without_notes_is_read_from_its_beginning(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_bytes(b"a\nb\n")
    assert read_log_from(log, LogStart(seconds=60)) == b"a\nb\n"


def test_files_note_their_size_before_they_grow(tmp_path: Path) -> None:
    files = LogFiles(tmp_path / "logs")
    files.write(3, b"one\ntwo\n")
    files.write(3, b"three\n")
    files.close()
    log = files.path(3)
    (note,) = log.with_suffix(".times").read_text().splitlines()
    assert note.split()[1] == "0", "the second block came within the interval"
    assert read_log_from(log, LogStart(tail=1)) == b"three\n"
    assert read_log_from(log, LogStart(tail=0)) == b""
    assert read_log_from(log, LogStart(tail=9)) == b"one\ntwo\nthree\n"
    assert read_log_from(log, LogStart(seconds=3600)) == b"one\ntwo\nthree\n"
