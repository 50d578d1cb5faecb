"""A pretend Google for all tests of adoption, and an orch of its own for each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from adopt_bench import Maker, pretend

from orch_fronts.google.cloud import SimulatedGoogle


@pytest.fixture(scope="module")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedGoogle]:
    with pretend(tmp_path_factory.mktemp("google")) as google:
        yield google


@pytest.fixture
def maker(google: SimulatedGoogle) -> Maker:
    return Maker.at(google.server)


@pytest.fixture
def home(google: SimulatedGoogle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An orch of its own, led to the pretend Google."""
    for name in list(os.environ):
        if name.startswith(("ORCH_", "NO_COLOR", "FORCE_COLOR", "CI", "XDG_", "GOOGLE_", "CLOUDSDK_")):
            monkeypatch.delenv(name)
    for name, value in google.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ORCH_HOME", str(tmp_path / "orch"))
    return tmp_path / "orch"
