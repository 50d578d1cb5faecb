"""Bytes on a device: counted by hand, never more with more sharding, and as the TPU compiler measured."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.errors import ConfigError
from trainer.options import parse_config
from trainer.shape.architecture import count_parameters
from trainer.shape.box import Box
from trainer.shape.hardware import Hardware
from trainer.shape.layout import compute_box
from trainer.shape.memory import estimate_memory, estimate_usable_memory
from trainer.shape.mesh import Mesh

GIB = 1 << 30
SIZES = st.sampled_from(["tiny", "10m", "100m", "1b", "8b"])


def test_state_bytes_on_a_device_follow_the_sharding_plan() -> None:
    from trainer.shape.architecture import list_parameters

    config = parse_config(["model=100m", "batch=64", "model.vocab=32000", "optim.ema=0.9", "accumulate=2"])
    mesh = Mesh(2, 4, 2)
    on_device = sum(compute_box(parameter, mesh, 5).size for parameter in list_parameters(config.model))
    need = estimate_memory(config, mesh, "torch")
    assert need.weights == need.averages == need.gradients == 4 * on_device
    assert need.optimizer == 8 * on_device
    assert need.state == 16 * on_device


def test_one_device_holds_the_complete_model() -> None:
    config = parse_config(["model=10m", "batch=8"])
    need = estimate_memory(config, Mesh(), "torch")
    assert need.weights == 4 * count_parameters(config.model) == 4 * Box.whole((count_parameters(config.model),)).size


def test_muon_keeps_one_moment_of_each_hidden_matrix() -> None:
    """As torch allocates it: a rehearsal of the step has the same bytes (tests/trainer_torch)."""
    from trainer.shape.architecture import list_parameters

    config = parse_config(["model=300m", "batch=32", "optim.kind=muon"])
    adam = parse_config(["model=300m", "batch=32"])
    mesh = Mesh(2, 4, 2)
    hidden = sum(
        compute_box(one, mesh, 5).size for one in list_parameters(config.model) if one.role in ("column", "row")
    )
    need, more = estimate_memory(config, mesh, "jax"), estimate_memory(adam, mesh, "jax")
    assert need.optimizer == more.optimizer - 4 * hidden
    assert need.weights == more.weights


def test_adafactor_keeps_almost_nothing() -> None:
    adam, factored = (
        estimate_memory(parse_config(["model=1b", "batch=8", f"optim.kind={kind}"]), Mesh(), "torch")
        for kind in ("adamw", "adafactor")
    )
    assert factored.optimizer < adam.optimizer / 500


@settings(max_examples=60, deadline=None)
@given(
    model=SIZES,
    engine=st.sampled_from(["torch", "jax"]),
    remat=st.sampled_from(["none", "selective", "full"]),
    dtype=st.sampled_from(["fp32", "bf16"]),
)
def test_more_devices_never_need_more_memory_each(model: str, engine: str, remat: str, dtype: str) -> None:
    config = parse_config([f"model={model}", "batch=64", f"remat={remat}", f"dtype={dtype}"])
    totals = [estimate_memory(config, Mesh(fsdp=count), engine).total for count in (2, 4, 8, 16, 32, 64)]  # type: ignore[arg-type]  # of sampled_from
    assert totals == sorted(totals, reverse=True)


@settings(max_examples=60, deadline=None)
@given(model=SIZES, engine=st.sampled_from(["torch", "jax"]), times=st.sampled_from([2, 4, 8]))
def test_settings_that_save_memory_reduce_the_estimate(model: str, engine: str, times: int) -> None:
    base = parse_config([f"model={model}", "batch=64", "remat=false", "model.vocab=32000", "dtype=bf16"])
    need = estimate_memory(base, Mesh(fsdp=8), engine)  # type: ignore[arg-type]  # of sampled_from
    some, full = (
        estimate_memory(dataclasses.replace(base, remat=level), Mesh(fsdp=8), engine)  # type: ignore[arg-type]  # as above
        for level in ("selective", "full")
    )
    parts = estimate_memory(dataclasses.replace(base, accumulate=times), Mesh(fsdp=8), engine)  # type: ignore[arg-type]  # as above
    assert full.activations < some.activations < need.activations
    assert full.total < some.total < need.total
    assert parts.activations * times == pytest.approx(need.activations)


@pytest.mark.promise("P39")
# GiB on a device, arguments and temporaries, by libtpu 0.0.42 and JAX 0.10.2 for this trainer's step; November 2026.
@pytest.mark.parametrize(
    ("words", "mesh", "measured"),
    [
        ("model=300m batch=32 dtype=bf16 model.vocab=32000", Mesh(fsdp=8), 8.14),
        ("model=300m batch=32 remat=selective dtype=bf16 model.vocab=32000", Mesh(fsdp=8), 5.71),
        ("model=1b batch=16 remat=true dtype=bf16 model.vocab=32000", Mesh(fsdp=8), 4.34),
        ("model=1b batch=32 accumulate=4 remat=true dtype=bf16", Mesh(fsdp=8), 4.17),
        ("model=8b batch=16 remat=true dtype=bf16 model.vocab=128256", Mesh(fsdp=16), 18.55),
        ("model=1b batch=32 seq_len=4096 remat=true dtype=bf16", Mesh(fsdp=16), 4.48),
    ],
)
def test_estimate_is_near_what_the_tpu_compiler_reports(words: str, mesh: Mesh, measured: float) -> None:
    assert estimate_memory(parse_config(words.split()), mesh, "jax").total == pytest.approx(measured * GIB, rel=0.2)


SHAPE = "model.dim=256 model.layers=4 model.heads=4 model.kv_heads=2 seq_len=512 batch=8"


@pytest.mark.promise("P39")
# MiB on a device, by trainer/torch_engine/rehearsal.py, and the moment of the step that needs the most.
@pytest.mark.parametrize(
    ("words", "mesh", "measured", "peak"),
    [
        ("model=100m dtype=bf16 batch=128", Mesh(8, 8, 1), 1158.0, "backward-start"),
        ("model=100m dtype=bf16 batch=8", Mesh(), 5249.7, "backward-start"),
        ("model=300m dtype=bf16 batch=8 remat=true", Mesh(1, 4, 1), 1523.9, "backward-start"),
        ("model=300m dtype=bf16 batch=8 remat=selective", Mesh(1, 4, 1), 3234.5, "backward-start"),
        ("model=100m dtype=bf16 batch=8 remat=selective", Mesh(), 3144.1, "backward-start"),
        ("model=100m dtype=bf16 batch=16 remat=selective", Mesh(1, 2, 2), 1401.5, "backward-start"),
        ("model=100m dtype=bf16 batch=16 remat=full", Mesh(1, 2, 2), 625.1, "backward-start"),
        ("model=30m dtype=fp32 batch=16 model.vocab=32000 remat=selective", Mesh(), 3052.4, "loss"),
        ("model=10m dtype=fp32 batch=8", Mesh(), 478.5, "backward-start"),
        ("model=30m dtype=bf16 batch=16 model.vocab=32000", Mesh(2, 1, 1), 2566.9, "loss"),
        ("model=30m dtype=bf16 batch=16 model.vocab=32000", Mesh(1, 4, 2), 690.6, "loss"),
        ("model=1b dtype=bf16 batch=8 model.vocab=32768 remat=full", Mesh(fsdp=8), 2832.4, "backward-end"),
        ("model=8b dtype=bf16 batch=64 seq_len=2048 model.vocab=128256", Mesh(fsdp=32), 35386.2, "loss"),
        ("model=300m dtype=bf16 batch=1 seq_len=256 model.vocab=32768", Mesh(), 5088.9, "embedding"),
        ("model=300m dtype=bf16 batch=8 accumulate=4 seq_len=64", Mesh(2), 6030.3, "backward-start"),
        ("model=100m dtype=bf16 batch=16 accumulate=4 model.vocab=32000", Mesh(fsdp=2, pipeline=2), 1944.3, "loss"),
        ("model=100m dtype=bf16 batch=8 model.vocab=32000 lora.rank=8", Mesh(fsdp=4), 1747.3, "loss"),
        (f"{SHAPE} dtype=bf16 model.vocab=32000 remat=full seq_len=256", Mesh(fsdp=8), 126.9, "loss"),
        (f"{SHAPE} dtype=bf16 model.vocab=8192 model.tied=false", Mesh(), 675.3, "loss"),
        (f"{SHAPE} dtype=bf16 model.vocab=8192 accumulate=4 batch=16", Mesh(fsdp=4), 104.3, "loss"),
        (f"{SHAPE} dtype=bf16 model.vocab=8192", Mesh(1, 2, 2), 156.6, "loss"),
        (f"{SHAPE} dtype=bf16 model.vocab=128000 seq_len=64 model.tied=false", Mesh(fsdp=8), 536.8, "embedding"),
        (f"{SHAPE} dtype=fp32 model.vocab=128000 seq_len=64 model.tied=false", Mesh(fsdp=8), 847.9, "embedding"),
        (f"{SHAPE} dtype=bf16 model.vocab=8192 model.softcap=30", Mesh(fsdp=2), 389.0, "loss"),
        (
            f"{SHAPE} dtype=bf16 model.vocab=8192 model.experts=8 model.experts_per_token=2 remat=full",
            Mesh(fsdp=4),
            163.4,
            "loss",
        ),
    ],
)
def test_estimate_is_near_what_torch_allocates(words: str, mesh: Mesh, measured: float, peak: str) -> None:
    config = parse_config(["device=cpu", "engine=torch", *words.split()])
    found = estimate_memory(config, mesh, "torch")
    assert found.total == pytest.approx(measured * (1 << 20), rel=0.08)
    assert found.peak == peak


@pytest.mark.parametrize("engine", ["torch", "jax"])
@pytest.mark.parametrize("words", ["", "remat=full", "model.vocab=512000 batch=16 seq_len=64", "accumulate=4"])
def test_the_parts_add_up_to_the_total(engine: str, words: str) -> None:
    config = parse_config(["model=1b", "batch=64", f"engine={engine}", *words.split()])
    found = estimate_memory(config, Mesh(fsdp=8), engine)  # type: ignore[arg-type]  # of parametrize
    parts = found.as_json()
    assert parts.pop("total") == sum(parts.values()) == found.total
    assert (found.peak == "step") == (engine == "jax")


# GiB on an H200, torch.cuda.max_memory_allocated with torch 2.11; 26 November 2026.
@pytest.mark.parametrize(
    ("words", "measured"),
    [
        ("model=1b batch=8 compile=false", 42.0),
        ("model=1b batch=8 compile=true", 36.5),
        ("model=1b batch=8 compile=true remat=true", 17.5),
        ("model=1b batch=8 compile=true remat=true model.tied=false", 18.2),
        ("model=1b batch=8 compile=true dtype=fp32 model.tied=false", 58.7),
        ("model=1b batch=8 compile=true optim.kind=muon model.tied=false", 33.5),
        ("model=300m batch=16 compile=true model.tied=false", 29.8),
        ("model=3b batch=4 compile=true model.tied=false", 81.6),
        ("model=8b batch=2 compile=true remat=true", 109.1),
    ],
)
def test_estimate_is_near_what_a_gpu_allocates(words: str, measured: float) -> None:
    config = parse_config(["dtype=bf16", "model.vocab=32768", *words.split()])
    assert estimate_memory(config, Mesh(), "torch").total == pytest.approx(measured * GIB, rel=0.03)


def test_float8_needs_as_little_as_a_gpu_allocates() -> None:
    words = "model=3b batch=4 compile=true model.tied=false dtype=bf16 model.vocab=32768 float8=tensorwise engine=torch"
    assert estimate_memory(parse_config(words.split()), Mesh(), "torch").total == pytest.approx(64.3 * GIB, rel=0.07)


def test_logits_are_never_all_in_memory_together() -> None:
    small, large = (
        estimate_memory(parse_config(["model=100m", "batch=32", f"model.vocab={vocab}"]), Mesh(), "jax").logits
        for vocab in (64_000, 128_000)
    )
    assert small == large < GIB


def test_a_batch_that_does_not_divide_is_refused() -> None:
    with pytest.raises(ConfigError, match="batch=16"):
        estimate_memory(parse_config(["batch=10"]), Mesh(fsdp=16), "jax")


def test_device_offers_a_program_less_than_its_memory() -> None:
    assert estimate_usable_memory(Hardware(name="a", kind="tpu", devices=1, memory_bytes=16 * GIB)) == pytest.approx(
        15.6 * GIB, rel=0.01
    )
    assert estimate_usable_memory(Hardware(name="a", kind="cpu", devices=1)) is None
