"""Real things for the trainer's tests: rank processes, a small corpus, an S3 server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.s3 import S3Server, s3_server
from trainer_ranks import Launcher

from orch_fronts.google.gcs import GcsServer, gcs_server


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 90 kB of text with something to learn in it."""
    folder = tmp_path_factory.mktemp("corpus")
    for number in range(3):
        lines = [f"line {i} of file {number}: the sum of {i} and {i + 1} is {2 * i + 1}\n" for i in range(600)]
        (folder / f"part{number}.txt").write_text("".join(lines))
    return folder


@pytest.fixture
def launch(tmp_path: Path, corpus: Path) -> Iterator[Launcher]:
    launcher = Launcher(tmp_path, corpus)
    try:
        yield launcher
    finally:
        launcher.end_all()


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def gcs() -> Iterator[GcsServer]:
    with gcs_server() as server:
        yield server
