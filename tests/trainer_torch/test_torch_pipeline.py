"""Stages of a pipeline: what each has and needs, where they are refused, what a plan says of them, and their errors."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch_cases import SMALL

from trainer.commands import rehearse_world
from trainer.config import Config, ModelConfig
from trainer.errors import ConfigError
from trainer.options import parse_config
from trainer.shape.advice import build_advice
from trainer.shape.architecture import list_parameters
from trainer.shape.hardware import Hardware, Kind
from trainer.shape.memory import estimate_memory
from trainer.shape.mesh import Mesh, Topology, assign_rows, resolve_mesh
from trainer.shape.pipeline import compute_slowdown, list_stages, make_stage
from trainer.shape.search import find_fastest
from trainer.shape.timing import Traffic
from trainer.torch_engine.pipeline import Pipeline
from trainer.torch_engine.rehearsal import rehearse_step
from trainer.torch_engine.untyped import dist

change = dataclasses.replace
IN_FOUR = change(SMALL, accumulate=4, model=change(SMALL.model, layers=4))
GIB = 1 << 30


def two_hosts(kind: Kind = "cuda", network: float = 1.25e9) -> Hardware:
    return Hardware(
        name="two",
        kind=kind,
        chip={"cuda": "A100-80GB", "tpu": "v5e"}.get(kind, ""),
        devices=16,
        hosts=2,
        memory_bytes=80 * GIB,
        peak_flops=312e12,
        network=network,
    )


@pytest.mark.parametrize("tied", [True, False])
def test_each_parameter_is_on_one_stage_and_a_tied_embedding_on_the_first_and_the_last(tied: bool) -> None:
    model = change(IN_FOUR.model, tied=tied)
    stages = list_stages(model, Mesh(data=2, pipeline=4))
    for parameter in list_parameters(model):
        places = [stage.index for stage in stages if stage.has(parameter)]
        if parameter.name.startswith("blocks."):
            assert places == [int(parameter.name.split(".")[1])]
        else:
            assert places == ([0, 3] if tied else [0]) if parameter.role == "embedding" else [3]
    assert [stage.twin for stage in stages] == ([3, None, None, 0] if tied else [None] * 4)


def test_the_devices_of_a_stage_follow_each_other_and_stages_have_the_same_rows() -> None:
    model = ModelConfig(dim=64, layers=4)
    config = parse_config(["mesh.pipeline=2", "mesh.tensor=2"]).mesh
    mesh = resolve_mesh(config, Topology(devices=16, fast_devices=4, shard_weights=True), model)
    assert mesh == Mesh(data=2, fsdp=2, tensor=2, pipeline=2)
    assert [mesh.get_stage(device) for device in (0, 7, 8, 15)] == [0, 0, 1, 1]
    assert all(mesh.coordinates(device) == mesh.coordinates(device + 8) for device in range(8))
    assert [mesh.get_device(mesh.get_stage(at), *mesh.coordinates(at)) for at in range(16)] == list(range(16))
    assert [assign_rows(mesh, process, 16).rows(8) for process in (0, 5, 8, 13)] == [(0, 2), (4, 2)] * 2
    with pytest.raises(ConfigError, match=r"mesh.data=3 x mesh.fsdp=2 x mesh.tensor=1 is 6, but .* 8 devices of a st"):
        resolve_mesh(parse_config(["mesh.pipeline=2", "mesh.data=3"]).mesh, Topology(16, 4, False), model)
    with pytest.raises(ConfigError, match=r"mesh.pipeline=3 does not divide the 16 devices"):
        resolve_mesh(parse_config(["mesh.pipeline=3"]).mesh, Topology(16, 4, False), model)


@pytest.mark.parametrize(
    ("kind", "words", "message"),
    [
        ("tpu", "", "JAX has no pipeline parallelism: leave it out, or use engine=torch on CPUs and NVIDIA GPUs"),
        ("cuda", "engine=jax", "JAX has no pipeline"),
        ("tpu", "engine=torch", "torch on a TPU has no pipeline"),
        ("tpu", "device=xla", "torch_xla has no pipeline"),
        ("neuron", "engine=torch", "Neuron has no pipeline"),
        ("cuda", "accumulate=1", "stages need as many micro-batches: use accumulate=2 or more, not 1"),
        ("cuda", "model.layers=5", "stages have equal numbers of blocks, and it does not divide model.layers=5"),
        ("cuda", "optim.kind=muon", "optim.kind=muon has none: use optim.kind=adamw"),
        ("cuda", "optim.kind=adafactor", "optim.kind=adafactor has none"),
        ("cuda", "lora.rank=4", "adapters have none: use lora.rank=0"),
        ("cuda", "model.experts=4", "experts have none"),
        ("cpu", "float8=tensorwise dtype=bf16", "products in float8 have none: use float8=none"),
    ],
)
def test_stages_are_refused_where_they_cannot_run(kind: Kind, words: str, message: str) -> None:
    settings = ["model=300m", "batch=64", "accumulate=4", *words.split()]
    with pytest.raises(ConfigError, match=f"mesh.pipeline=2: {message}"):
        build_advice(parse_config([*settings, "mesh.pipeline=2"]), two_hosts(kind))
    assert build_advice(parse_config(settings), two_hosts(kind)).mesh.pipeline == 1


def test_a_plan_counts_the_time_for_which_stages_wait_and_what_they_send() -> None:
    words = ["model=8b", "batch=64", "seq_len=4096", "engine=torch", "remat=full"]
    fast = two_hosts(network=1e12)  # so products decide
    found = {
        count: build_advice(parse_config([*words, "mesh.pipeline=2", f"accumulate={count}"]), fast) for count in (2, 4)
    }
    shortest = {count: one.timing.seconds[0] for count, one in found.items() if one.timing.seconds}
    assert shortest[2] / shortest[4] == pytest.approx((3 / 2) / (5 / 4))
    assert compute_slowdown(Mesh(), 1) == 1.0
    assert found[2].mesh == Mesh(fsdp=8, pipeline=2)
    assert "fsdp 8 x pipeline 2" in found[2].lines()[0]
    assert [one.fix for one in found[2].concerns if one.code == "pipeline"] == [("accumulate=4",)]
    assert not [one for one in found[4].concerns if one.code == "pipeline"]
    assert "pipeline=2" in found[2].speed_settings
    without = build_advice(parse_config(words), fast)
    assert found[4].checkpoint_bytes == pytest.approx(without.checkpoint_bytes, rel=0.001)
    # Over a slow network a stage sends less than a sum of gradients needs.
    slow = [
        build_advice(parse_config([*words, *more]), two_hosts()).timing.network_seconds or 0.0
        for more in ((), ("mesh.pipeline=2", "accumulate=4"))
    ]
    assert slow[1] < slow[0] / 4
    chosen = find_fastest(parse_config([*words, "mesh.pipeline=2", "accumulate=8"]), two_hosts())
    assert chosen is not None and chosen.advice.mesh.pipeline == 2


@pytest.mark.parametrize("mesh", [Mesh(pipeline=4), Mesh(fsdp=2, pipeline=2)], ids=repr)
def test_the_estimates_are_those_of_a_rehearsed_step(mesh: Mesh) -> None:
    model = ModelConfig(dim=128, layers=4, heads=4, kv_heads=2, vocab=512)
    config = Config(batch=8, seq_len=128, accumulate=4, device="cpu", model=model)
    ranks = range(0, mesh.devices, mesh.stage_devices)
    stages = [rehearse_step(config, mesh, rank) for rank in ranks]
    planned = estimate_memory(config, mesh, "torch")
    assert planned.total == pytest.approx(max(one.peak for one in stages), rel=0.1)
    assert stages[0].peak == max(one.peak for one in stages), "the first stage has the most micro-batches in flight"
    sent = max(one.bytes for found in stages for one in found.collectives if one.kind == "send")
    assert Traffic.of(config, mesh).pipeline == sent
    names = [set(found.shapes) for found in stages]
    assert names[0] & names[-1] == {"embedding.weight"}
    assert {name for each in names for name in each} == {parameter.name for parameter in list_parameters(model)}


def test_an_error_in_a_stage_stays_what_it_was() -> None:
    """torch wraps it, and would hide whether a device is full or a rank was lost."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)

    def fail(_values: Tensor, _documents: Tensor | None) -> Tensor:
        raise torch.OutOfMemoryError("no memory")

    try:
        pipeline = Pipeline(
            IN_FOUR,
            Mesh(pipeline=2),
            make_stage(IN_FOUR.model, 2, 0),
            dist.group.WORLD,
            torch.device("cpu"),
            compute=fail,
            loss=lambda hidden, _: hidden.sum(),
            before_backward=lambda _: None,
        )
        pipeline.skip_negotiation()
        rows = torch.zeros((8, 32), dtype=torch.int64)
        with pytest.raises(torch.OutOfMemoryError, match=r"^no memory$"):
            pipeline.backward(rows, rows, None, 1.0)
    finally:
        dist.destroy_process_group()


def test_a_rehearsed_world_has_the_first_and_the_last_stage(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["hosts=2", "devices=2", "model=tiny", "device=cpu", "mesh.pipeline=2", "accumulate=2", "batch=8"]
    assert rehearse_world.run(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2 hosts x 2 devices = 4 ranks: pipeline 2 x data 2 x fsdp 1 x tensor 1"
    assert [line.partition(":")[0] for line in lines if line.startswith("bytes")] == [
        "bytes on a device of the first stage",
        "bytes on a device of the last stage",
    ]
    assert [line for line in lines if line.startswith("rank")] == [
        "rank 0 and rank 1 join the same collectives",
        "rank 2 and rank 3 join the same collectives",
    ]
    assert sum(" x send " in line for line in lines) == 2
