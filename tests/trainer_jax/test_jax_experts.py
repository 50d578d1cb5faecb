"""Mixture of experts on JAX: the numbers and the state of torch, on every mesh, and those of the reference."""

from __future__ import annotations

import numpy as np
import pytest
from jax_cases import RATE, give, jax_engine, rows_of, run, settings, state_of, torch_engine

from trainer.checkpoint.restore_plan import check_same_model
from trainer.data.tokens.marks import mark_tokens
from trainer.engine import Engine
from trainer.errors import ConfigError
from trainer.jax_engine import leaves
from trainer.options import flatten_config
from trainer.smoke_test.reference import compute_reference_loss, make_first_weights

pytestmark = [pytest.mark.jax, pytest.mark.slow]

WORDS = "model.experts=4 model.expert_hidden=24 model.router_loss=0.1 optim.ema=0.9"
# Adam's first steps have the size of the rate whatever the gradient is, so rounding shows in weights without one.
EPS = "optim.eps=1e-4"


def assert_like_torch(words: str, more: str = "", devices: int = 1) -> None:
    there, here = torch_engine(f"{words} {EPS}"), jax_engine(f"{words} {EPS} {more}", devices)
    np.testing.assert_allclose(run(here, words, steps=3), run(there, words, steps=3), rtol=1e-5)
    mine, theirs = here.numbers(), there.numbers()
    assert mine.router_loss == pytest.approx(theirs.router_loss, rel=1e-5)
    assert mine.expert_share == theirs.expert_share
    assert theirs.expert_share is not None and 0.25 < theirs.expert_share <= 0.5
    whole, expected = state_of(here), state_of(there)
    assert whole.keys() == expected.keys()
    for name, values in whole.items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.promise("P31")
@pytest.mark.parametrize(
    ("more", "devices"),
    [
        ("mesh.fsdp=2 mesh.tensor=2", 4),
        ("mesh.data=2 mesh.tensor=2 remat=selective", 4),
        ("mesh.data=2 mesh.fsdp=2 mesh.context=2", 4),
    ],
)
def test_a_sharded_mesh_equals_torch_on_one_device(more: str, devices: int) -> None:
    assert_like_torch(WORDS, more, devices)


@pytest.mark.promise("P31")
@pytest.mark.parametrize("level", ["selective", "full"])
def test_scanned_and_recomputed_blocks_equal_torch(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaves, "SCAN_FROM_CPU", 2)
    assert_like_torch(f"{WORDS} accumulate=2 model.normalize_experts=false", f"remat={level}")


def test_adapters_of_attention_beside_experts_equal_those_of_torch() -> None:
    words = f"{WORDS} {EPS} lora.rank=4 lora.targets=attention"
    there, here = torch_engine(words), jax_engine(f"{words} mesh.fsdp=2 mesh.tensor=2", 4)
    np.testing.assert_allclose(run(here, words, steps=3), run(there, words, steps=3), rtol=1e-5)
    mine, theirs = state_of(here), state_of(there)
    assert mine.keys() == theirs.keys()
    assert not any("experts" in name or "router" in name for name in mine if name.startswith("optimizer/"))


@pytest.mark.promise("P32")
def test_a_state_of_torch_continues_on_jax() -> None:
    words = f"{WORDS} {EPS}"
    there, here = torch_engine(words), jax_engine(f"{words} seed=5 mesh.fsdp=2", 2)
    run(there, words, steps=2)
    give(here, state_of(there))
    for name, values in state_of(there).items():
        np.testing.assert_array_equal(state_of(here)[name], values, err_msg=name)
    np.testing.assert_allclose(run(here, words, 2, first=2), run(there, words, 2, first=2), rtol=1e-5)


def test_the_reference_without_a_framework_has_the_same_loss() -> None:
    words = f"{WORDS} model.normalize_experts=false model.activation=gelu_tanh"
    config = settings(words)
    rows = rows_of(config, 0)
    expected = compute_reference_loss(config.model, make_first_weights(config.model, config.seed), rows)
    for engine in (jax_engine(words), torch_engine(words)):
        engine.step(rows, 0.0, False, 0)
        assert engine.numbers().loss == pytest.approx(expected, rel=1e-5)


def test_marked_tokens_do_not_change_the_weight_of_the_router_loss() -> None:
    """The gradients of two steps that differ only in the coefficient differ by the same, with and without marks."""
    found: dict[str, list[float]] = {}
    for marks in ("all", "marked"):
        for framework in (torch_engine, jax_engine):
            differences: list[float] = []
            before: np.ndarray | None = None
            for weight in (0, 10):
                words = f"{WORDS} model.router_loss={weight} data.loss={marks} grad_clip=0"
                engine: Engine = framework(words)
                config = settings(words)
                rows = rows_of(config, 0)
                if marks == "marked":
                    rows = mark_tokens(rows, np.arange(rows.size).reshape(rows.shape) % 3 == 0, config.model.tokens)
                engine.step(rows, RATE, False, 0)
                gradient = state_of(engine)["optimizer/blocks.1.ffn.router.weight/exp_avg"]
                if before is not None:
                    differences.append(float(np.abs(gradient - before).sum()))
                before = gradient
            found.setdefault(marks, []).extend(differences)
    assert found["all"][0] > 1e-3
    np.testing.assert_allclose(found["marked"] + found["all"][1:], found["all"][0], rtol=1e-3)


def test_a_checkpoint_of_a_dense_model_is_refused_and_other_routing_is_noted() -> None:
    dense, routed = settings(), settings(WORDS)
    with pytest.raises(ConfigError, match=r"model.experts=4, but the checkpoint was made with model.experts=0"):
        check_same_model(flatten_config(dense), routed.model)
    with pytest.raises(ConfigError, match=r"model.expert_hidden=32, but"):
        check_same_model(flatten_config(routed), settings(f"{WORDS} model.expert_hidden=32").model)
    (note,) = check_same_model(flatten_config(routed), settings(f"{WORDS} model.experts_per_token=1").model)
    assert "model.experts_per_token=1, but the checkpoint was made with 2" in note
