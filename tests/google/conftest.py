"""The bench of Google's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from google_bench import Bench
from google_cases import PROJECT, keys
from google_fake import fake_api

from orchestrator.providers.google import session


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with fake_api() as fake:
        monkeypatch.setenv(session.ENDPOINT, fake.url)
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", PROJECT)
        yield Bench(fake, tmp_path, keys(8, str(tmp_path)))
