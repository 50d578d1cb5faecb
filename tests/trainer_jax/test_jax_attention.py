"""Every implementation of attention has the same values and gradients; the TPU's kernel is interpreted here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from trainer.config import DTypeName
from trainer.jax_engine.arithmetic import Arithmetic
from trainer.jax_engine.attention import AttentionMask, attend, choose_kernel, fused_attention, splash_attention
from trainer.shape.attention_chunks import ATTENTION_CHUNK
from trainer.shape.mesh import Mesh

pytestmark = pytest.mark.jax

Kernel = Callable[[Array, Array, Array], Array]
CLOSE = {"fp32": 2e-5, "bf16": 4e-2}  # values are of the order of 1


def results(kernel: Kernel, dtype: DTypeName, length: int, shared: int, width: int) -> dict[str, Any]:
    """Values, and gradients of the queries, keys and values: 4 heads, of which `shared` have one key and value."""
    random = np.random.default_rng(length)
    like = Arithmetic(dtype, Mesh()).type
    query, slope = (jnp.asarray(random.normal(size=(1, length, 4, width)), like) for _ in range(2))
    key, value = (jnp.asarray(random.normal(size=(1, length, 4 // shared, width)), like) for _ in range(2))

    def both(query: Array, key: Array, value: Array, slope: Array) -> tuple[Array, ...]:
        out, back = jax.vjp(kernel, query, key, value)
        return out, *back(slope)

    found = jax.jit(both)(query, key, value, slope)
    assert all(one.dtype == like for one in found)
    return dict(zip(("values", "query", "key", "value"), (np.asarray(one, np.float32) for one in found), strict=True))


def assert_alike(found: dict[str, Any], expected: dict[str, Any], dtype: str) -> None:
    for name, values in expected.items():
        size = np.abs(values).mean()
        assert np.abs(found[name] - values).max() < CLOSE[dtype] * max(1.0, 8 * size), name


def plain(dtype: DTypeName, mask: AttentionMask) -> Kernel:
    return partial(attend, Arithmetic(dtype, Mesh()), "plain", mask=mask)


def masked(length: int, window: int, documents: int) -> AttentionMask:
    """Mask a row of so many documents of growing lengths; 0 for a row that is not divided."""
    numbers = jnp.asarray(np.arange(length)[None] ** 2 * documents // length**2, jnp.int32) if documents else None
    return AttentionMask(window=window, documents=numbers)


@pytest.mark.parametrize(
    ("dtype", "length", "shared", "window", "documents"),
    [("fp32", 384, 2, 0, 0), ("bf16", 256, 4, 100, 0), ("fp32", 256, 2, 100, 5)],
)
def test_the_tpu_kernel_equals_plain_attention(
    dtype: DTypeName, length: int, shared: int, window: int, documents: int
) -> None:
    mask = masked(length, window, documents)
    found = results(partial(splash_attention, mask=mask, interpret=True), dtype, length, shared, 128)
    assert_alike(found, results(plain(dtype, mask), dtype, length, shared, 128), dtype)


@pytest.mark.parametrize(("window", "documents"), [(0, 0), (20, 0), (0, 7), (200, 7)])
def test_chunked_attention_equals_whole_attention(window: int, documents: int) -> None:
    length = 2 * ATTENTION_CHUNK + 16
    mask = masked(length, window, documents)
    # JAX's own, which takes them whole.
    whole = results(partial(fused_attention, implementation="xla", mask=mask), "fp32", length, 2, 8)
    assert_alike(results(plain("fp32", mask), "fp32", length, 2, 8), whole, "fp32")


@pytest.mark.parametrize(
    ("platform", "dtype", "head_dim", "length", "kernel"),
    [
        ("tpu", "bf16", 128, 2048, "splash"),
        ("tpu", "bf16", 256, 384, "splash"),
        ("tpu", "fp32", 128, 2048, "plain"),
        ("tpu", "bf16", 64, 2048, "plain"),
        ("tpu", "bf16", 128, 2000, "plain"),
        ("cuda", "bf16", 64, 2000, "cudnn"),
        ("gpu", "bf16", 128, 2048, "cudnn"),
        ("cuda", "fp32", 64, 2048, "plain"),
        ("cuda", "bf16", 256, 2048, "plain"),
        ("cpu", "bf16", 128, 2048, "plain"),
    ],
)
def test_a_kernel_is_chosen_only_where_it_computes_the_requested_result(
    platform: str, dtype: DTypeName, head_dim: int, length: int, kernel: str
) -> None:
    assert choose_kernel(platform, Arithmetic(dtype, Mesh()), head_dim, length) == kernel


def test_documents_on_gpus_use_no_kernel_that_needs_a_matrix_of_scores() -> None:
    assert choose_kernel("cuda", Arithmetic("bf16", Mesh()), 64, 2048, documents=True) == "plain"
    assert choose_kernel("tpu", Arithmetic("bf16", Mesh()), 128, 2048, documents=True) == "splash"


@pytest.mark.parametrize("recomputed", [False, True])
def test_scores_of_short_rows_are_kept_only_where_the_block_is_recomputed(recomputed: bool) -> None:
    """The estimate of memory counts none without recomputation; a recomputed block would compute them a third time."""
    length = 64
    like = jnp.zeros((2, length, 4, 8), jnp.bfloat16)
    kernel = partial(attend, Arithmetic("bf16", Mesh(), recomputed), "plain")

    def keep(*arguments: Array) -> Any:
        return jax.vjp(kernel, *arguments)[1]

    kept = [leaf.shape for leaf in jax.tree.leaves(jax.eval_shape(keep, like, like, like))]
    assert any(shape[-2:] == (length, length) and len(shape) > 2 for shape in kept) == recomputed
