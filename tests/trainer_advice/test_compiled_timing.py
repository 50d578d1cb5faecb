"""The time of a compiled step beside published runs, and the identity by which it is found again.

PUBLISHED: cycles and calls of kernels of this trainer's step at the shape of a published run, with full recomputation
and all weights sharded, as libtpu 0.0.43.2 stated them on 2026-11-27 (`python -m trainer compile --json`). The speeds
are those of tests/offers/data/published_elsewhere.csv, whose sources tests/offers/test_published_elsewhere.py names.
Models for v4, v5e and TPU7x are left out: at the published micro-batches their steps do not fit without offloading.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainer.accelerators.tpu_generations import GENERATIONS
from trainer.config import Config
from trainer.options import parse_config
from trainer.shape.advice import build_advice
from trainer.shape.architecture import count_flops_per_token
from trainer.shape.compiled_timing import Program, estimate_compiled_timing, sum_traffic
from trainer.shape.hardware import Hardware
from trainer.shape.mesh import Mesh
from trainer.shape.step_identity import identify_step
from trainer.shape.timing import Traffic

_8B = "model.dim=4096 model.layers=32 model.heads=32 model.kv_heads=8 model.ffn=14336 seq_len=8192"
_70B = "model.dim=8192 model.layers=80 model.heads=64 model.kv_heads=8 model.ffn=28672 seq_len=4096"
# Chip, devices, settings, cycles, kernels; tokens a second of a chip, or the share of the peak with full attention.
PUBLISHED = (
    ("v6e", 8, f"{_8B} model.vocab=128256 batch=24 accumulate=3", 6_055_986_856, 384, 7138.89),
    ("v6e", 8, f"{_8B} model.vocab=32000 batch=48 accumulate=6", 11_088_275_287, 768, 7776.813),
    ("v5p", 64, f"{_70B} model.vocab=32000 batch=256", 46_565_550_896, 320, 0.65),
)
SLICE = Hardware(name="v5litepod-8", kind="tpu", chip="v5e", topology="2x4", devices=8)


def read(words: str, remat: str = "full") -> Config:
    return parse_config([f"remat={remat}", "engine=jax", "dtype=bf16", *words.split()])


def estimate(config: Config, hardware: Hardware, program: Program) -> tuple[float, float, float]:
    found = estimate_compiled_timing(config, Mesh(fsdp=hardware.devices), hardware, program)
    assert found is not None
    return found.low, found.typical, found.high


@pytest.mark.parametrize(("chip", "devices", "words", "cycles", "kernels", "speed"), PUBLISHED)
def test_published_runs_take_about_what_the_compiler_estimates(
    chip: str, devices: int, words: str, cycles: int, kernels: int, speed: float
) -> None:
    config, mesh = read(words), Mesh(fsdp=devices)
    hardware = Hardware(name=chip, kind="tpu", chip=chip, devices=devices, hosts=devices // 4)
    program = Program(cycles=cycles, kernels=kernels, product_flops=0, state_bytes=0, traffic=Traffic.of(config, mesh))
    tokens = config.batch * config.seq_len / devices
    if speed < 1:
        (peak,) = (one.peak_flops for one in GENERATIONS if one.name == chip)
        causal, without = (count_flops_per_token(config.model, length) for length in (config.seq_len, 0))
        seconds = tokens * (2 * causal - without) / (speed * peak)
    else:
        seconds = tokens / speed
    low, typical, high = estimate(config, hardware, program)
    assert low < seconds < high
    assert 0.85 < seconds / typical < 1.05


def test_the_range_is_no_faster_than_peak_memory_and_network_allow() -> None:
    config = read("model=300m seq_len=512 batch=32", "none")
    small = Program(
        cycles=1e6, kernels=0, product_flops=0, state_bytes=0, traffic=Traffic(data=0, fsdp=0, tensor=0, context=0)
    )
    low, typical, high = estimate(config, SLICE, small)
    assert 0 < low < typical < high < 0.02
    for bound, program in (
        (1.0, replace(small, product_flops=197e12)),
        (1.0, replace(small, state_bytes=819e9 / 2)),
        (1.0, replace(small, traffic=Traffic(data=0, fsdp=70e9, tensor=0, context=0))),
    ):
        low, typical, high = estimate(config, SLICE, program)
        assert bound <= low <= typical <= high < 1.02, program
    assert estimate(config, SLICE, replace(small, kernels=24)) > estimate(config, SLICE, small)
    unknown = replace(SLICE, chip="v9")
    assert estimate_compiled_timing(config, Mesh(fsdp=8), unknown, small) is None


def test_collectives_over_two_axes_count_along_the_outer_one() -> None:
    mesh = Mesh(data=2, fsdp=4)
    found = sum_traffic(
        (("all-reduce", "data+fsdp", 8.0), ("all-gather", "fsdp", 1.0), ("reduce-scatter", "fsdp", 4.0)), mesh
    )
    assert (found.data, found.fsdp, found.tensor) == (14.0, 6.0, 0.0)


def test_a_step_is_the_same_one_where_the_program_and_the_machines_are() -> None:
    words, mesh = "model=300m batch=32", Mesh(fsdp=8)

    def identify(more: str = "", *, mesh: Mesh = mesh, hardware: Hardware = SLICE) -> str:
        return identify_step(read(f"{words} {more}"), mesh, hardware)

    same = "steps=7 optim.lr=1e-4 optim.warmup=3 checkpoint.every=9 log_every=3 seed=5 data.ahead=4 mesh.fsdp=8"
    assert {identify(word) for word in same.split()} == {identify()}
    other = "batch=64 seq_len=256 accumulate=2 dtype=fp32 exact=true optim.kind=muon optim.ema=0.9 lora.rank=4"
    other += " model.layers=3 data.document_mask=true float8=rowwise residual=bf16 model.experts=4 device=xla"
    found = {identify(word) for word in other.split()}
    assert len(found) == 14 and identify() not in found
    others = (
        identify(mesh=Mesh(data=2, fsdp=4)),
        identify(mesh=Mesh(fsdp=8, context=2)),
        identify(hardware=replace(SLICE, chip="v6e")),
        identify(hardware=replace(SLICE, slices=2)),
        identify(hardware=replace(SLICE, topology="8x1")),
    )
    assert len({identify(), *others}) == 6


def test_own_runs_of_torch_xla_say_nothing_of_torch_on_the_same_chips() -> None:
    chips = Hardware(name="trn2", kind="neuron", chip="trn2", devices=4)
    words = "model=300m batch=32 seq_len=512 engine=torch dtype=bf16 compile=false remat=none"
    native, traced = (build_advice(read(f"{words} device={name}"), chips) for name in ("neuron", "xla"))
    assert native.step != traced.step
    assert native.speed_settings.startswith("engine=torch dtype=") and "engine=torch_xla" in traced.speed_settings


@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("mesh.context=2", "context=2"),
        ("residual=bf16", "residual=bf16"),
        ("model.experts=4", "experts=true"),
        ("float8=rowwise", "float8=rowwise"),
        ("data.document_mask=true", "document_mask=true"),
    ],
)
def test_settings_of_another_speed_are_named(word: str, named: str) -> None:
    cards = Hardware(name="8 H100", kind="cuda", chip="H100", devices=8)
    words = "model=300m model.ffn=2816 batch=32 seq_len=512 engine=torch"
    plain, other = (build_advice(read(f"{words} {more}", remat="none"), cards) for more in ("", word))
    assert other.speed_settings == f"{plain.speed_settings} {named}"
