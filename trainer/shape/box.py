"""A rectangular region of a tensor, and tensors described without their values. Used by layouts and checkpoints."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Box:
    """offset and extent have one entry for each dimension; a scalar has none."""

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
        """The first index behind the box along each dimension."""
        return tuple(at + count for at, count in zip(self.offset, self.extent, strict=True))

    def slices(self) -> tuple[slice, ...]:
        """To cut this box out of the whole tensor."""
        return tuple(slice(at, at + count) for at, count in zip(self.offset, self.extent, strict=True))

    def overlap(self, other: Box) -> Box | None:
        """What lies in both, in the whole tensor's coordinates; None when nothing does."""
        low = tuple(map(max, self.offset, other.offset))
        high = tuple(map(min, self.end, other.end))
        extent = tuple(end - start for start, end in zip(low, high, strict=True))
        return None if any(count <= 0 for count in extent) else Box(low, extent)

    def within(self, outer: Box) -> Box:
        """The same region in the coordinates of `outer`, which contains it."""
        return Box(tuple(a - b for a, b in zip(self.offset, outer.offset, strict=True)), self.extent)


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """A region of a named tensor of the training state. All state is float32.

    name: `model/<parameter>`, `optimizer/<parameter>/<moment>` or `average/<parameter>` (averaged weights).
    shape: of the whole tensor.
    """

    name: str
    shape: tuple[int, ...]
    box: Box

    @property
    def bytes(self) -> int:
        return 4 * self.box.size
