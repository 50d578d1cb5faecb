"""Options of the TPU compiler: each generation's own, with a dated source, and those of the user win."""

from __future__ import annotations

import re

import pytest

from trainer.accelerators.tpu_compiler_options import OPTIONS, choose_compiler_options, format_compiler_options
from trainer.accelerators.tpu_generations import GENERATIONS


def test_each_option_is_of_known_generations_and_has_a_dated_source() -> None:
    known = {each.name for each in GENERATIONS}
    pairs = [(option.name, generation) for option in OPTIONS for generation in option.generations]
    assert len(pairs) == len(set(pairs)), "one value of an option for a generation"
    for option in OPTIONS:
        assert set(option.generations) <= known and re.search(r"\b20\d\d-\d\d-\d\d\b", option.source), option


@pytest.mark.parametrize("generation", ["v5e", "v5p", "v6e"])
def test_sums_of_gradients_overlap_products_and_only_on_tpus(generation: str) -> None:
    device = next(each.device for each in GENERATIONS if each.name == generation)
    found = choose_compiler_options(generation)
    assert found == choose_compiler_options(device)
    assert found["xla_tpu_reduce_scatter_collective_matmul_mode"] == "post_spmd"
    # libtpu 0.0.43.2 refuses it on all generations but v5e, where it is the default.
    assert not any("async_collective_fusion" in name for name in found)
    assert choose_compiler_options("cpu") == choose_compiler_options("NVIDIA H100 80GB HBM3") == {}


def test_an_option_that_the_user_wrote_is_left_to_libtpu() -> None:
    given = "--xla_tpu_scoped_vmem_limit_kib=65536 --xla_tpu_reduce_scatter_collective_matmul_mode=none"
    left = choose_compiler_options("TPU v6e", given)
    assert left and not {"xla_tpu_scoped_vmem_limit_kib", "xla_tpu_reduce_scatter_collective_matmul_mode"} & set(left)


def test_they_are_written_as_the_variable_has_them() -> None:
    assert format_compiler_options({"a": "true", "b": "1"}) == "--a=true --b=1"
