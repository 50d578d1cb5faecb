"""Marked tokens on JAX: the loss is their mean over the global batch, as with torch, on any mesh."""

from __future__ import annotations

import numpy as np
import pytest
from jax_cases import RATE, jax_engine, rows_of, settings, torch_engine

from trainer.data.tokens.marks import mark_tokens
from trainer.engine import Engine, TokenArray
from trainer.jax_engine import vocabulary
from trainer.smoke_test.reference import compute_reference_losses, make_first_weights

pytestmark = [pytest.mark.jax, pytest.mark.slow]

MARKED = "data.loss=marked"


def marked_rows(step: int) -> TokenArray:
    """Mark a few tokens, as many as a row's number; the first row has none."""
    config = settings()
    rows = rows_of(config, step)
    count, width = rows.shape
    trained = np.array([[at % 11 < row for at in range(width)] for row in range(count)])
    return mark_tokens(rows, trained, config.model.tokens)


def run_marked(engine: Engine, steps: int = 3) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for step in range(steps):
        rows = marked_rows(step)
        evaluated = engine.evaluate(rows)
        engine.step(rows, RATE, False, step)
        numbers = engine.numbers()
        assert evaluated == pytest.approx(numbers.loss * np.mean(rows[:, 1:] >= 0), abs=5e-6)
        found.append((numbers.loss, numbers.grad_norm))
    return found


@pytest.fixture(scope="module")
def plain() -> list[tuple[float, float]]:
    """Return the torch engine's results."""
    return run_marked(torch_engine(MARKED))


@pytest.mark.parametrize(
    ("words", "devices"),
    [("mesh.data=2 accumulate=2", 2), ("mesh.fsdp=2 mesh.tensor=2", 4), ("mesh.data=2 mesh.context=2", 2)],
)
def test_the_numbers_are_those_of_torch(words: str, devices: int, plain: list[tuple[float, float]]) -> None:
    assert run_marked(jax_engine(f"{MARKED} {words}", devices)) == pytest.approx(np.array(plain), abs=2e-5)


def test_chunks_of_the_logits_give_the_same_and_what_no_framework_gives(
    monkeypatch: pytest.MonkeyPatch, plain: list[tuple[float, float]]
) -> None:
    monkeypatch.setattr(vocabulary, "LOGITS_BYTES", 4 * 256 * 8 * 4)
    found = run_marked(jax_engine(MARKED))
    assert found == pytest.approx(np.array(plain), abs=2e-5)
    config, rows = settings(), marked_rows(0)
    losses = compute_reference_losses(config.model, make_first_weights(config.model, config.seed), rows_of(config, 0))
    expected = float(losses[rows[:, 1:] >= 0].mean(dtype=np.float64))
    assert found[0][0] == pytest.approx(expected, abs=5e-6)
    assert expected != pytest.approx(float(losses.mean()), abs=1e-3)
