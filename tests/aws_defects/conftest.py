"""One pretend EC2 at a port for all files here; each test has a new account behind it. See aws_defects_bench.py."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "aws"))  # what the provider's own tests have of accounts

from aws_defects_bench import Bench, empty_account
from support.ec2_front import Ec2Service, ec2_service
from support.simulated import use_home


@pytest.fixture(scope="session")
def service() -> Iterator[Ec2Service]:
    with ec2_service() as service:
        yield service


@pytest.fixture
def bench(service: Ec2Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    for name in ("ORCH_HOME", "ORCH_STORE"):
        monkeypatch.setenv(name, "")
    use_home(tmp_path)
    return empty_account(service, tmp_path)
