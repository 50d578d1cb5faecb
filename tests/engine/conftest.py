"""Real local hosts, driven by the real engine, with everything below one temporary folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.driving import Listener

from orchestrator.engine.loop.drive import drive_cluster
from orchestrator.engine.preparation import commands
from orchestrator.engine.state.recorded import open_reader


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """ORCH_HOME of this test; whatever is left running in it is taken down at the end."""
    root = tmp_path / "orch"
    monkeypatch.setenv("ORCH_HOME", str(root))
    monkeypatch.delenv("ORCH_CONFIG", raising=False)
    yield root
    with open_reader() as reader:
        names = [cluster.name for cluster in reader.clusters()]
    for name in names:
        drive_cluster(commands.prepare_down(name), Listener())


@pytest.fixture
def listener() -> Listener:
    return Listener()
