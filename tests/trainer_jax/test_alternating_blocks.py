"""Settings of Gemma: blocks with and without a window, bounds of scores and logits, and norms of results."""

from __future__ import annotations

import numpy as np
import pytest
from jax_cases import jax_engine, rows_of, run, settings, state_of, torch_engine

from trainer.jax_engine import leaves
from trainer.shape import attention_chunks
from trainer.shape.architecture import count_flops_per_token
from trainer.smoke_test.reference import compute_reference_loss, make_first_weights

pytestmark = [pytest.mark.jax, pytest.mark.slow]

GEMMA = (
    "model.layers=3 model.window=5 model.full_every=2 model.activation=gelu_tanh model.post_norm=true "
    "model.norm_offset=true model.embed_scale=true model.query_scale=24"
)
GEMMA2 = f"{GEMMA} model.attention_softcap=0.5 model.softcap=1.5"
GEMMA3 = f"{GEMMA} model.qk_norm=true model.local_rope_theta=100 model.rope_scaling=linear model.rope_factor=4"
EVERY = f"{GEMMA3} model.attention_softcap=0.5 model.softcap=1.5 model.tied=false accumulate=2 optim.ema=0.9"


@pytest.mark.promise("P31")
@pytest.mark.parametrize("more", ["remat=none", "remat=selective", "remat=full"])
def test_scanned_blocks_of_two_kinds_equal_those_of_torch(more: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = f"{EVERY} {more}"
    expected = run(torch_engine(EVERY), EVERY, steps=2)
    monkeypatch.setattr(leaves, "SCAN_FROM_CPU", 2)
    scanned = jax_engine(words)
    assert "scanned" in scanned.headline()
    np.testing.assert_allclose(run(scanned, words, steps=2), expected, rtol=1e-5)


@pytest.mark.promise("P31")
def test_every_setting_together_equals_the_torch_engine_on_a_sharded_mesh() -> None:
    there = torch_engine(EVERY)
    words = f"{EVERY} mesh.fsdp=2 mesh.tensor=2"
    here = jax_engine(words, devices=4)
    np.testing.assert_allclose(run(here, words), run(there, EVERY), rtol=1e-5)
    mine, theirs = state_of(here), state_of(there)
    assert mine.keys() == theirs.keys()
    for name, values in mine.items():
        np.testing.assert_allclose(values, theirs[name], rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("words", [GEMMA2, GEMMA3], ids=["gemma2", "gemma3"])
def test_the_reference_without_a_framework_has_the_same_loss(words: str) -> None:
    config = settings(words)
    rows = rows_of(config, 0)
    expected = compute_reference_loss(config.model, make_first_weights(config.model, config.seed), rows)
    for engine in (jax_engine(words), torch_engine(words)):
        engine.step(rows, 0.0, False, 0)
        assert engine.numbers().loss == pytest.approx(expected, rel=1e-5)


def test_attention_in_chunks_bounds_the_same_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(jax_engine(GEMMA2), GEMMA2, steps=2)
    monkeypatch.setattr(attention_chunks, "ATTENTION_CHUNK", 6)
    np.testing.assert_allclose(run(jax_engine(GEMMA2), GEMMA2, steps=2), whole, rtol=1e-5)


def test_flops_count_the_window_only_in_blocks_that_have_one() -> None:
    every, none, some = (settings(f"model.layers=4 {words}").model for words in ("model.window=4", "", _SOME))
    window, whole, mixed = (count_flops_per_token(model, 64) for model in (every, none, some))
    assert mixed == pytest.approx((3 * window + whole) / 4)


_SOME = "model.window=4 model.full_every=4"
