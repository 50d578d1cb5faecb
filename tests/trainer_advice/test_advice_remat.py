"""`remat=auto`: the least recomputation that fits, the same in a plan and in the settings that a plan proposes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainer.accelerators.device import Device
from trainer.accelerators.usable_memory import find_usable_bytes, find_usable_share
from trainer.config import Config, RematLevel
from trainer.errors import ConfigError
from trainer.options import parse_config
from trainer.shape.advice import build_advice
from trainer.shape.hardware import Hardware
from trainer.shape.memory import TIGHT, estimate_memory, resolve_remat
from trainer.shape.mesh import Mesh

GIB = 1 << 30
H100 = Hardware(
    name="h100", kind="cuda", chip="H100", devices=8, memory_bytes=80 * GIB, peak_flops=989e12, network=400e9
)
V5E = Hardware(name="v5e", kind="tpu", chip="v5e", devices=8, hosts=2, memory_bytes=16 * GIB, peak_flops=197e12)


@pytest.mark.parametrize(
    ("words", "level"),
    [("true", "full"), ("false", "none"), ("selective", "selective"), ("full", "full"), ("none", "none")],
)
def test_the_earlier_words_mean_what_they_meant(words: str, level: RematLevel) -> None:
    assert parse_config([f"remat={words}"]).recomputed == level


def test_no_preset_forces_recomputation() -> None:
    assert {parse_config([f"model={name}"]).remat for name in ("tiny", "3b", "8b", "13b", "70b")} == {"auto"}
    assert Config().recomputed == "none"


@pytest.mark.parametrize(("hardware", "batches"), [(H100, (64, 192, 320)), (V5E, (16, 32, 64))], ids=["h100", "v5e"])
def test_auto_takes_the_fastest_level_that_fits(hardware: Hardware, batches: tuple[int, ...]) -> None:
    found: list[str] = []
    for batch in batches:
        words = ["model=1b", f"batch={batch}", "model.vocab=32000"]
        chosen = build_advice(parse_config(words), hardware)
        levels = {
            level: build_advice(parse_config([*words, f"remat={level}"]), hardware)
            for level in ("none", "selective", "full")
        }
        assert chosen.usable is not None
        fitting = [level for level, one in levels.items() if one.memory.total <= TIGHT * chosen.usable]
        expected = fitting[0] if fitting else "full"
        assert (chosen.memory, chosen.timing) == (levels[expected].memory, levels[expected].timing)
        found.append(expected)
    assert found == ["none", "selective", "full"]


def test_without_a_known_memory_nothing_is_recomputed_and_a_given_level_stays() -> None:
    config = parse_config(["model=70b", "batch=8"])
    assert resolve_remat(config, Mesh(), "torch", None).remat == "none"
    assert resolve_remat(replace(config, remat="selective"), Mesh(), "torch", 1).remat == "selective"
    assert resolve_remat(config, Mesh(), "torch", 1).remat == "full"


def test_torch_xla_has_no_selective_recomputation() -> None:
    config = parse_config(["model=1b", "batch=8", "device=xla", "dtype=bf16"])
    levels: tuple[RematLevel, ...] = ("none", "selective", "full")
    sizes = [estimate_memory(replace(config, remat=level), Mesh(), "torch").total for level in levels]
    between = int((sizes[0] + sizes[1]) / 2 / TIGHT)
    assert resolve_remat(config, Mesh(), "torch", between).remat == "full"
    assert resolve_remat(replace(config, device="cuda"), Mesh(), "torch", between).remat == "selective"
    with pytest.raises(ConfigError, match="remat=full"):
        resolve_remat(replace(config, remat="selective"), Mesh(), "torch", between)


def test_compiled_blocks_on_a_tensor_axis_are_recomputed_whole() -> None:
    words = ["model=1b", "batch=8", "mesh.tensor=2", "remat=selective"]
    compiled = parse_config([*words, "compile=true", "engine=torch"])
    with pytest.raises(ConfigError, match="tensor axis"):
        resolve_remat(compiled, Mesh(tensor=2), "torch", None)
    for other in (replace(compiled, engine="jax"), replace(compiled, compile="false")):
        assert resolve_remat(other, Mesh(tensor=2), "torch", None).remat == "selective"


def test_plans_and_runs_count_the_same_usable_memory() -> None:
    chip = Device(
        kind="tpu",
        name="TPU v5e",
        vendor="Google",
        index=0,
        total_mem_mb=16 << 10,
        available_mem_mb=None,
        topology=None,
    )
    assert find_usable_share(chip) == find_usable_bytes("tpu", "v5e", None) == int(15.75 * GIB)
    cores = replace(chip, kind="neuron", name="Trainium", total_mem_mb=32 << 10, devices=2)
    assert find_usable_share(cores) == int(16 * GIB * 0.94)
    processor = replace(chip, kind="cpu", name="cpu", total_mem_mb=8 << 10)
    assert find_usable_share(processor, 4) == int(2 * GIB * 0.9)
    assert find_usable_share(replace(processor, total_mem_mb=None)) is None
