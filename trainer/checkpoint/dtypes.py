"""Converts float32 values to the other types of safetensors files, and back; numpy has no bfloat16."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from trainer.checkpoint.manifest import CorruptCheckpoint
from trainer.engine import FloatArray

FileDType: TypeAlias = Literal["fp32", "bf16", "fp16"]

SAFETENSORS: Mapping[FileDType, str] = MappingProxyType({"fp32": "F32", "bf16": "BF16", "fp16": "F16"})
TORCH: Mapping[FileDType, str] = MappingProxyType({"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"})
WIDTH: Mapping[str, int] = MappingProxyType({"F32": 4, "BF16": 2, "F16": 2})
"""Bytes of a value, by the name that safetensors has for it."""


def encode_values(values: FloatArray, dtype: str) -> npt.NDArray[Any]:
    """Return the values as a file stores them.

    Args:
        values: Of any shape.
        dtype: Of WIDTH. bfloat16 is rounded to the nearest, ties to even.
    """
    if dtype == "F32":
        return np.ascontiguousarray(values, "<f4")
    if dtype == "F16":
        with np.errstate(over="ignore"):  # values beyond 65504 become infinite; the caller checks
            half: npt.NDArray[Any] = values.astype("<f2")
        return half
    bits = np.ascontiguousarray(values, "<f4").view("<u4")
    rounded: npt.NDArray[Any] = ((bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16).astype("<u2")
    rounded[np.isnan(values)] = 0x7FC0
    return rounded


def decode_values(data: memoryview, dtype: str) -> FloatArray:
    """Return a file's bytes as flat float32 values.

    Raises:
        CorruptCheckpoint: The type is another one.
    """
    if dtype == "F32":
        return np.frombuffer(data, "<f4")
    if dtype == "F16":
        return np.frombuffer(data, "<f2").astype(np.float32)
    if dtype == "BF16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    raise CorruptCheckpoint(f"its values are of type {dtype}: only F32, BF16 and F16 can be read")
