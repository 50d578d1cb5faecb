"""`dtype=auto` and `compile=auto`: what each kind of device computes in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainer.arithmetic import multiplies_in_bf16, resolve_arithmetic
from trainer.engines import choose_engine_and_device
from trainer.options import parse_config


@pytest.mark.parametrize(
    ("engine", "kind", "has_bf16", "products", "compiled"),
    [
        ("torch", "cpu", True, "fp32", False),
        ("torch", "cuda", True, "bf16", True),
        ("torch", "cuda", False, "fp32", True),
        ("jax", "cuda", True, "bf16", False),
        ("jax", "tpu", True, "bf16", False),
        ("torch", "tpu", True, "bf16", False),
        ("torch", "neuron", True, "bf16", False),
        ("torch", "xla", True, "bf16", False),
    ],
)
def test_auto_is_fast_on_an_accelerator_and_as_before_on_a_processor(
    engine: str, kind: str, has_bf16: bool, products: str, compiled: bool
) -> None:
    found = resolve_arithmetic(parse_config([f"engine={engine}"]), kind, has_bf16=has_bf16)
    assert (found.products, found.compiled) == (products, compiled)
    assert resolve_arithmetic(found, "cpu") == found  # nothing is left to resolve


def test_a_given_word_wins() -> None:
    config = parse_config(["dtype=fp32", "compile=false"])
    assert resolve_arithmetic(config, "cuda") == config
    assert resolve_arithmetic(parse_config(["dtype=bf16", "compile=true"]), "cpu").products == "bf16"


def test_an_unresolved_config_computes_as_a_processor() -> None:
    config = parse_config([])
    assert (config.products, config.compiled) == ("fp32", False)
    chosen = choose_engine_and_device(replace(config, device="cpu", engine="torch"))
    assert (chosen.dtype, chosen.compile) == ("fp32", "false")


@pytest.mark.parametrize(
    ("names", "has"),
    [
        (["NVIDIA H100 80GB HBM3", "NVIDIA H200"], True),
        (["NVIDIA A10G"], True),
        ([], True),
        (["Tesla T4"], False),
        (["Tesla V100-SXM2-16GB"], False),
        (["NVIDIA L4", "Tesla T4"], False),
        (["NVIDIA TITAN RTX"], False),
        (["NVIDIA GeForce GTX 1080 Ti"], False),
        (["NVIDIA GeForce RTX 2080"], False),
        (["NVIDIA GeForce RTX 4090"], True),
    ],
)
def test_gpus_before_ampere_have_no_bf16(names: list[str], has: bool) -> None:
    assert multiplies_in_bf16(names) is has
