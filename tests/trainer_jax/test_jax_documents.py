"""Documents packed into rows on JAX: the numbers of torch on any mesh, and the losses of each document alone."""

from __future__ import annotations

import numpy as np
import pytest
from jax_cases import RATE, jax_engine, rows_of, settings, torch_engine

from trainer.data.tokens.document_starts import mark_starts
from trainer.data.tokens.marks import mark_tokens
from trainer.engine import Engine, TokenArray
from trainer.shape import attention_chunks
from trainer.smoke_test.reference import compute_reference_losses, make_first_weights

pytestmark = [pytest.mark.jax, pytest.mark.slow]

# AdamW turns gradients near its epsilon into steps of any sign.
WORDS = "data.document_mask=true data.loss=marked model.window=7 optim.eps=1e-4"


def draw_starts(count: int, width: int) -> np.ndarray:
    return np.array([[at > 0 and at % (4 + row) == 0 for at in range(width)] for row in range(count)])


def started_rows(step: int) -> TokenArray:
    """Begin documents at other places in each row; the first token of each is not trained on."""
    rows = rows_of(settings(), step)
    starts = draw_starts(*rows.shape)
    return mark_starts(mark_tokens(rows, ~starts, settings().model.tokens), starts)


def run_started(engine: Engine) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for step in range(3):
        engine.step(started_rows(step), RATE, False, step)
        numbers = engine.numbers()
        found.append((numbers.loss, numbers.grad_norm))
    return found


@pytest.fixture(scope="module")
def plain() -> list[tuple[float, float]]:
    """Return the torch engine's results."""
    return run_started(torch_engine(WORDS))


@pytest.mark.parametrize(
    ("words", "devices"),
    [
        ("", 1),
        ("mesh.data=2 accumulate=2", 2),
        ("mesh.fsdp=2 mesh.tensor=2 remat=selective", 4),
        ("mesh.fsdp=4 mesh.context=2 accumulate=2 remat=full", 4),
    ],
)
def test_the_numbers_are_those_of_torch(words: str, devices: int, plain: list[tuple[float, float]]) -> None:
    assert run_started(jax_engine(f"{WORDS} {words}", devices)) == pytest.approx(np.array(plain), abs=2e-5)


def test_chunks_of_attention_and_scanned_blocks_know_documents(
    monkeypatch: pytest.MonkeyPatch, plain: list[tuple[float, float]]
) -> None:
    monkeypatch.setattr(attention_chunks, "ATTENTION_CHUNK", 6)
    assert run_started(jax_engine(WORDS)) == pytest.approx(np.array(plain), abs=2e-5)
    deep = f"{WORDS} model.layers=33 model.dim=16 remat=full"
    assert run_started(jax_engine(deep)) == pytest.approx(np.array(run_started(torch_engine(deep))), abs=2e-5)


def test_a_batch_has_the_losses_of_its_documents_alone() -> None:
    """Each document is computed from its own first position, without a framework."""
    config, rows = settings(WORDS), rows_of(settings(), 0)
    weights, losses = make_first_weights(config.model, config.seed), list[float]()
    for row, starts in zip(rows, draw_starts(*rows.shape), strict=True):
        for document in np.split(row, np.flatnonzero(starts)):
            if len(document) > 1:
                losses += compute_reference_losses(config.model, weights, document[None]).ravel().tolist()
    engine = jax_engine(WORDS)
    engine.step(started_rows(0), RATE, False, 0)
    assert engine.numbers().loss == pytest.approx(float(np.mean(losses)), abs=5e-6)
    whole = engine_loss_across(rows)
    assert whole != pytest.approx(float(np.mean(losses)), abs=1e-4)


def engine_loss_across(rows: TokenArray) -> float:
    """Return the loss of the same trained tokens where they attend across documents."""
    engine = jax_engine("data.loss=marked model.window=7")
    engine.step(mark_tokens(rows, ~draw_starts(*rows.shape), 256), RATE, False, 0)
    return engine.numbers().loss
