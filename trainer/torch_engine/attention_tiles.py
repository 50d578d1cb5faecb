"""Attention of some queries to some keys, with the sums by which it is merged with that to others, and its gradients.

Tensors have the shape (rows, heads, tokens, width). Where no mask is needed but the causal one, torch's fused kernels
compute a tile. Others are plain products, of few queries at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainer.shape.attention_chunks import choose_ring_chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """Some queries of a process, and some of the keys that have reached it.

    Attributes:
        queries: Which of the process's queries.
        keys: Which of the keys.
        causal: Whether they are the same tokens, so that each query attends to the keys up to its own.
    """

    queries: slice
    keys: slice
    causal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """How scores are made of products.

    Attributes:
        scale: Their factor.
        softcap: Their bound c, as c * tanh(score / c); 0 for none.
        attended: Returns which keys each of some queries attends to, shape (rows or 1, 1, queries, keys); None where
            a causal mask, or none, is enough.
    """

    scale: float
    softcap: float
    attended: Callable[[slice], Tensor] | None


def attend_to_tile(query: Tensor, key: Tensor, value: Tensor, tile: Tile, scores: Scores) -> tuple[Tensor, Tensor]:
    """Return the result, and the logarithms of the sums of exponents in fp32, shape (rows, heads, queries)."""
    if _is_fused(query, scores):
        aten: Any = torch.ops.aten
        name = "_scaled_dot_product_flash_attention" + ("_for_cpu" if query.device.type == "cpu" else "")
        result, total, *_ = getattr(aten, name)(query, key, value, 0.0, tile.causal, scale=scores.scale)
        return result, total
    results: list[Tensor] = []
    totals: list[Tensor] = []
    for part in _list_chunks(query):
        found, _ = _compute_scores(query[:, :, part], key, part, tile, scores)
        top = found.amax(dim=-1, keepdim=True)
        top = torch.where(top.isfinite(), top, 0.0)  # a query may attend to none of the keys
        exponents = (found - top).exp_()
        sums = exponents.sum(dim=-1, keepdim=True)
        shares = exponents / torch.where(sums > 0, sums, 1.0)
        results.append(shares.to(value.dtype) @ value)
        totals.append((top + sums.log()).squeeze(-1))
    return torch.cat(results, dim=2), torch.cat(totals, dim=2)


def differentiate_tile(
    slope: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    result: Tensor,
    total: Tensor,
    tile: Tile,
    scores: Scores,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return this tile's part of the gradients by queries, keys and values.

    Args:
        slope: Gradient by the whole result of the queries.
        query: Queries.
        key: Keys.
        value: Values.
        result: The whole result of the queries, of all their keys.
        total: Logarithms of its sums of exponents.
        tile: Which they are.
        scores: How they are scored.
    """
    if _is_fused(query, scores):
        return _differentiate_fused(slope, query, key, value, result, total, tile, scores)
    by_query: list[Tensor] = []
    by_key, by_value = (torch.zeros(one.shape, dtype=torch.float32, device=one.device) for one in (key, value))
    for part in _list_chunks(query):
        found, bounded = _compute_scores(query[:, :, part], key, part, tile, scores)
        shares = (found - total[:, :, part, None]).exp_()
        delta = (slope[:, :, part].float() * result[:, :, part].float()).sum(dim=-1, keepdim=True)
        by_scores = shares * ((slope[:, :, part] @ value.transpose(-1, -2)).float() - delta) * scores.scale
        if bounded is not None:
            by_scores = by_scores * (1.0 - bounded.square())
        narrow = by_scores.to(query.dtype)
        by_query.append(narrow @ key)
        by_key += narrow.transpose(-1, -2) @ query[:, :, part]
        by_value += shares.to(query.dtype).transpose(-1, -2) @ slope[:, :, part]
    return torch.cat(by_query, dim=2), by_key, by_value


def _is_fused(query: Tensor, scores: Scores) -> bool:
    """Return whether a fused kernel computes the tile: CUDA's takes no fp32, and heads of widths that 8 divides."""
    fits = query.device.type == "cpu" or (query.dtype != torch.float32 and query.shape[-1] % 8 == 0)
    return scores.attended is None and not scores.softcap and fits


def _differentiate_fused(
    slope: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    result: Tensor,
    total: Tensor,
    tile: Tile,
    scores: Scores,
) -> tuple[Tensor, Tensor, Tensor]:
    aten: Any = torch.ops.aten
    known = (slope, query, key, value, result, total)
    if query.device.type == "cpu":
        by_query, by_key, by_value = aten._scaled_dot_product_flash_attention_for_cpu_backward(
            *known, 0.0, tile.causal, scale=scores.scale
        )
        return by_query, by_key, by_value
    # Rows of one length have no table of lengths. Without dropout no random numbers are drawn: the last two are of the
    # shapes that the forward pass returns (torch 2.13, native/transformers/cuda/attention.cu).
    seed, offset = (torch.zeros(shape, dtype=torch.uint64, device=query.device) for shape in ((2,), ()))
    by_query, by_key, by_value = aten._scaled_dot_product_flash_attention_backward(
        *known,
        None,
        None,
        query.shape[2],
        key.shape[2],
        0.0,
        tile.causal,
        seed,
        offset,
        scale=scores.scale,
    )
    return by_query, by_key, by_value


def _compute_scores(
    query: Tensor, key: Tensor, part: slice, tile: Tile, scores: Scores
) -> tuple[Tensor, Tensor | None]:
    """Return scores in fp32, -inf where a query does not attend, and the bounded ones divided by their bound, if any.

    The queries are those of `part` of the tile's.
    """
    found = (query @ key.transpose(-1, -2)).float() * scores.scale
    bounded = torch.tanh(found / scores.softcap) if scores.softcap else None
    if bounded is not None:
        found = scores.softcap * bounded
    if scores.attended is not None:
        return found.masked_fill(~scores.attended(part), -torch.inf), bounded
    if tile.causal:
        at = torch.arange(key.shape[2], device=query.device)
        return found.masked_fill(at[part, None] < at, -torch.inf), bounded
    return found, bounded


def _list_chunks(query: Tensor) -> list[slice]:
    length = query.shape[2]
    size = choose_ring_chunk(length)
    return [slice(first, first + size) for first in range(0, length, size)]
