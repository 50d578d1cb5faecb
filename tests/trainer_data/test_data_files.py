"""Open text files: how many, how long, and reads from many threads."""

from __future__ import annotations

import gc
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

import numpy as np
import pytest
from data_cases import opened


def files_open_below(folder: Path) -> int:
    links = [Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208  # ends before reading
    return sum(os.path.realpath(link).startswith(str(folder)) for link in links)


def test_a_bounded_number_of_files_stays_open_while_the_corpus_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.data.readers._OPEN_FILES", 5)
    contents = [bytes([65 + number]) * 40 for number in range(12)]
    for number, content in enumerate(contents):
        (tmp_path / f"{number:02d}.txt").write_bytes(content)
    whole = b"".join(contents)
    corpus = opened(tmp_path)
    starts = np.random.default_rng(0).integers(0, len(whole) - 100, (40, 8))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(corpus.read, starts, repeat(100)))
    for begins, rows in zip(starts, found, strict=True):
        assert [bytes(row) for row in rows] == [whole[begin : begin + 100] for begin in begins]
    assert files_open_below(tmp_path) == 5
    del corpus
    gc.collect()
    assert files_open_below(tmp_path) == 0
