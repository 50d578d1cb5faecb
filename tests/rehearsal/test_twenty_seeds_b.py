"""Preempted at a random step, real hosts and the real trainer: the curve is the undisturbed one, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
from rehearsal.seeds import check_seed, chosen

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("calm")


@pytest.mark.promise("P16")
@pytest.mark.parametrize("seed", chosen(range(10, 20)))
def test_the_loss_curve_goes_on_after_a_preemption(seed: int, tmp_path: Path, shared: Path) -> None:
    check_seed(seed, tmp_path / "run", shared)
