"""Attention over rows whose tokens the context axis divides: ring attention (Liu et al. 2023, arXiv 2310.01889).

Keys and values travel around the ring, and each process merges what its queries find in those that pass by, with a
running softmax. A process has an early and a late part of the row (context.py). At the first turn it has its own keys.
Then either all its queries see the early part that has arrived, or its late queries see both parts. So each turn
computes as much on every process, and nothing that the causal mask would discard. In the backward pass the gradients
of keys and values travel with them, in fp32.

For torch each pass is one operation: its compiler need not trace it, selective recomputation keeps its result, and
neither keeps keys and values of other processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor

from trainer.torch_engine.attention_tiles import Scores, Tile, attend_to_tile, differentiate_tile
from trainer.torch_engine.context import ContextShare, finish_sending, list_parts, list_positions, start_sending

_FORWARD: Final = "orch_trainer::attend_in_ring"
_BACKWARD: Final = "orch_trainer::differentiate_in_ring"
_SETTINGS = "Tensor? documents, str group, int size, int index, int window, float scale, float softcap"


@dataclass(frozen=True, slots=True, kw_only=True)
class RingMask:
    """Which keys the queries of a process attend to, of those that are not after them.

    Attributes:
        share: The process among those that share its rows.
        window: Newest keys that a query attends to; 0 for all.
        documents: Number of each token's document, of whole rows; None where rows are not divided.
    """

    share: ContextShare
    window: int
    documents: Tensor | None


def attend_in_ring(query: Tensor, key: Tensor, value: Tensor, mask: RingMask, scale: float, softcap: float) -> Tensor:
    """Compute causal attention.

    Args:
        query: This process's tokens, shape (rows, heads, tokens, width).
        key: Shape (rows, kv_heads, tokens, width).
        value: Shape (rows, kv_heads, tokens, width).
        mask: Of the ring.
        scale: Factor of the scores.
        softcap: Their bound; 0 for none.

    Returns:
        The shape of `query`.
    """
    share = mask.share
    settings = (mask.documents, share.group, share.size, share.index, mask.window, scale, softcap)
    result: Tensor = _operations().attend_in_ring(query, key, value, *settings)[0]
    return result


def _attend(query: Tensor, key: Tensor, value: Tensor, *settings: Any) -> tuple[Tensor, Tensor]:
    """Return the result, and the logarithms of the sums of exponents in fp32, shape (rows, heads, tokens)."""
    ring = _Ring.of(query, key, *settings)
    mixed = torch.zeros(query.shape, dtype=torch.float32, device=query.device)
    totals = torch.full(query.shape[:3], -torch.inf, device=query.device)
    passing = torch.cat((key.flatten(), value.flatten()))
    for turn in range(ring.share.size):
        last = turn == ring.share.size - 1
        arriving = None if last else start_sending(ring.share, passing)
        for tile in ring.list_tiles(turn):
            keys, values = ring.pick_keys(passing, tile)
            found = attend_to_tile(query[:, :, tile.queries], keys, values, tile, ring.describe_scores(tile, turn))
            _merge(mixed[:, :, tile.queries], totals[:, :, tile.queries], *found)
        passing = passing if arriving is None else finish_sending(arriving)
    return mixed.to(query.dtype), totals


def _differentiate(
    slope: Tensor, query: Tensor, key: Tensor, value: Tensor, result: Tensor, totals: Tensor, *settings: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients by queries, keys and values."""
    ring = _Ring.of(query, key, *settings)
    slope = slope.to(query.dtype)
    by_query = torch.zeros(query.shape, dtype=torch.float32, device=query.device)
    passing = torch.cat((key.flatten(), value.flatten()))
    returning: Tensor | None = None
    for turn in range(ring.share.size):
        arriving = None if turn == ring.share.size - 1 else start_sending(ring.share, passing)
        by_keys = torch.zeros(passing.shape, dtype=torch.float32, device=query.device)
        for tile in ring.list_tiles(turn):
            keys, values = ring.pick_keys(passing, tile)
            mine = [one[:, :, tile.queries] for one in (slope, query, result, totals)]
            found = differentiate_tile(
                mine[0], mine[1], keys, values, mine[2], mine[3], tile, ring.describe_scores(tile, turn)
            )
            by_query[:, :, tile.queries] += found[0]
            ring.add_to_keys(by_keys, tile, found[1], found[2])
        if returning is not None:
            by_keys += finish_sending(returning)
        returning = start_sending(ring.share, by_keys)
        passing = passing if arriving is None else finish_sending(arriving)
    if returning is None:
        raise AssertionError("a ring has at least one turn")
    home = finish_sending(returning)
    by_key, by_value = (one.view(key.shape).to(key.dtype, copy=True) for one in home.chunk(2))
    return by_query.to(query.dtype), by_key, by_value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ring:
    """Attention of one process's queries to all keys of the ring.

    Attributes:
        mask: Which keys they attend to.
        shape: Of a process's keys.
        repeated: Number of query heads of each key head.
        scale: Factor of the scores.
        softcap: Their bound; 0 for none.
        device: Where it is computed.
    """

    mask: RingMask
    shape: torch.Size
    repeated: int
    scale: float
    softcap: float
    device: torch.device

    @classmethod
    def of(
        cls,
        query: Tensor,
        key: Tensor,
        documents: Tensor | None,
        group: str,
        size: int,
        index: int,
        window: int,
        scale: float,
        softcap: float,
    ) -> _Ring:
        share = ContextShare(group=group, size=size, index=index)
        return cls(
            mask=RingMask(share=share, window=window, documents=documents),
            shape=key.shape,
            repeated=query.shape[1] // key.shape[1],
            scale=scale,
            softcap=softcap,
            device=query.device,
        )

    @property
    def share(self) -> ContextShare:
        return self.mask.share

    def list_tiles(self, turn: int) -> Iterator[Tile]:
        """Yield the tiles of a turn; every query's own key is in the first that it is in."""
        half, window = self.shape[2] // 2, self.mask.window
        early, late = slice(0, half), slice(half, 2 * half)
        both = slice(0, 2 * half)
        if not window:
            if turn == 0:
                yield Tile(queries=both, keys=both, causal=True)
            elif turn <= self.share.index:  # they are keys of a process whose early part is before this one's
                yield Tile(queries=both, keys=early)
            else:
                yield Tile(queries=late, keys=both)
            return
        mine, theirs = list_parts(self.share), list_parts(self.share, turn)
        for queries, at in zip((early, late), mine, strict=True):
            for keys, key_at in zip((late, early), reversed(theirs), strict=True):
                nearest = (at - key_at) * half - (half - 1)
                if at >= key_at and nearest < window:
                    yield Tile(queries=queries, keys=keys, causal=at == key_at)

    def pick_keys(self, passing: Tensor, tile: Tile) -> tuple[Tensor, Tensor]:
        """Return the keys and the values of a tile, for all query heads."""
        key, value = (one.view(self.shape)[:, :, tile.keys] for one in passing.chunk(2))
        return self._repeat(key), self._repeat(value)

    def add_to_keys(self, sums: Tensor, tile: Tile, by_key: Tensor, by_value: Tensor) -> None:
        """Add gradients by the keys and values of a tile, of all query heads, to the flat sums."""
        for whole, part in zip(sums.chunk(2), (by_key, by_value), strict=True):
            heads = part.float().view(part.shape[0], self.shape[1], self.repeated, *part.shape[2:]).sum(dim=2)
            whole.view(self.shape)[:, :, tile.keys] += heads

    def describe_scores(self, tile: Tile, turn: int) -> Scores:
        half, window = self.shape[2] // 2, self.mask.window
        masked = self.mask.documents is not None
        if window:  # then a tile is one part of queries and one of keys
            mine, theirs = list_parts(self.share), list_parts(self.share, turn)
            first: int = tile.queries.start
            first_key: int = tile.keys.start
            apart = mine[first // half] - theirs[first_key // half]
            masked = masked or apart * half + half - 1 >= window
        attended = partial(self._find_attended, tile, turn) if masked else None
        return Scores(scale=self.scale, softcap=self.softcap, attended=attended)

    def _find_attended(self, tile: Tile, turn: int, part: slice) -> Tensor:
        tokens, documents = self.shape[2], self.mask.documents
        at = list_positions(self.share, tokens, self.device)[tile.queries][part]
        key_at = list_positions(self.share, tokens, self.device, turn)[tile.keys]
        distance = at[:, None] - key_at
        found = distance >= 0
        if self.mask.window:
            found &= distance < self.mask.window
        if documents is None:
            return found[None, None]
        same = documents[:, at][:, None, :, None] == documents[:, key_at][:, None, None, :]
        return found & same

    def _repeat(self, heads: Tensor) -> Tensor:
        return heads if self.repeated == 1 else heads.repeat_interleave(self.repeated, dim=1)


def _merge(mixed: Tensor, totals: Tensor, found: Tensor, found_totals: Tensor) -> None:
    """Merge attention to some keys into that to others, in place; afterwards the sums are finite."""
    merged = torch.logaddexp(totals, found_totals)
    mixed.mul_((totals - merged).exp_()[..., None]).add_(found * (found_totals - merged).exp_()[..., None])
    totals.copy_(merged)


def _operations() -> Any:
    return torch.ops.orch_trainer


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, documents, *ctx.settings = inputs
    ctx.save_for_backward(query, key, value, *output, documents)


def _run_backward(ctx: Any, slope: Tensor, _totals: Tensor) -> tuple[Tensor | None, ...]:
    *known, documents = ctx.saved_tensors
    slopes: tuple[Tensor, ...] = _operations().differentiate_in_ring(slope, *known, documents, *ctx.settings)
    return (*slopes, *([None] * (1 + len(ctx.settings))))


def _like_result(query: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(query, memory_format=torch.contiguous_format), query.new_empty(
        query.shape[:3], dtype=torch.float32
    )


def _like_inputs(_slope: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(one, memory_format=torch.contiguous_format) for one in (query, key, value))


def _without_autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        with torch.autocast(arguments[0].device.type, enabled=False):
            return function(*arguments)

    return call


DECOMPOSITIONS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {_FORWARD: _without_autocast(_attend), _BACKWARD: _without_autocast(_differentiate)}
)
"""What the operations compute, by their names; a rehearsal counts what they allocate and send."""

_CHECKED: Any = torch.library  # torch annotates it only partly
_forward: Any = _CHECKED.custom_op(
    _FORWARD,
    DECOMPOSITIONS[_FORWARD],
    mutates_args=(),
    schema=f"(Tensor query, Tensor key, Tensor value, {_SETTINGS}) -> (Tensor, Tensor)",
)
_forward.register_fake(_like_result)
_forward.register_autograd(_run_backward, setup_context=_keep)
_backward: Any = _CHECKED.custom_op(
    _BACKWARD,
    DECOMPOSITIONS[_BACKWARD],
    mutates_args=(),
    schema=(
        "(Tensor slope, Tensor query, Tensor key, Tensor value, Tensor result, Tensor totals, "
        f"{_SETTINGS}) -> (Tensor, Tensor, Tensor)"
    ),
)
_backward.register_fake(_like_inputs)
