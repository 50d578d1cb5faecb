"""The angles of rotary positions: the one table that engines share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trainer.config import ModelConfig


def make_rotary_table(model: ModelConfig, length: int) -> npt.NDArray[np.float32]:
    """Return cosine and sine of each position's angles, shape (2, length, head_dim / 2)."""
    return _make_table(_compute_rates(model), length)


def make_local_rotary_table(model: ModelConfig, length: int) -> npt.NDArray[np.float32]:
    """Return the table of the blocks with a window, of the same shape."""
    if not model.local_rope_theta:
        return make_rotary_table(model, length)
    return _make_table(_compute_plain_rates(model.local_rope_theta, model.head_dim), length)


def _make_table(rates: npt.NDArray[np.float64], length: int) -> npt.NDArray[np.float32]:
    angles = np.outer(np.arange(length, dtype=np.float64), rates)
    return np.stack([np.cos(angles), np.sin(angles)]).astype(np.float32)


def _compute_rates(model: ModelConfig) -> npt.NDArray[np.float64]:
    """Return the angle that each pair turns per position, in radians, shape (head_dim / 2,)."""
    rates = _compute_plain_rates(model.rope_theta, model.head_dim)
    if model.rope_scaling == "linear":
        return rates / model.rope_factor
    return _slow_down(model, rates) if model.rope_scaling == "llama3" else rates


def _compute_plain_rates(theta: float, width: int) -> npt.NDArray[np.float64]:
    rates: npt.NDArray[np.float64] = theta ** -(np.arange(0, width, 2, dtype=np.float64) / width)
    return rates


def _slow_down(model: ModelConfig, rates: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the rates of Llama 3.1.

    Pairs that turn often within the old context keep their rate, rare ones are slowed by the factor, and those between
    are interpolated. Source: meta-llama/llama-models, models/llama3/model.py, apply_scaling, read November 2026.
    """
    turns = model.rope_context * rates / (2 * np.pi)
    kept = np.clip((turns - model.rope_low_freq) / (model.rope_high_freq - model.rope_low_freq), 0.0, 1.0)
    result: npt.NDArray[np.float64] = rates * (kept + (1.0 - kept) / model.rope_factor)
    return result
