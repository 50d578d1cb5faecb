"""Fixtures for the tests of the data: text, a BPE tokenizer, an S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from support.s3 import S3Server, s3_server

from orch_fronts.google.gcs import GcsServer, gcs_server

settings.register_profile("trainer-data", deadline=None, max_examples=60)  # the machine is shared
settings.load_profile("trainer-data")


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of text, about 90 kB in three files."""
    folder = tmp_path_factory.mktemp("text")
    for number in range(3):
        lines = [f"line {i} of file {number}: the sum of {i} and {i + 1} is {2 * i + 1}\n" for i in range(600)]
        (folder / f"part{number}.txt").write_text("".join(lines))
    return folder


@pytest.fixture(scope="session")
def tokenizer_file(tmp_path_factory: pytest.TempPathFactory, text_folder: Path) -> Path:
    """File of a byte-level BPE tokenizer with 400 tokens, trained on the text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train([str(path) for path in sorted(text_folder.iterdir())], trainer)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@pytest.fixture(scope="session")
def s3_once() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def s3(s3_once: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """S3 server, with the environment variables that point to it."""
    for name, value in s3_once.environment.items():
        monkeypatch.setenv(name, value)
    return s3_once


@pytest.fixture
def gcs(monkeypatch: pytest.MonkeyPatch) -> Iterator[GcsServer]:
    """Google Cloud Storage server, with the environment variable that points to it."""
    with gcs_server() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        yield server
