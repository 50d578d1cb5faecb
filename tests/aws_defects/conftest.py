"""One pretend EC2 at a port for all files here; each test has a new account behind it. See aws_defects_bench.py."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "aws"))  # what the provider's own tests have of accounts

from aws_defects_bench import Bench, Line, empty_account
from support.aws_cloud import aws_server, aws_session
from support.aws_world import pointed
from support.simulated import use_home


@pytest.fixture(scope="session")
def line() -> Iterator[Line]:
    line = Line()
    with aws_server(line) as server:
        line.server = server
        line.session = aws_session(server.url, hook=pointed(line))  # type: ignore[arg-type]  # Points of the test
        yield line


@pytest.fixture
def bench(line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    for name in ("ORCH_HOME", "ORCH_STORE"):
        monkeypatch.setenv(name, "")
    use_home(tmp_path)
    return empty_account(line, tmp_path)
