"""A few real sshd hosts for the tests of orchestrator.remote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sshd import Farm, sshd_farm

from orchestrator.remote.fleet import Fleet


@pytest.fixture(scope="module")
def shared_farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    """Three hosts for tests that leave them as they found them."""
    with sshd_farm(tmp_path_factory.mktemp("farm"), 3) as farm:
        yield farm


@pytest.fixture
def fleet(shared_farm: Farm) -> Iterator[Fleet]:
    with Fleet(shared_farm.addresses, deadline=10) as fleet:
        yield fleet


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    """Two hosts of a test's own, to be harmed."""
    with sshd_farm(tmp_path / "farm", 2) as farm:
        yield farm
