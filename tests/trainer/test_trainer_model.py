"""The model, its schedule and its gradients, against plain torch and plain arithmetic."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from trainer.config import ModelConfig
from trainer.distributed import Team
from trainer.environment import World
from trainer.gradients import FlatGradients, PlainGradients
from trainer.model import Transformer, flops_per_token, parameter_count, rotary_table, rotate
from trainer.schedule import learning_rate

SMALL = ModelConfig(dim=32, layers=2, heads=4, kv_heads=2)
ROWS = torch.randint(0, 256, (3, 17), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)


def small(**changes: object) -> Transformer:
    model = Transformer(ModelConfig(**{"dim": 32, "layers": 2, "heads": 4, "kv_heads": 2, **changes}), 16)  # type: ignore[arg-type]  # test values
    model.initialise(0)
    return model


def test_an_untrained_model_knows_nothing() -> None:
    assert small()(ROWS).item() == pytest.approx(math.log(256), abs=0.2)


def test_no_position_sees_a_later_one() -> None:
    model = small()
    tokens = ROWS[:, :-1].long()
    before = model.logits(tokens)
    changed = tokens.clone()
    changed[:, 9] = (changed[:, 9] + 1) % 256
    after = model.logits(changed)
    assert torch.equal(before[:, :9], after[:, :9])
    assert not torch.allclose(before[:, 9:], after[:, 9:])


def test_each_key_head_serves_its_group_of_query_heads() -> None:
    """Grouped heads equal full heads whose keys and values are repeated."""
    grouped, full = small(), small(kv_heads=4)
    state = grouped.state_dict()
    for name in [name for name in state if name.endswith("qkv.weight")]:
        query, key, value = state[name].split([32, 16, 16])
        repeated = [part.view(2, 8, 32).repeat_interleave(2, dim=0).reshape(32, 32) for part in (key, value)]
        state[name] = torch.cat([query, *repeated])
    full.load_state_dict(state)
    torch.testing.assert_close(full(ROWS), grouped(ROWS))


def test_a_tied_head_is_the_embedding_and_counted_once() -> None:
    tied, untied = small(), small(tied=False)
    assert tied.head.weight is tied.embedding.weight
    assert parameter_count(untied) - parameter_count(tied) == 256 * 32
    assert flops_per_token(SMALL, parameter_count(tied), 16) == flops_per_token(
        ModelConfig(dim=32, layers=2, heads=4, kv_heads=2, tied=False), parameter_count(untied), 16
    )


def test_positions_turn_by_their_distance_only() -> None:
    cosine, sine = rotary_table(32, 8, 10_000.0)
    query, key = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)

    def score(at: int, other: int) -> float:
        turned = rotate(query, cosine[at], sine[at]) * rotate(key, cosine[other], sine[other])
        return turned.sum().item()

    assert score(3, 1) == pytest.approx(score(30, 28), abs=1e-4)
    assert score(3, 1) != pytest.approx(score(3, 2), abs=1e-4)


def test_weights_depend_on_the_seed_alone() -> None:
    first, second, other = small(), small(), small()
    other.initialise(1)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.embedding.weight, other.embedding.weight)


@given(steps=st.integers(1, 500), warmup=st.integers(0, 50), floor=st.floats(0, 1), peak=st.floats(1e-6, 1))
def test_the_rate_rises_to_the_peak_and_falls_to_the_floor(steps: int, warmup: int, floor: float, peak: float) -> None:
    rates = [learning_rate(s, peak=peak, warmup=warmup, steps=steps, floor=floor) for s in range(steps + 3)]
    assert all(a <= b + 1e-12 for a, b in pairwise(rates[:warmup]))
    assert all(a >= b - 1e-12 for a, b in pairwise(rates[warmup:]))
    assert max(rates) <= peak * (1 + 1e-9)
    if warmup < steps:
        assert rates[max(0, warmup - 1)] == pytest.approx(peak)
        assert rates[-1] == pytest.approx(peak * floor, abs=1e-12)


@pytest.mark.parametrize("limit", [0.0, 0.5, 1e6])
@pytest.mark.parametrize("bucket_bytes", [1, 20_000, 32 << 20])
def test_flat_gradients_are_clipped_like_torchs_own(limit: float, bucket_bytes: int) -> None:
    flat_model, plain_model = small(), small()
    flat = FlatGradients(flat_model.parameters(), Team(World(), None, 10), bucket_bytes)
    for _ in range(2):  # the second time the buffers are used again
        flat.zero()
        plain_model.zero_grad()
        flat.expect_last()
        loss = flat_model(ROWS)
        loss.backward()
        plain_model(ROWS).backward()
        summary = flat.finish(loss.detach(), stop=False, limit=limit)
        norm = nn.utils.clip_grad_norm_(plain_model.parameters(), limit or float("inf"))
    assert summary.grad_norm.item() == pytest.approx(norm.item(), rel=1e-5)
    assert summary.loss.item() == loss.item()
    assert summary.stops.item() == 0
    for ours, theirs in zip(flat_model.parameters(), plain_model.parameters(), strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_plain_gradients_do_the_same_for_lazy_devices() -> None:
    model = small()
    plain = PlainGradients(model.parameters())
    plain.zero()
    loss = model(ROWS)
    loss.backward()
    summary = plain.finish(loss.detach(), stop=True, limit=0.1)
    total = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
    assert summary.grad_norm > 0.1
    assert total.item() == pytest.approx(0.1, rel=1e-3)
    assert summary.stops.item() == 1
