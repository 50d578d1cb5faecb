"""A rank's tensors as one safetensors file in memory, filled in place: the only copy between training and bucket.

The file's form: 8 bytes with the header's length (little endian), a JSON header, then the tensors' bytes
(safetensors documentation, "Format", read November 2026). The safetensors library reads it back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor

_NAMES: Mapping[torch.dtype, str] = MappingProxyType(
    {
        torch.float64: "F64",
        torch.float32: "F32",
        torch.bfloat16: "BF16",
        torch.float16: "F16",
        torch.int64: "I64",
        torch.int32: "I32",
        torch.uint8: "U8",
    }
)
_ALIGN = 64  # tensors begin where any type and a vector unit can read them


class HostBuffer:
    """Made once for the shapes of a run and filled again for every checkpoint."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        header: dict[str, dict[str, object]] = {}
        start = 0
        for name, tensor in _by_alignment(tensors):
            end = start + tensor.numel() * tensor.element_size()
            header[name] = {
                "dtype": _NAMES[tensor.dtype],
                "shape": list(tensor.shape),
                "data_offsets": [start, end],
            }
            start = end
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-(8 + len(text)) % _ALIGN)
        self.data = bytearray(8 + len(text) + start)
        self.data[: 8 + len(text)] = len(text).to_bytes(8, "little") + text
        self._views: dict[str, Tensor] = {}
        start = 8 + len(text)
        for name, tensor in _by_alignment(tensors):
            flat = (
                torch.frombuffer(self.data, dtype=tensor.dtype, count=tensor.numel(), offset=start)
                if tensor.numel()
                else torch.empty(0, dtype=tensor.dtype)
            )
            self._views[name] = flat.view(tensor.shape)
            start += tensor.numel() * tensor.element_size()

    def fill(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy the present values. Names and shapes must be those of the constructor."""
        if tensors.keys() != self._views.keys():
            raise ValueError("the tensors are not those that the buffer was made for")
        for name, view in self._views.items():
            view.copy_(tensors[name].detach())


def _by_alignment(tensors: Mapping[str, Tensor]) -> list[tuple[str, Tensor]]:
    # Wide types first: then every tensor begins at a multiple of its own element size without gaps,
    # which the format does not allow.
    return sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))


def shares(sizes: Mapping[str, int], world: int) -> list[list[str]]:
    """Names for each rank, such that the ranks' bytes are about equal. The same on every rank."""
    loads = [0] * world
    result: list[list[str]] = [[] for _ in range(world)]
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        rank = loads.index(min(loads))
        loads[rank] += sizes[name]
        result[rank].append(name)
    return result


def total_bytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
