"""Products in float8: compared with rounded operands, on meshes, and refused where they cannot be."""

from __future__ import annotations

import dataclasses
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_cases import RATE, SMALL, engine_on, join_once, share_of
from torch_worlds import in_world

from trainer.accelerators.registry import open_native_device
from trainer.config import Config, Float8Name, LoraConfig, MeshConfig, ModelConfig
from trainer.environment import World
from trainer.errors import ConfigError
from trainer.options import parse_config
from trainer.shape.advice import build_advice
from trainer.shape.float8 import refuse_float8
from trainer.shape.hardware import Hardware
from trainer.shape.mesh import Mesh
from trainer.shape.search import list_ways
from trainer.team import Team
from trainer.torch_engine.engine import TorchEngine
from trainer.torch_engine.float8 import convert_blocks
from trainer.torch_engine.model import Transformer
from trainer.torch_engine.slots import fill_initial_values, list_slots

change = dataclasses.replace
MODEL = ModelConfig(dim=32, layers=2, heads=4, kv_heads=2, head=8, ffn=48, vocab=64)
NARROW = change(SMALL, dtype="bf16", model=MODEL, remat="none")
LARGEST = 448.0  # of float8_e4m3fn


def round_to_float8(values: Tensor, *, rows: bool) -> Tensor:
    """Scale so that the largest value is float8's largest, of all or of each row, and round."""
    most = values.abs().amax(dim=-1, keepdim=True) if rows else values.abs().max()
    scale = LARGEST / most.double()
    if rows:  # to a power of two
        scale = torch.exp2(torch.floor(torch.log2(scale)))
    return ((values.double() * scale).float().to(torch.float8_e4m3fn).double() / scale).float()


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise"])
def test_a_layer_multiplies_operands_rounded_to_float8(recipe: Float8Name) -> None:
    model = Transformer(MODEL, 16)
    fill_initial_values(list_slots(model, MODEL, Mesh(), 0), seed=0)
    convert_blocks(model, recipe, open_native_device("cpu", World()))
    layer = model.blocks[1].ffn.gate  # type: ignore[union-attr]  # a block has one
    x = torch.randn(4, 16, 32, generator=torch.Generator().manual_seed(1)).bfloat16()
    by_row = recipe == "rowwise"
    weight = layer.weight.detach()  # type: ignore[union-attr,operator]  # as above
    expected = round_to_float8(x.float(), rows=by_row) @ round_to_float8(weight, rows=by_row).T
    found = layer(x)  # type: ignore[operator]  # as above
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, rtol=2**-8, atol=1e-6)
    assert not torch.equal(found, torch.nn.functional.linear(x, weight.bfloat16()))
    assert type(model.embedding).__name__ == "Embedding"


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise"])
def test_micro_batches_have_any_number_of_tokens(recipe: Float8Name) -> None:
    """Tensors without values are checked as a GPU's products check theirs."""
    accelerator = open_native_device("cpu", World())
    accelerator.name = "neuron"  # type: ignore[misc]  # of the real class; products on "cpu" are emulated
    with torch.device("meta"):
        model = Transformer(MODEL, 16)
        convert_blocks(model, recipe, accelerator)
        layer = model.blocks[0].ffn.gate  # type: ignore[union-attr]  # a block has one
        for tokens in (16, 24, 7):
            result = layer(torch.empty(1, tokens, 32, dtype=torch.bfloat16))  # type: ignore[operator]  # as above
            result.sum().backward()
            assert result.shape == (1, tokens, 48)


def lose(world: World, team: Team, config: Config, mesh: Mesh) -> list[float]:
    join_once(world, team)
    engine = engine_on(config, world, mesh)
    found = []
    for step in range(4):
        engine.step(share_of(engine, config, step), RATE, False, step)
        found.append(engine.numbers().loss)
    return found


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise"])
def test_sharded_ranks_have_the_losses_of_one_device(recipe: Float8Name) -> None:
    config = change(NARROW, float8=recipe)
    (one,) = in_world(1, lose, config, Mesh())
    assert one != in_world(1, lose, NARROW, Mesh())[0]
    first, second = in_world(2, lose, config, Mesh(fsdp=2))
    assert first == second == pytest.approx(one, abs=5e-3)
    early, late = in_world(2, lose, config, Mesh(fsdp=2, context=2))
    assert early == late == pytest.approx(one, abs=5e-3)
    again = in_world(1, lose, change(config, remat="full"), Mesh())[0]
    assert again == one


@pytest.mark.parametrize(("recipe", "set_options"), [("rowwise", {"emulate_precision_casts": True}), ("none", None)])
def test_only_blocks_are_compiled_with_the_options_of_float8(
    recipe: Float8Name, set_options: dict[str, bool] | None
) -> None:
    seen: list[tuple[str, dict[str, bool] | None]] = []

    def compile_nothing(graph: Any, _inputs: Any, *, options: dict[str, bool] | None = None) -> Any:
        of_block = any("silu" in str(node.target) for node in graph.graph.nodes)
        seen.append(("block" if of_block else "other", options))
        return graph.forward

    accelerator = open_native_device("cpu", World())
    accelerator.compiler = compile_nothing  # type: ignore[misc,assignment]  # torch takes a function too
    config = change(NARROW, float8=recipe, compile="true")
    torch.compiler.reset()
    engine = TorchEngine(config, World(), accelerator, Mesh())
    engine.step(share_of(engine, config, 0), RATE, False, 0)
    assert {kind for kind, _ in seen} == {"block", "other"}
    assert all(options == (set_options if kind == "block" else None) for kind, options in seen)
    assert not import_module("torch._inductor.config").emulate_precision_casts, "nothing holds for the process"


@pytest.mark.parametrize(
    ("changed", "kind", "chip", "message"),
    [
        (change(NARROW, engine="jax"), "cuda", "H100", "engine=torch"),
        (NARROW, "tpu", "v5e", "only NVIDIA GPUs"),
        (NARROW, "cuda", "A100", "A100 has no such products"),
        (change(NARROW, dtype="fp32"), "cuda", "H100", "dtype=bf16"),
        (change(NARROW, lora=LoraConfig(rank=2)), "cuda", "H100", "LoRA"),
        (change(NARROW, mesh=MeshConfig(tensor=2)), "cuda", "H100", "mesh.fsdp"),
        (change(NARROW, remat="selective"), "cuda", "H100", "remat=full or none"),
        (change(NARROW, model=change(MODEL, experts=4)), "cuda", "H100", "a mixture of experts cannot"),
        (change(NARROW, model=change(MODEL, ffn=40)), "cuda", "H100", "32, 40, 32, 16, must be multiples of 16"),
    ],
)
def test_float8_is_refused_where_it_cannot_run(changed: Config, kind: str, chip: str, message: str) -> None:
    refuse_float8(changed, kind, chip)  # without float8 nothing is
    with pytest.raises(ConfigError, match="float8=rowwise: ") as refused:
        refuse_float8(change(changed, float8="rowwise"), kind, chip)
    assert message in str(refused.value)


def test_search_takes_no_tensor_axis_with_float8() -> None:
    words = ["model=300m", "batch=8", "seq_len=512", "engine=torch", "dtype=bf16", "model.vocab=32768"]
    card = Hardware(name="h100", kind="cuda", devices=8, chip="H100")
    plain, narrow = (list_ways(parse_config([*words, *more]), card) for more in ([], ["float8=tensorwise"]))
    assert {mesh.tensor for _, mesh in plain} > {1}
    assert {mesh.tensor for _, mesh in narrow} == {1}


def test_plan_knows_float8() -> None:
    words = ["model=3b", "batch=8", "seq_len=4096", "engine=torch", "model.vocab=32768"]
    card = Hardware(name="h100", kind="cuda", devices=2, chip="H100", memory_bytes=80 << 30, peak_flops=989e12)
    plain, narrow = (build_advice(parse_config([*words, *more]), card) for more in ([], ["float8=tensorwise"]))
    assert plain.timing.seconds is not None and narrow.timing.seconds is not None
    assert narrow.timing.seconds < plain.timing.seconds
    assert narrow.memory.total < plain.memory.total
    assert "float8=tensorwise" in narrow.speed_settings and "float8" not in plain.speed_settings
    with pytest.raises(ConfigError, match="A100 has no such products"):
        build_advice(parse_config([*words, "float8=rowwise"]), change(card, chip="A100"))
