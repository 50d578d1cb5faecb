"""The parts of the torch engine compared with plain torch, plain arithmetic, and written formulas."""

from __future__ import annotations

import dataclasses
import math
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from trainer.config import Config, ModelConfig, OptimConfig
from trainer.environment import World
from trainer.errors import PeerError
from trainer.shape.architecture import count_flops_per_token, count_parameters, list_parameters
from trainer.shape.initial_values import make_initial_values
from trainer.shape.mesh import Mesh
from trainer.shape.rotary import make_rotary_table
from trainer.tcp_team import SingleProcessTeam
from trainer.torch_engine.adafactor import Adafactor
from trainer.torch_engine.adamw import AdamW
from trainer.torch_engine.engine import open_torch_engine
from trainer.torch_engine.loss import compute_mean_loss, compute_slice_loss, compute_sliced_loss
from trainer.torch_engine.model import Transformer, apply_rotary
from trainer.torch_engine.muon import Muon, orthogonalize
from trainer.torch_engine.optimizer import AveragedWeights, Optimizer
from trainer.torch_engine.parallel import AxisGroups
from trainer.torch_engine.process_group import find_interface_to, translate_errors
from trainer.torch_engine.slots import Slot, fill_initial_values, list_slots

SMALL = ModelConfig(dim=32, layers=2, heads=4, kv_heads=2, vocab=64)
TOKENS = torch.randint(0, 64, (3, 17), generator=torch.Generator().manual_seed(1))


def small(**changes: Any) -> Transformer:
    config = dataclasses.replace(SMALL, **changes)
    model = Transformer(config, 16)
    fill_initial_values(list_slots(model, config, Mesh(), 0), seed=0)
    return model


def logits(model: Transformer, tokens: torch.Tensor) -> torch.Tensor:
    return model(tokens) @ model.head_weight().T


@pytest.mark.parametrize("tied", [True, False])
def test_the_model_has_exactly_the_listed_parameters(tied: bool) -> None:
    config = dataclasses.replace(SMALL, tied=tied, qkv_bias=tied, qk_norm=not tied)
    found = {name: tuple(p.shape) for name, p in Transformer(config, 16).named_parameters()}
    assert found == {p.name: p.shape for p in list_parameters(config)}


@pytest.mark.promise("P37")
def test_a_tied_head_counts_once_as_weight_and_once_as_work() -> None:
    tied, untied = SMALL, dataclasses.replace(SMALL, tied=False)
    assert count_parameters(untied) - count_parameters(tied) == 64 * 32
    assert count_flops_per_token(untied, 16) == count_flops_per_token(tied, 16)
    # By hand. Weights: query and out, key and value, three of the feed-forward layer, the head. Two products forward,
    # four backward. Attention: two products with half of the 16 positions, three times as much in all.
    weights = 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 88 * 32) + 64 * 32
    assert count_flops_per_token(tied, 16) == 6 * weights + 3 * 2 * (2 * 2 * 32 * (16 // 2))


@pytest.mark.promise("P37")
def test_a_window_counts_what_is_attended_to() -> None:
    near = dataclasses.replace(SMALL, window=3)
    attended = sum(min(at, 3) for at in range(1, 101)) / 100
    # The diagonal counts half, as in the mean of seq_len / 2 of all tokens before.
    whole = count_flops_per_token(SMALL, 0)
    assert count_flops_per_token(near, 100) - whole == pytest.approx(12 * 2 * 32 * (attended - 3 / 200))
    assert count_flops_per_token(near, 3) == count_flops_per_token(SMALL, 3)


def test_a_query_attends_to_its_window_alone() -> None:
    model, other = small(layers=1, window=3), TOKENS[:, :16].clone()
    other[:, 5] = (other[:, 5] + 1) % 64
    changed = (logits(model, TOKENS[:, :16]) != logits(model, other)).any(-1).any(0)
    assert changed.nonzero().flatten().tolist() == [5, 6, 7]


@pytest.mark.promise("P31")
def test_initial_values_are_the_same_in_every_engine() -> None:
    model = small()
    for parameter, handle in zip(list_parameters(SMALL), dict(model.named_parameters()).values(), strict=True):
        whole = list_slots(model, SMALL, Mesh(), 0)
        box = next(slot.box for slot in whole if slot.parameter == parameter)
        assert np.array_equal(handle.detach().numpy(), make_initial_values(parameter, box, 0)), parameter.name


def test_an_untrained_model_has_the_loss_of_a_uniform_guess() -> None:
    model = small()
    loss = compute_mean_loss(model(TOKENS[:, :-1]), model.head_weight(), TOKENS[:, 1:])
    assert loss.item() == pytest.approx(math.log(64), abs=0.2)


def test_no_position_sees_a_later_one() -> None:
    model = small()
    tokens = TOKENS[:, :-1]
    before = logits(model, tokens)
    changed = tokens.clone()
    changed[:, 9] = (changed[:, 9] + 1) % 64
    after = logits(model, changed)
    assert torch.equal(before[:, :9], after[:, :9])
    assert not torch.allclose(before[:, 9:], after[:, 9:])


def test_each_key_head_serves_its_group_of_query_heads() -> None:
    """Grouped heads equal full heads whose keys and values are repeated."""
    grouped, full = small(), small(kv_heads=4)
    state = grouped.state_dict()
    for name in [name for name in state if name.endswith(("key.weight", "value.weight"))]:
        state[name] = state[name].view(2, 8, 32).repeat_interleave(2, dim=0).reshape(32, 32)
    full.load_state_dict(state)
    torch.testing.assert_close(full(TOKENS[:, :-1]), grouped(TOKENS[:, :-1]))


def test_rotary_scores_depend_only_on_distance() -> None:
    cosine, sine = torch.from_numpy(make_rotary_table(ModelConfig(head=8), 32))
    query, key = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)

    def score(at: int, other: int) -> float:
        turned = apply_rotary(query, cosine[at : at + 1], sine[at : at + 1]) * apply_rotary(
            key, cosine[other : other + 1], sine[other : other + 1]
        )
        return turned.sum().item()

    assert score(3, 1) == pytest.approx(score(30, 28), abs=1e-4)
    assert score(3, 1) != pytest.approx(score(3, 2), abs=1e-4)


@pytest.mark.parametrize("rows", [1, 7, 48, 100])
def test_the_sliced_loss_equals_the_loss(rows: int) -> None:
    hidden, weight = torch.randn(3, 16, 8), torch.randn(64, 8)
    targets = TOKENS[:, 1:]
    found: list[list[torch.Tensor]] = []
    compilable = partial(compute_sliced_loss, rows=rows, slicer=compute_slice_loss)
    for function in (compute_mean_loss, partial(compute_sliced_loss, rows=rows), compilable):
        x, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        loss = function(x, w, targets) * 0.5
        loss.backward()
        assert x.grad is not None
        assert w.grad is not None
        found.append([loss.detach(), x.grad, w.grad])
    for plain, *sliced in zip(*found, strict=True):
        for other in sliced:
            torch.testing.assert_close(other, plain, atol=1e-6, rtol=1e-5)


def slots_and_gradients(steps: int) -> tuple[list[Slot], list[list[torch.Tensor]]]:
    model = small()
    slots = list(list_slots(model, SMALL, Mesh(), 0))
    draw = torch.Generator().manual_seed(3)
    made = [[torch.randn(s.weight.shape, generator=draw) * 0.01 for s in slots] for _ in range(steps)]
    for gradients in made:
        gradients[0][5] = 0.0  # a token that no row holds
    return slots, made


def apply_all(optimizer: Optimizer, made: list[list[torch.Tensor]], factor: float | None) -> None:
    for step, gradients in enumerate(made):
        scale = None if factor is None else torch.tensor(factor)
        optimizer.apply([g.clone() for g in gradients], scale, 1e-2 / (step + 1), step)


@pytest.mark.promise("P31")
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("factor", [None, 0.25])
def test_adamw_equals_torchs(fused: bool, factor: float | None) -> None:
    config = OptimConfig(weight_decay=0.3)
    slots, made = slots_and_gradients(4)
    model = small()
    handles = list(model.parameters())
    theirs = torch.optim.AdamW(
        [
            {"params": [p for p in handles if p.ndim > 1], "weight_decay": 0.3},
            {"params": [p for p in handles if p.ndim < 2], "weight_decay": 0.0},
        ],
        betas=(config.beta1, config.beta2),
        eps=config.eps,
    )
    for step, gradients in enumerate(made):
        for group in theirs.param_groups:
            group["lr"] = 1e-2 / (step + 1)
        for handle, gradient in zip(handles, gradients, strict=True):
            handle.grad = gradient * (factor or 1.0)
        theirs.step()
    apply_all(AdamW(slots, config, fused=fused), made, factor)
    for slot, handle in zip(slots, handles, strict=True):
        torch.testing.assert_close(slot.weight, handle.detach(), atol=1e-6, rtol=1e-5)


@pytest.mark.promise("P31")
@pytest.mark.parametrize("narrow", [True, False], ids=["bf16", "fp32"])
def test_muon_equals_torchs_which_multiplies_in_bf16(narrow: bool) -> None:
    config = OptimConfig(kind="muon", weight_decay=0.3)
    slots, made = slots_and_gradients(4)
    handles = list(small().parameters())
    hidden = [
        at for at, slot in enumerate(slots) if slot.parameter.name.startswith("blocks.") and handles[at].ndim == 2
    ]
    others = [at for at in range(len(slots)) if at not in hidden]
    theirs = torch.optim.Muon(
        [handles[at] for at in hidden], weight_decay=0.3, momentum=config.momentum, adjust_lr_fn="match_rms_adamw"
    )
    for step, gradients in enumerate(made):
        theirs.param_groups[0]["lr"] = 1e-2 / (step + 1)
        for handle, gradient in zip(handles, gradients, strict=True):
            handle.grad = gradient * 0.25
        theirs.step()
    start = [slot.weight.clone() for slot in slots]
    optimizer = Muon(slots, config, Mesh(), 0, narrow=narrow, fused=False)
    apply_all(optimizer, made, 0.25)
    for at in hidden:
        moved = (handles[at].detach() - start[at]).abs().max().item()
        torch.testing.assert_close(
            slots[at].weight, handles[at].detach(), atol=1e-7 if narrow else 0.05 * moved, rtol=0
        )
    rest, gradients_of_rest = slots_and_gradients(4)
    apply_all(AdamW(rest, config, fused=False), gradients_of_rest, 0.25)
    for at in others:
        assert torch.equal(slots[at].weight, rest[at].weight)
    suffixes = {moment.slot.parameter.name: moment.suffix for moment in optimizer.moments()}
    assert {name for name, suffix in suffixes.items() if suffix == "momentum_buffer"} == {
        slots[at].parameter.name for at in hidden
    }


def test_orthogonalized_matrices_have_singular_values_near_one() -> None:
    draw = torch.Generator().manual_seed(5)
    for shape in ((24, 8), (8, 24), (16, 16)):
        values = torch.linalg.svdvals(orthogonalize(torch.randn(shape, generator=draw)))
        assert values.min() > 0.4 and values.max() < 1.3, shape
    assert not orthogonalize(torch.zeros(3, 5)).any()


@pytest.mark.promise("P31")
def test_adafactor_equals_its_written_formula() -> None:
    config = OptimConfig(kind="adafactor", weight_decay=0.3)
    slots, made = slots_and_gradients(4)
    weights = [slot.weight.numpy().astype(np.float64) for slot in slots]
    optimizer = Adafactor(slots, config, Mesh(), AxisGroups(mesh=None, data=None, fsdp=None, tensor=None))
    apply_all(optimizer, made, 0.5)
    state: dict[int, Any] = {}
    b = config.beta2
    for step, gradients in enumerate(made):
        rate, c = 1e-2 / (step + 1), 1 - b ** (step + 1)
        for index, gradient in enumerate(gradients):
            g = gradient.numpy().astype(np.float64) * 0.5
            s = g * g + 1e-30
            if g.ndim == 2:
                row, column = state.get(index, (0.0, 0.0))
                row, column = b * row + (1 - b) * s.mean(1), b * column + (1 - b) * s.mean(0)
                state[index] = row, column
                u = g / np.sqrt(row / row.mean())[:, None] / np.sqrt(column / c)
                weights[index] = weights[index] * (1 - rate * 0.3)
            else:
                state[index] = b * state.get(index, 0.0) + (1 - b) * s
                u = g / np.sqrt(state[index] / c)
            weights[index] = weights[index] - rate * u / max(1.0, float(np.sqrt((u * u).mean())))
    for slot, weight in zip(slots, weights, strict=True):
        np.testing.assert_allclose(slot.weight.numpy(), weight, atol=1e-5, err_msg=slot.parameter.name)
    names = {(moment.slot.parameter.name, moment.suffix) for moment in optimizer.moments()}
    assert ("embedding.weight", "row") in names
    assert ("embedding.weight", "column") in names
    assert ("norm.weight", "full") in names


@pytest.mark.promise("P31")
def test_averaged_weights_are_the_weighted_sum() -> None:
    slots, made = slots_and_gradients(3)
    averages = AveragedWeights(slots, OptimConfig(ema=0.75))
    expected = slots[0].weight.clone()
    for gradients in made:
        slots[0].weight.sub_(gradients[0])
        averages.apply()
        expected = 0.75 * expected + 0.25 * slots[0].weight
    torch.testing.assert_close(averages.moments()[0].values, expected)


def test_blocks_share_one_compiled_program_and_keep_their_names() -> None:
    from trainer.torch_engine.compiling import TorchCompiler

    calls: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        calls.append(1)
        return graph.forward

    model = small()
    plain = model(TOKENS[:, :-1])
    compiled = TorchCompiler(backend)  # type: ignore[arg-type]  # torch takes a function too
    for block in model.blocks:
        block.forward = compiled(block.forward)
    torch.testing.assert_close(model(TOKENS[:, :-1]), plain)
    assert len(calls) == 1
    assert compiled.failure == ""
    assert "blocks.0.attention.query.weight" in dict(model.named_parameters())


def test_a_failing_compiler_is_not_used_again() -> None:
    from trainer.torch_engine.compiling import TorchCompiler

    def backend(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("no compiler here")

    compiled = TorchCompiler(backend)  # type: ignore[arg-type]  # torch takes a function too
    linear = nn.Linear(4, 4)
    x = torch.randn(2, 4)
    torch.testing.assert_close(compiled(linear.forward)(x), linear(x))
    assert "no compiler here" in compiled.failure


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("Connection closed by peer [127.0.0.1]:4242", True),
        ("[/gloo/transport/tcp/pair.cc:534] Read error [127.0.0.1]:4242: Connection reset by peer", True),
        ("Socket Timeout", True),
        ("ncclRemoteError: a call failed possibly due to a network error or a remote peer exiting", True),
        ("wait timeout after 1800000ms, keys: /default_pg/0//1 in the TCPStore", True),
        ("Broken pipe", True),
        ("could not restore the graph", False),
        ("peer access is not supported between these two devices", False),
        ("no kernel for this vector store", False),
        ("store vectorization failed", False),
        ("websockets are not there", False),
        ("mat1 and mat2 shapes cannot be multiplied", False),
    ],
)
def test_a_lost_rank_is_distinguished_from_a_local_error(text: str, lost: bool) -> None:
    def fail(ranks: int) -> None:
        with translate_errors(World(size=ranks), 5):
            raise RuntimeError(text)

    with pytest.raises(PeerError if lost else RuntimeError):
        fail(2)
    with pytest.raises(RuntimeError):
        fail(1)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux")
def test_the_interface_to_a_host_is_named_and_an_unknown_host_has_none() -> None:
    assert find_interface_to("127.0.0.1", 9) == "lo"
    assert find_interface_to("::1", 9) == ""


@pytest.mark.promise("P36")
def test_programs_that_do_not_fit_together_have_different_digests() -> None:
    base = Config(model=SMALL, batch=8, seq_len=16, threads=torch.get_num_threads())
    others = [
        dataclasses.replace(base, **change)
        for change in (
            {"model": dataclasses.replace(SMALL, layers=1)},
            {"dtype": "bf16"},
            {"accumulate": 2},
            {"grad_clip": 0.0},
            {"remat": "selective"},
            {"remat": "full"},
            {"optim": OptimConfig(kind="adafactor")},
            {"optim": OptimConfig(kind="muon")},
        )
    ]
    alone = World()
    programs = [
        open_torch_engine(config, alone, SingleProcessTeam(alone)).program() for config in (base, base, *others)
    ]
    assert programs[0] == programs[1] and len(set(programs)) == 1 + len(others)
