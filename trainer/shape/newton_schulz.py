"""Constants, size and cost of Muon's orthogonalization, shared by the engines and the estimates.

The quintic Newton-Schulz iteration x <- a x + (b g + c g g) x, with g = x x^T, moves all singular values of a matrix of
norm one to about one (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

from trainer.config import ModelConfig
from trainer.shape.architecture import list_parameters

STEPS: Final = 5
COEFFICIENTS: Final = (3.4445, -4.7750, 2.0315)
EPSILON: Final = 1e-7  # least norm by which a matrix is divided, as in torch.optim.Muon
_RMS: Final = 0.2  # of AdamW's updates, so that one learning rate fits both (Liu et al. 2025, arXiv 2502.16982)


def scale_update(shape: tuple[int, ...]) -> float:
    """Return the factor of an orthogonalized (rows, columns) matrix that gives its values AdamW's usual size."""
    return _RMS * math.sqrt(max(shape))


@lru_cache(maxsize=32)
def count_hidden_values(model: ModelConfig) -> int:
    """Return the number of values in the matrices that Muon updates."""
    return sum(parameter.size for parameter in list_parameters(model) if parameter.is_hidden_matrix)


@lru_cache(maxsize=32)
def count_orthogonalization_flops(model: ModelConfig) -> float:
    """Return the FLOPs by which all devices together orthogonalize the model's hidden matrices once.

    An iteration has the products x x^T, g g and (b g + c g g) x, with x of shape (low, high), low <= high.
    """
    sizes = [(min(one.shape), max(one.shape)) for one in list_parameters(model) if one.is_hidden_matrix]
    return float(sum(STEPS * (4 * low * low * high + 2 * low**3) for low, high in sizes))
