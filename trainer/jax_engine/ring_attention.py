"""Attention over rows whose tokens the context axis divides: ring attention (Liu et al. 2023, arXiv 2310.01889).

Keys and values travel around the ring, and each device merges what its queries find in those that pass by, with a
running softmax. A device has an early and a late part of the row (context.py). Of the parts that pass by, the late
queries see the early one whole, and either the late queries see the late one or the early queries the early one. So
each turn computes two pairs of parts on every device, and none that the causal mask would discard. In the backward
pass the gradients of keys and values travel with them, in fp32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from jax import Array

from trainer.jax_engine.arithmetic import Arithmetic
from trainer.jax_engine.context import get_context_index, send_to_next
from trainer.jax_engine.library import ad_checkpoint, jax, jnp, lax
from trainer.shape.attention_chunks import choose_ring_chunk
from trainer.shape.mesh import Mesh

KeysAndValues: TypeAlias = tuple[Array, Array]
Sums: TypeAlias = tuple[Array, Array]
"""Result of attention in fp32, shape (rows, queries, key heads, heads of each, width), and the logarithm of the sum of
exponents, which has no width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """What is fixed about attention when it is compiled.

    Attributes:
        arithmetic: Type of the products, and the mesh.
        scale: Factor of the scores.
        softcap: Bound of the scores; 0 for none.
        window: Newest keys that a query attends to; 0 for all.
        result_name: Name of the results that selective recomputation keeps.
    """

    arithmetic: Arithmetic
    scale: float
    softcap: float
    window: int
    result_name: str

    @property
    def mesh(self) -> Mesh:
        return self.arithmetic.mesh

    def product(self, equation: str, left: Array, right: Array) -> Array:
        """Sum products in fp32."""
        result: Array = jnp.einsum(
            equation, left, right, precision=self.arithmetic.precision, preferred_element_type=jnp.float32
        )
        return result


def attend_in_ring(ring: Ring, query: Array, key: Array, value: Array, documents: Array | None) -> Array:
    """Compute causal attention.

    Args:
        ring: Its settings.
        query: This device's tokens, shape (rows, tokens, heads, head_dim).
        key: Shape (rows, tokens, kv_heads, head_dim).
        value: Shape (rows, tokens, kv_heads, head_dim).
        documents: Number of each token's document, of whole rows; None where rows are not divided.

    Returns:
        The shape of `query`.
    """
    rows, length, heads, width = query.shape
    grouped = query.reshape(rows, length, key.shape[2], heads // key.shape[2], width)
    result: Array = _differentiable(ring, grouped, key, value, documents)
    return result.reshape(query.shape)


def _only_result(ring: Ring, query: Array, key: Array, value: Array, documents: Array | None) -> Array:
    return _attend(ring, query, key, value, documents)[0].astype(query.dtype)


def _forward(
    ring: Ring, query: Array, key: Array, value: Array, documents: Array | None
) -> tuple[Array, tuple[Any, ...]]:
    mixed, total = _attend(ring, query, key, value, documents)
    named = partial(ad_checkpoint.checkpoint_name, name=ring.result_name)
    result, total = named(mixed.astype(query.dtype)), named(total)
    return result, (query, key, value, documents, result, total)


def _backward(ring: Ring, kept: tuple[Any, ...], slope: Array) -> tuple[Any, ...]:
    query, key, value, documents, result, total = kept
    slope = slope.astype(query.dtype)
    delta = (slope.astype(jnp.float32) * result.astype(jnp.float32)).sum(axis=-1)
    of_query = [_Queries(*halves) for halves in zip(*map(_halve, (query, slope, total, delta)), strict=True)]
    turns, own = ring.mesh.context, get_context_index(ring.mesh)
    early, late = own, 2 * turns - 1 - own

    def block(queries: _Queries, at: Array, passing: KeysAndValues, key_at: Array) -> tuple[Array, Array, Array]:
        return _differentiate_block(ring, queries, at, passing, key_at, documents)

    def compute(turn: Any, slopes: Any, passing: KeysAndValues) -> Any:
        """Add the gradients of two pairs of parts."""
        source = (own - turn) % turns
        before = source < own  # of those queries and keys the early ones are paired, else the late ones
        keys, queries = [_halve_each(passing, half) for half in (0, 1)], of_query
        by_early, by_late, (by_key, by_value) = slopes
        across = block(queries[1], late, keys[0], source)
        chosen = _choose(before, queries[0], queries[1])
        paired = _choose(before, keys[0], keys[1])
        found = block(chosen, jnp.where(before, early, late), paired, jnp.where(before, source, 2 * turns - 1 - source))
        by_early += jnp.where(before, found[0], 0.0)
        by_late += across[0] + jnp.where(before, 0.0, found[0])
        first, second = (jnp.where(which, 1.0, 0.0) for which in (before, ~before))
        by_key, by_value = (
            total + jnp.concatenate((one + first * other, second * other), axis=1)
            for total, one, other in ((by_key, across[1], found[1]), (by_value, across[2], found[2]))
        )
        return by_early, by_late, (by_key, by_value)

    keys = [_halve_each((key, value), half) for half in (0, 1)]
    first, second = block(of_query[0], early, keys[0], early), block(of_query[1], late, keys[1], late)
    across = block(of_query[1], late, keys[0], early)
    by_keys = tuple(jnp.concatenate((first[at] + across[at], second[at]), axis=1) for at in (1, 2))
    slopes = first[0], second[0] + across[0], send_to_next(ring.mesh, by_keys)

    def turn_around(turn: Any, carry: Any) -> Any:
        slopes, passing = carry
        following = send_to_next(ring.mesh, passing)
        by_early, by_late, by_keys = compute(turn, slopes, passing)
        return (by_early, by_late, send_to_next(ring.mesh, by_keys)), following

    carry = (slopes, send_to_next(ring.mesh, (key, value)))
    slopes, passing = lax.fori_loop(1, turns - 1, turn_around, carry)
    by_early, by_late, by_keys = compute(turns - 1, slopes, passing)
    by_key, by_value = send_to_next(ring.mesh, by_keys)  # home
    by_query = jnp.concatenate((by_early, by_late), axis=1)
    nothing = None if documents is None else np.zeros(documents.shape, jax.dtypes.float0)
    return by_query.astype(query.dtype), by_key.astype(key.dtype), by_value.astype(value.dtype), nothing


_differentiable: Any = jax.custom_vjp(_only_result, nondiff_argnums=(0,))
_differentiable.defvjp(_forward, _backward)


def _attend(ring: Ring, query: Array, key: Array, value: Array, documents: Array | None) -> Sums:
    """Return the result in fp32 and the logarithms of the sums, of all queries of this device."""
    queries, turns, own = _halve(query), ring.mesh.context, get_context_index(ring.mesh)
    early, late = own, 2 * turns - 1 - own

    def block(queries: Array, at: Array, passing: KeysAndValues, key_at: Array) -> Sums:
        return _attend_block(ring, queries, at, passing, key_at, documents)

    def compute(turn: Any, sums: tuple[Sums, Sums], passing: KeysAndValues) -> tuple[Sums, Sums]:
        source = (own - turn) % turns
        before = source < own
        keys = [_halve_each(passing, half) for half in (0, 1)]
        of_late = _merge(sums[1], block(queries[1], late, keys[0], source))
        chosen = jnp.where(before, queries[0], queries[1])
        at, key_at = jnp.where(before, early, late), jnp.where(before, source, 2 * turns - 1 - source)
        found, total = block(chosen, at, _choose(before, keys[0], keys[1]), key_at)
        of_early = _merge(sums[0], (found, jnp.where(before, total, -jnp.inf)))
        return of_early, _merge(of_late, (found, jnp.where(before, -jnp.inf, total)))

    # The first turn has each query's own key, so that all sums are finite from then on.
    keys = [_halve_each((key, value), half) for half in (0, 1)]
    of_late = _merge(block(queries[1], late, keys[1], late), block(queries[1], late, keys[0], early))
    sums = (block(queries[0], early, keys[0], early), of_late)

    def turn_around(turn: Any, carry: Any) -> Any:
        sums, passing = carry
        following = send_to_next(ring.mesh, passing)  # while this turn computes
        return compute(turn, sums, passing), following

    carry = (sums, send_to_next(ring.mesh, (key, value)))
    # The last keys that arrive are not sent on.
    sums, passing = lax.fori_loop(1, turns - 1, turn_around, carry)
    (one, one_total), (other, other_total) = compute(turns - 1, sums, passing)
    return jnp.concatenate((one, other), axis=1), jnp.concatenate((one_total, other_total), axis=1)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Queries:
    """Queries of one part, and what the forward pass and the loss know of their results."""

    values: Array
    slope: Array
    total: Array
    delta: Array


def _attend_block(
    ring: Ring, query: Array, at: Array, keys: KeysAndValues, key_at: Array, documents: Array | None
) -> Sums:
    """Compute attention of the queries of part `at` to the keys of part `key_at` alone."""

    def compute(first: Array, query: Array) -> Sums:
        scores, _ = _compute_scores(ring, query, at * length + first, keys[0], key_at * length, documents)
        top = scores.max(axis=-1, keepdims=True)
        top = jnp.where(jnp.isfinite(top), top, 0.0)  # a query may see none of the keys
        exponents = jnp.exp(scores - top)
        total = exponents.sum(axis=-1, keepdims=True)
        shares = exponents / jnp.where(total > 0, total, 1.0)
        mixed = ring.product("bkgqs,bskd->bqkgd", shares.astype(query.dtype), keys[1])
        return mixed, jnp.moveaxis((top + jnp.log(total))[..., 0], 3, 1)

    length = query.shape[1]
    size = choose_ring_chunk(length)
    if size == length:
        return compute(jnp.zeros((), jnp.int32), query)

    def compute_chunk(one: tuple[Array, Array]) -> Sums:
        return compute(*one)

    found: Any = lax.map(compute_chunk, (jnp.arange(0, length, size), _cut(query, size)))
    return _join(found[0]), _join(found[1])


def _differentiate_block(
    ring: Ring, queries: _Queries, at: Array, keys: KeysAndValues, key_at: Array, documents: Array | None
) -> tuple[Array, Array, Array]:
    """Return this pair's part of the gradients by queries, keys and values, in fp32."""

    def compute(first: Array, part: _Queries) -> tuple[Array, Array, Array]:
        scores, bounded = _compute_scores(ring, part.values, at * length + first, keys[0], key_at * length, documents)
        shares = jnp.exp(scores - jnp.moveaxis(part.total, 1, 3)[..., None])
        by_shares = ring.product("bqkgd,bskd->bkgqs", part.slope, keys[1])
        by_scores = shares * (by_shares - jnp.moveaxis(part.delta, 1, 3)[..., None]) * ring.scale
        if bounded is not None:
            by_scores = by_scores * (1.0 - jnp.square(bounded))
        narrow, low = by_scores.astype(part.values.dtype), shares.astype(part.values.dtype)
        return (
            ring.product("bkgqs,bskd->bqkgd", narrow, keys[0]),
            ring.product("bkgqs,bqkgd->bskd", narrow, part.values),
            ring.product("bkgqs,bqkgd->bskd", low, part.slope),
        )

    length = queries.values.shape[1]
    size = choose_ring_chunk(length)
    if size == length:
        return compute(jnp.zeros((), jnp.int32), queries)

    def add(sums: KeysAndValues, one: tuple[Array, _Queries]) -> tuple[KeysAndValues, Array]:
        by_query, by_key, by_value = compute(*one)
        return (sums[0] + by_key, sums[1] + by_value), by_query

    def cut(values: Array) -> Array:
        return _cut(values, size)

    parts = jnp.arange(0, length, size), jax.tree.map(cut, queries)
    nothing = tuple(jnp.zeros(one.shape, jnp.float32) for one in keys)
    (by_key, by_value), by_query = lax.scan(add, nothing, parts)
    return _join(by_query), by_key, by_value


def _compute_scores(
    ring: Ring, query: Array, first: Array, key: Array, first_key: Array, documents: Array | None
) -> tuple[Array, Array | None]:
    """Return scores, -inf where a query does not attend, and the bounded ones divided by their bound, if any.

    Queries and keys are at the positions from `first` and from `first_key` on.
    """
    products = ring.product("bqkgd,bskd->bkgqs", query, key)
    scaled = products * ring.scale
    bounded = jnp.tanh(scaled / ring.softcap) if ring.softcap else None
    if bounded is not None:
        scaled = ring.softcap * bounded
    count, keys = query.shape[1], key.shape[1]
    distance = first - first_key + jnp.arange(count)[:, None] - jnp.arange(keys)
    seen = distance >= 0
    if ring.window:
        seen &= distance < ring.window
    if documents is not None:
        mine = lax.dynamic_slice_in_dim(documents, first, count, axis=1)
        theirs = lax.dynamic_slice_in_dim(documents, first_key, keys, axis=1)
        seen = seen & (mine[:, None, None, :, None] == theirs[:, None, None, None, :])
    return jnp.where(seen, scaled, -jnp.inf), bounded


def _merge(one: Sums, other: Sums) -> Sums:
    """Merge attention to some keys with that to others; the first sums must be finite."""
    total = jnp.logaddexp(one[1], other[1])
    left, right = (part[0] * jnp.exp(part[1] - total)[..., None] for part in (one, other))
    return left + right, total


def _choose(condition: Array, one: Any, other: Any) -> Any:
    return jax.tree.map(partial(jnp.where, condition), one, other)


def _halve(values: Array) -> tuple[Array, Array]:
    """Return the early and the late part."""
    first, second = jnp.split(values, 2, axis=1)
    return first, second


def _halve_each(values: KeysAndValues, half: int) -> KeysAndValues:
    key, value = (_halve(one)[half] for one in values)
    return key, value


def _cut(values: Array, size: int) -> Array:
    """Reshape (rows, length, ...) to (length / size, rows, size, ...)."""
    rows, length, *rest = values.shape
    result: Array = jnp.moveaxis(values.reshape(rows, length // size, size, *rest), 1, 0)
    return result


def _join(values: Array) -> Array:
    """Invert `_cut`."""
    count, rows, size, *rest = values.shape
    result: Array = jnp.moveaxis(values, 0, 1).reshape(rows, count * size, *rest)
    return result
