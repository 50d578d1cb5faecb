"""Preempted at a random step, real hosts and the real trainer: the curve is the undisturbed one, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
from rehearsal.seeds import STEPS, check_seed, rehearse

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    losses, report, _ = rehearse(tmp_path_factory.mktemp("calm") / "run")
    assert sorted(losses) == list(range(1, STEPS + 1))
    assert report["resumes"] == []
    return losses


@pytest.mark.promise("P16")
@pytest.mark.parametrize("seed", range(10))
def test_the_loss_curve_goes_on_after_a_preemption(seed: int, tmp_path: Path, undisturbed: dict[int, str]) -> None:
    check_seed(seed, tmp_path / "run", undisturbed)
