"""Preempted at a random step, with real hosts and trainer: the loss curve is the undisturbed one, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
from rehearsal.seeds import check_seed
from support.lanes import share_of, spread
from support.proof import report

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("calm")


@pytest.mark.promise("P16")
@pytest.mark.parametrize("seed", spread(share_of(range(20), 1)))
def test_the_loss_curve_continues_after_a_preemption(seed: int, tmp_path: Path, shared: Path) -> None:
    check_seed(seed, tmp_path / "run", shared)
    report(
        "real SSH hosts, real trainer, preempted at a random step: losses equal to the undisturbed run", {"seeds": 1}
    )
