"""Documents packed into rows: each has the logits, losses and gradients that it has alone, on any mesh."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # the usual name
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask
from torch_cases import SMALL, engine_on, join_once, rows_of
from torch_worlds import in_world

from trainer.config import Config, DataConfig, ModelConfig, RematLevel
from trainer.data.tokens.document_starts import mark_starts
from trainer.data.tokens.marks import mark_tokens
from trainer.engine import TokenArray
from trainer.environment import World
from trainer.shape.memory import estimate_memory
from trainer.shape.mesh import Mesh
from trainer.team import Team
from trainer.torch_engine.attention_mask import TILE, attend_by_tiles, make_attention_mask, split_documents
from trainer.torch_engine.build import list_notes
from trainer.torch_engine.compiling import TorchCompiler, count_compiled_graphs
from trainer.torch_engine.model import Transformer
from trainer.torch_engine.recomputation import choose_rerun
from trainer.torch_engine.rehearsal import rehearse_step
from trainer.torch_engine.slots import fill_initial_values, list_slots
from trainer.torch_engine.untyped import run_backward

change = dataclasses.replace
MODEL = ModelConfig(dim=64, layers=2, heads=4, kv_heads=2, vocab=64)
MASKED = change(SMALL, data=DataConfig(document_mask=True))
ENDS = ((7, 8, 20), (13,))  # of the documents of two rows of 24 tokens, but the last ones'


def small(config: ModelConfig, length: int, *, tiled: bool = False, remat: RematLevel = "none") -> Transformer:
    model = Transformer(config, length, choose_rerun(remat), tiled=tiled)
    fill_initial_values(list_slots(model, config, Mesh(), 0), seed=0)
    return model


def packed(length: int = 24, ends: tuple[tuple[int, ...], ...] = ENDS) -> tuple[Tensor, Tensor]:
    """Return tokens, and the numbers of their documents."""
    tokens = torch.randint(0, 64, (len(ends), length), generator=torch.Generator().manual_seed(1))
    numbers = torch.stack([(torch.arange(length)[:, None] >= torch.tensor(row)).sum(dim=1) for row in ends])
    return tokens, numbers.to(torch.int32)


@pytest.mark.parametrize("window", [0, 5])
def test_packed_documents_have_the_logits_and_gradients_of_each_alone(window: int) -> None:
    config, (tokens, numbers) = change(MODEL, window=window), packed()

    def collect(losses: Callable[[Transformer], Tensor]) -> list[Tensor]:
        model = small(config, 24)
        run_backward(losses(model))
        return [weight.grad for weight in model.parameters() if weight.grad is not None]

    together = small(config, 24)(tokens, numbers)
    cuts = [(row, *cut) for row, ends in enumerate(ENDS) for cut in zip((0, *ends), (*ends, 24), strict=True)]
    for row, first, end in cuts:
        torch.testing.assert_close(together[row, first:end], small(config, 24)(tokens[row : row + 1, first:end])[0])
    across = small(config, 24)(tokens)
    assert not torch.allclose(together[0, 8], across[0, 8], atol=1e-2)

    def of_all(model: Transformer) -> Tensor:
        logits = model(tokens, numbers) @ model.head_weight().T
        losses = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
        return losses[(numbers[:, :-1] == numbers[:, 1:]).flatten()].sum()

    def of_each(model: Transformer) -> Tensor:
        total = torch.zeros(())
        for row, first, end in cuts:
            logits = model(tokens[row : row + 1, first:end]) @ model.head_weight().T
            total = total + F.cross_entropy(logits[0, :-1], tokens[row, first + 1 : end], reduction="sum")
        return total

    for one, other in zip(collect(of_all), collect(of_each), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_numbers_of_documents_are_found_beside_marks() -> None:
    tokens = np.arange(8)[None].repeat(2, axis=0)
    starts = np.zeros((2, 8), np.bool_)
    starts[0, [1, 5, 7]] = True
    marked = mark_tokens(tokens, np.arange(8) % 3 > 0, 64)
    rows, numbers = split_documents(torch.from_numpy(mark_starts(marked, starts).astype(np.int64)))
    assert rows.tolist() == marked.tolist()
    assert numbers.tolist() == [[0, 1, 1, 1, 1, 2, 2], [0] * 7]


@pytest.mark.parametrize("window", [0, 1, 100, 128, 200, 400])
@pytest.mark.parametrize("length", [2 * TILE, 4 * TILE + 31])
@pytest.mark.parametrize("divided", [True, False])
def test_tiles_are_those_of_the_mask_that_sdpa_gets(length: int, window: int, divided: bool) -> None:
    ends = ((1, TILE, TILE + 9, TILE + 10), (length - 3,), (100, 2 * TILE - 1), ())
    tokens, documents = packed(length, ends)
    numbers = documents if divided else None
    mask = make_attention_mask(tokens, window, numbers, dtype=torch.float32, tiled=True)
    if mask is None:
        assert not (divided or 0 < window < length)
        return
    tiles: Any = mask.tiles
    added = make_attention_mask(tokens, window, numbers, dtype=torch.float32, tiled=False)
    assert added is not None
    assert added.added is not None
    whole = (added.added.view(-1, 1, length, length) == 0).expand(tiles.shape[0], -1, -1, -1)
    unchecked: Any = create_block_mask
    expected = unchecked(lambda b, h, q, k: whole[b, h, q, k], tiles.shape[0], 1, length, length, device="cpu")
    assert torch.equal(tiles.to_dense(), expected.to_dense())
    counts = tiles.full_kv_num_blocks
    for row, head, at in counts.nonzero().tolist():
        for number in tiles.full_kv_indices[row, head, at, : counts[row, head, at]].tolist():
            area = whole[row, 0, at * TILE : at * TILE + TILE, number * TILE : number * TILE + TILE]
            assert area.all(), (row, at, number)
    draw = torch.Generator().manual_seed(2)
    query, key, value = (torch.randn((len(ends), heads, length, 16), generator=draw) for heads in (4, 2, 2))
    found = attend_by_tiles(query, key, value, tiles, 16**-0.5)
    plain = F.scaled_dot_product_attention(query, key, value, attn_mask=added.added, enable_gqa=True)
    torch.testing.assert_close(found, plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("remat", ["none", "selective", "full"])
def test_a_compiled_block_takes_other_documents_without_another_program(remat: RematLevel) -> None:
    """Without gradients, which flex_attention has on GPUs alone."""
    model, plain = small(MODEL, 24, tiled=True, remat=remat), small(MODEL, 24)
    compiled = TorchCompiler("aot_eager")
    for block in model.blocks:
        unchecked: Any = block  # a method is replaced
        unchecked.forward = compiled(block.forward)
    tokens, numbers = packed()
    before = count_compiled_graphs()
    counts: list[int] = []
    with torch.no_grad():
        for documents in (numbers, numbers.flip(0), torch.zeros_like(numbers)):
            torch.testing.assert_close(model(tokens, documents), plain(tokens, documents), rtol=1e-5, atol=1e-5)
            counts.append(count_compiled_graphs() - before)
    assert counts[0] == counts[-1] > 0
    assert not compiled.failure


def started_rows(config: Config, step: int) -> TokenArray:
    """Begin documents at other places in each row."""
    rows = rows_of(config, step)
    count, width = rows.shape
    if not config.data.document_mask:
        return rows
    return mark_starts(rows, np.array([[at % (5 + row) == 3 for at in range(width)] for row in range(count)]))


def on_meshes(world: World, team: Team, cases: list[tuple[Config, Mesh]]) -> list[list[tuple[float, float]]]:
    join_once(world, team)
    found: list[list[tuple[float, float]]] = []
    for config, mesh in cases:
        engine = engine_on(config, world, mesh)
        first, count = engine.share.rows(config.batch)
        outcome: list[tuple[float, float]] = []
        for step in range(2):
            rows = started_rows(config, step)[first : first + count]
            evaluated = engine.evaluate(rows)
            engine.step(rows, 3e-3, False, step)
            numbers = engine.numbers()
            assert evaluated == pytest.approx(numbers.loss, abs=2e-6)
            outcome.append((numbers.loss, numbers.grad_norm))
        assert not list_notes(engine._build)  # no compiler has failed
        found.append(outcome)
    return found


@pytest.mark.slow
def test_compiled_and_recomputed_blocks_give_the_same_and_without_the_mask_other_numbers() -> None:
    near = change(MASKED, model=change(MASKED.model, window=6))
    cases = [
        MASKED,
        change(MASKED, data=DataConfig()),
        near,
        change(near, compile="true", remat="selective"),
        change(near, remat="full", accumulate=2),
    ]
    plain, across, windowed, *others = on_meshes(World(), None, [(one, Mesh()) for one in cases])  # type: ignore[arg-type]  # alone
    assert np.abs(np.array(plain) - np.array(across)).max() > 1e-3
    for other in others:
        assert other == pytest.approx(np.array(windowed), abs=1e-5)


def test_a_run_within_documents_is_another_program() -> None:
    one, other = (engine_on(config, World(), Mesh()) for config in (MASKED, SMALL))
    assert one.program() != other.program()


@pytest.mark.slow
def test_meshes_and_micro_batches_have_the_numbers_of_one_device() -> None:
    (single,) = on_meshes(World(), None, [(MASKED, Mesh())])  # type: ignore[arg-type]  # alone
    in_two = change(MASKED, accumulate=2)
    cases = [(MASKED, Mesh(2)), (in_two, Mesh(2)), (MASKED, Mesh(1, 2)), (in_two, Mesh(1, 1, 2))]
    cases += [(change(MASKED, compile="true"), Mesh(1, 1, 2)), (in_two, Mesh(1, 2, 1, 2)), (in_two, Mesh(pipeline=2))]
    for rank in in_world(2, on_meshes, cases):
        for (config, mesh), outcome in zip(cases, rank, strict=True):
            assert outcome == pytest.approx(np.array(single), abs=1e-5), (config.accumulate, mesh)


def test_the_plan_counts_the_mask_of_each_row() -> None:
    config = change(MASKED, batch=4, seq_len=256, model=change(MASKED.model, dim=64, layers=3, vocab=256))
    plain = change(config, data=DataConfig())
    planned = [estimate_memory(one, Mesh(), "torch").total for one in (plain, config)]
    assert planned[1] - planned[0] == 4 * 4 * 256**2
    before, after = (rehearse_step(one, Mesh()).peak for one in (plain, config))
    assert after - before == pytest.approx(planned[1] - planned[0], rel=0.3)
    assert estimate_memory(config, Mesh(), "jax") == estimate_memory(plain, Mesh(), "jax")
