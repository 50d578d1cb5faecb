"""Rectangular regions of tensors, without the values; used by layouts and checkpoints."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Box:
    """A rectangle of indices.

    Attributes:
        offset: First index along each dimension; empty for a scalar.
        extent: Number of indices along each dimension.
    """

    offset: tuple[int, ...]
    extent: tuple[int, ...]

    @classmethod
    def whole(cls, shape: tuple[int, ...]) -> Box:
        return cls((0,) * len(shape), shape)

    @property
    def size(self) -> int:
        return math.prod(self.extent)

    @property
    def end(self) -> tuple[int, ...]:
        """First index after the box along each dimension."""
        return tuple(at + count for at, count in zip(self.offset, self.extent, strict=True))

    def slices(self) -> tuple[slice, ...]:
        """Return the slices that cut this box out of the whole tensor."""
        return tuple(slice(at, at + count) for at, count in zip(self.offset, self.extent, strict=True))

    def overlap(self, other: Box) -> Box | None:
        """Return the common region, in the whole tensor's coordinates, or None."""
        low = tuple(map(max, self.offset, other.offset))
        high = tuple(map(min, self.end, other.end))
        extent = tuple(end - start for start, end in zip(low, high, strict=True))
        return None if any(count <= 0 for count in extent) else Box(low, extent)

    def relative_to(self, outer: Box) -> Box:
        """Return the same region in the coordinates of `outer`, which contains it."""
        return Box(tuple(a - b for a, b in zip(self.offset, outer.offset, strict=True)), self.extent)


@dataclass(frozen=True, slots=True, order=True)
class TensorRegion:
    """A region of a named tensor of the training state, which is all float32.

    Attributes:
        name: `model/<parameter>`, `optimizer/<parameter>/<moment>` or `average/<parameter>` (averaged weights).
        shape: Of the whole tensor.
        box: The region.
    """

    name: str
    shape: tuple[int, ...]
    box: Box

    @property
    def bytes(self) -> int:
        return 4 * self.box.size
