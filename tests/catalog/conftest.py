"""No prices that a developer refreshed on this computer."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of an orch without refreshed prices."""
    monkeypatch.setenv("ORCH_HOME", str(tmp_path / "orch"))
    return tmp_path / "orch"
