"""A rank's file in memory: read back by the safetensors library, and shared out evenly."""

from __future__ import annotations

import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.checkpoint.snapshot import HostBuffer, shares

DTYPES = [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.uint8, torch.float16]
SHAPES = st.lists(st.integers(0, 5), max_size=3)


@settings(max_examples=60)
@given(st.dictionaries(st.text(min_size=1, max_size=12), st.tuples(st.sampled_from(DTYPES), SHAPES), max_size=6))
def test_the_library_reads_back_every_bit(layout: dict[str, tuple[torch.dtype, list[int]]]) -> None:
    layout.pop("__metadata__", None)  # a name that the format keeps for itself
    tensors = {name: torch.randint(0, 100, shape).to(dtype) for name, (dtype, shape) in layout.items()}
    buffer = HostBuffer(tensors)
    buffer.fill(tensors)
    found = safetensors.torch.load(bytes(buffer.data))
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert torch.equal(found[name], tensor)


def test_filling_again_replaces_the_values_and_keeps_the_memory() -> None:
    tensor = torch.arange(6.0).view(2, 3)
    buffer = HostBuffer({"a": tensor})
    buffer.fill({"a": tensor})
    data = buffer.data
    tensor.add_(1)
    assert torch.equal(safetensors.torch.load(bytes(data))["a"], tensor - 1), "a snapshot does not follow"
    buffer.fill({"a": tensor})
    assert buffer.data is data
    assert torch.equal(safetensors.torch.load(bytes(data))["a"], tensor)


@given(
    st.dictionaries(st.text(min_size=1), st.integers(0, 1000), max_size=40),
    st.integers(1, 8),
)
def test_shares_hold_every_name_once_and_are_even(sizes: dict[str, int], world: int) -> None:
    result = shares(sizes, world)
    assert len(result) == world
    assert sorted(name for share in result for name in share) == sorted(sizes)
    loads = [sum(sizes[name] for name in share) for share in result]
    assert max(loads) - min(loads) <= max(sizes.values(), default=0)
