"""The initial values of every weight: a pure function of (seed, name, index), so any engine can make any region.

A value is the sum of four 16-bit numbers of one 64-bit hash, centred and scaled (Irwin-Hall: nearly normal, never
beyond 3.5 standard deviations). The computation uses integers until the last multiplication, so the bits are the same
everywhere.
"""

from __future__ import annotations

import math
import zlib

import numpy as np
import numpy.typing as npt

from trainer.order import hash_values
from trainer.shape.architecture import Parameter
from trainer.shape.box import Box

_STD_OF_SUM = math.sqrt(4 * (65536**2 - 1) / 12)
_ROWS = 1 << 20  # values that are made together


def make_initial_values(parameter: Parameter, box: Box, seed: int) -> npt.NDArray[np.float32]:
    """Return the values of the region, in an array of shape `box.extent`."""
    if parameter.std is None:
        return np.ones(box.extent, np.float32)
    if parameter.std == 0:
        return np.zeros(box.extent, np.float32)
    key = (zlib.crc32(parameter.name.encode()) << 31) ^ (seed & (2**63 - 1))
    result = np.empty(box.size, np.float32)
    scale = np.float32(parameter.std / _STD_OF_SUM)
    width = box.extent[-1]
    starts = _row_starts(parameter.shape, box)
    step = max(1, _ROWS // max(1, width))
    for first in range(0, len(starts), step):
        index = np.add(starts[first : first + step, None], np.arange(width, dtype=np.uint64), dtype=np.uint64)
        result[first * width : first * width + index.size] = _normal(index.ravel(), key) * scale
    return result.reshape(box.extent)


def _row_starts(shape: tuple[int, ...], box: Box) -> npt.NDArray[np.uint64]:
    """Return the index in the whole tensor of the first value of each row of the box."""
    starts = np.zeros((1,), np.uint64)
    for at, count, stride in zip(box.offset[:-1], box.extent[:-1], _strides(shape)[:-1], strict=True):
        along = np.arange(at, at + count, dtype=np.uint64) * np.uint64(stride)
        starts = (starts[:, None] + along).ravel()
    return starts + np.uint64(box.offset[-1])


def _strides(shape: tuple[int, ...]) -> list[int]:
    return [math.prod(shape[dimension + 1 :]) for dimension in range(len(shape))]


def _normal(index: npt.NDArray[np.uint64], key: int) -> npt.NDArray[np.float32]:
    hashed = hash_values(index, key)
    total = np.zeros(index.shape, np.int32)
    for shift in (0, 16, 32, 48):
        total += ((hashed >> np.uint64(shift)) & np.uint64(0xFFFF)).astype(np.int32)
    return (total - np.int32(2 * 65535)).astype(np.float32)
