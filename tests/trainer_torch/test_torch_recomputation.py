"""What each level of `remat` computes again in the torch engine, and that it changes no bit."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from trainer.config import ModelConfig, RematLevel
from trainer.options import parse_config
from trainer.shape.memory import estimate_memory
from trainer.shape.mesh import Mesh
from trainer.shape.timing import Traffic
from trainer.torch_engine.loss import compute_mean_loss
from trainer.torch_engine.model import Transformer
from trainer.torch_engine.recomputation import choose_rerun
from trainer.torch_engine.rehearsal import rehearse_step
from trainer.torch_engine.slots import fill_initial_values, list_slots

SMALL = ModelConfig(dim=32, layers=3, heads=4, kv_heads=2, vocab=64)
TOKENS = torch.randint(0, 64, (3, 17), generator=torch.Generator().manual_seed(1))
LEVELS: tuple[RematLevel, ...] = ("none", "selective", "full")


class CountCalls(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls[str(func)] += 1
        return func(*args, **(kwargs or {}))


def run(level: RematLevel, *, narrow: bool) -> tuple[list[torch.Tensor], Counter[str]]:
    model = Transformer(SMALL, 16, choose_rerun(level))
    fill_initial_values(list_slots(model, SMALL, Mesh(), 0), seed=0)
    with CountCalls() as counter:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=narrow):
            loss = compute_mean_loss(model(TOKENS[:, :-1]), model.head_weight(), TOKENS[:, 1:])
        torch.autograd.backward(loss)
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert len(gradients) == len(list(model.parameters()))
    return [loss.detach(), *gradients], counter.calls


@pytest.mark.parametrize("narrow", [False, True], ids=["fp32", "bf16"])
def test_recomputation_changes_no_bit_and_selective_repeats_no_product(narrow: bool) -> None:
    found = {level: run(level, narrow=narrow) for level in LEVELS}
    for level in LEVELS:
        assert all(torch.equal(a, b) for a, b in zip(found[level][0], found["none"][0], strict=True)), level
    calls = {level: counts for level, (_, counts) in found.items()}
    products = {level: calls[level]["aten.mm.default"] for level in LEVELS}
    assert products["selective"] == products["none"]
    assert products["full"] == products["none"] + 6 * SMALL.layers  # the last product is not needed again
    attention = "aten._scaled_dot_product_flash_attention_for_cpu.default"
    assert [calls[level][attention] for level in LEVELS] == [SMALL.layers, SMALL.layers, 2 * SMALL.layers]
    assert calls["selective"]["aten.silu.default"] == calls["full"]["aten.silu.default"] == 2 * SMALL.layers


def test_recomputation_of_experts_repeats_no_choice_and_one_product() -> None:
    config = dataclasses.replace(SMALL, experts=4, expert_hidden=24)
    found: dict[str, list[torch.Tensor]] = {}
    calls: dict[str, Counter[str]] = {}
    for level in LEVELS:
        model = Transformer(config, 16, choose_rerun(level, experts=True))
        fill_initial_values(list_slots(model, config, Mesh(), 0), seed=0)
        with CountCalls() as counter:
            hidden = model(TOKENS[:, :-1])
            assert model.balance is not None and model.balance.shape == (3, 2, 4)
            torch.autograd.backward(hidden.square().sum() + model.balance[:, 1].square().sum())
        found[level] = [p.grad for p in model.parameters() if p.grad is not None]
        calls[level] = counter.calls
        assert len(found[level]) == len(list(model.parameters()))
        assert all(torch.equal(a, b) for a, b in zip(found[level], found["none"], strict=True)), level
    products = {level: calls[level]["orch_trainer.multiply_groups.default"] for level in LEVELS}
    assert products["none"] == 2 * 3 * config.layers  # with those of the inputs' gradients
    assert products["selective"] == products["none"] + config.layers  # the last one, whose result is large
    assert products["full"] == products["none"] + 3 * config.layers
    for operation in ("aten.topk.default", "aten.sort.stable", "aten.mm.default"):
        assert calls["selective"][operation] == calls["none"][operation] < calls["full"][operation], operation


def test_a_model_that_is_evaluated_keeps_and_repeats_nothing() -> None:
    model = Transformer(SMALL, 16, choose_rerun("selective"))
    with torch.no_grad(), CountCalls() as counter:
        model.eval()(TOKENS[:, :-1])
    assert counter.calls["aten.mm.default"] == 7 * SMALL.layers


@pytest.mark.parametrize("mesh", [Mesh(), Mesh(1, 2), Mesh(1, 1, 2), Mesh(1, 2, 2)], ids=repr)
def test_less_memory_with_more_recomputation_and_traffic_as_the_plan_counts_it(mesh: Mesh) -> None:
    config = parse_config(["model=10m", "model.layers=4", "batch=16", "dtype=bf16", "engine=torch", "model.vocab=512"])
    peaks: list[int] = []
    for level in LEVELS:
        chosen = dataclasses.replace(config, remat=level)
        found = rehearse_step(chosen, mesh)
        peaks.append(found.peak)
        sent = {one.kind: one.bytes for one in found.collectives}
        planned = Traffic.of(chosen, mesh)
        if mesh.devices > 1:
            gathered = (sent["all_gather"] + sent["reduce_scatter"]) / 2  # a ring of two sends half
            assert planned.fsdp + planned.tensor == pytest.approx(gathered, rel=0.01)
    assert peaks[2] < 0.8 * peaks[1] < 0.8 * 0.85 * peaks[0]


@pytest.mark.parametrize("level", LEVELS)
def test_the_plan_counts_one_mask_of_a_window_for_all_blocks(level: RematLevel) -> None:
    words = ["model=10m", "model.layers=4", "batch=1", "seq_len=1024", "dtype=bf16", "engine=torch", f"remat={level}"]
    words.append("device=cpu")  # CUDA's kernel for a mask also repeats keys and values
    configs = [parse_config(words), parse_config([*words, "model.window=64"])]
    whole, near = (rehearse_step(config, Mesh()).peak for config in configs)
    planned = [estimate_memory(config, Mesh(), "torch").total for config in configs]
    assert planned[1] - planned[0] == 2 * 1024**2
    assert near - whole == pytest.approx(planned[1] - planned[0], abs=2 * 1024**2)
