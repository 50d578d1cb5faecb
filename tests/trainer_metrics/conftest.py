"""An S3 server, and the environment variables that point to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.s3 import S3Server, s3_server


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with s3_server() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server
