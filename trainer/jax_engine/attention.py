"""Causal attention with shared key and value heads: a fused kernel where the device has one, else softmax in fp32."""

from __future__ import annotations

from functools import partial
from typing import Literal, TypeAlias

import numpy as np
from jax import Array

from trainer.jax_engine.arithmetic import Arithmetic
from trainer.jax_engine.library import jax, jnp
from trainer.shape.limits import ATTENTION_CHUNK

Kernel: TypeAlias = Literal["plain", "splash", "cudnn"]

_LANES = 128  # of a TPU's vector unit: the splash kernel takes heads and lengths that fill it
_MOST_CHUNKS = 16  # each is a piece of program of its own
_BLOCK = 512


def choose_kernel(platform: str, arithmetic: Arithmetic, head_dim: int, length: int) -> Kernel:
    """By shape: what a kernel does not take goes the plain way; so does fp32, of which cuDNN knows nothing, and whose
    products splash leaves to the TPU's default precision (jax 0.10.2, splash_attention_kernel.py)."""
    if arithmetic.dtype == "fp32":
        return "plain"
    if platform == "tpu" and head_dim % _LANES == 0 and length % _LANES == 0:
        return "splash"
    if platform in {"cuda", "gpu"} and head_dim % 8 == 0 and head_dim <= 128:
        return "cudnn" if length % 2 == 0 else "plain"
    return "plain"


def attend(arithmetic: Arithmetic, kernel: Kernel, query: Array, key: Array, value: Array) -> Array:
    """query: (rows, length, heads, head_dim). key, value: (rows, length, kv_heads, head_dim). Returns query's shape."""
    if kernel == "splash":
        return splash(query, key, value)
    if kernel == "cudnn":
        return fused(query, key, value, "cudnn")
    length = query.shape[1]
    size = max(ATTENTION_CHUNK, -(-length // _MOST_CHUNKS))
    if length <= size:
        return _plain(arithmetic, 0, query, key, value)
    # Scores of a part of the queries exist at a time, in the backward pass too; keys behind them are not looked at.
    part = jax.checkpoint(partial(_plain, arithmetic), static_argnums=(0,))
    outs = [
        part(at, query[:, at : at + size], key[:, : at + size], value[:, : at + size]) for at in range(0, length, size)
    ]
    result: Array = jnp.concatenate(outs, axis=1)
    return result


def _plain(arithmetic: Arithmetic, first: int, query: Array, key: Array, value: Array) -> Array:
    """first: position of the first query. The keys begin at position 0."""
    rows, length, heads, width = query.shape
    shared = heads // key.shape[2]
    grouped = query.reshape(rows, length, key.shape[2], shared, width)
    scores = jnp.einsum(
        "bqkgd,bskd->bkgqs", grouped, key, precision=arithmetic.precision, preferred_element_type=jnp.float32
    )
    seen = np.arange(first, first + length)[:, None] >= np.arange(key.shape[1])
    shares = jax.nn.softmax(jnp.where(seen, scores * width**-0.5, -jnp.inf), axis=-1).astype(value.dtype)
    mixed = jnp.einsum(
        "bkgqs,bskd->bqkgd", shares, value, precision=arithmetic.precision, preferred_element_type=value.dtype
    )
    result: Array = mixed.reshape(query.shape)
    return result


def fused(query: Array, key: Array, value: Array, implementation: Literal["cudnn", "xla"]) -> Array:
    """JAX's own attention: rows, length, heads, head_dim; key and value heads shared by groups of neighbours; scaled by
    the root of head_dim (jax 0.10.2, jax.nn.dot_product_attention). cudnn: on CUDA; xla: the same anywhere."""
    result: Array = jax.nn.dot_product_attention(query, key, value, is_causal=True, implementation=implementation)
    return result


def splash(query: Array, key: Array, value: Array, *, interpret: bool = False) -> Array:
    """interpret: run the kernel's program step by step on any device, slowly."""
    from jax.experimental.pallas.ops.tpu import splash_attention as kernels

    _, length, heads, width = query.shape
    block = next(size for size in (_BLOCK, 256, _LANES) if length % size == 0)
    mask = kernels.MultiHeadMask([kernels.CausalMask((length, length)) for _ in range(heads)])
    sizes = kernels.BlockSizes(
        block_q=block,
        block_kv=block,
        block_kv_compute=block,
        block_q_dkv=block,
        block_kv_dkv=block,
        block_kv_dkv_compute=block,
        block_q_dq=block,
        block_kv_dq=block,
    )
    kernel = kernels.make_splash_mha(mask, block_sizes=sizes, head_shards=1, q_seq_shards=1, interpret=interpret)
    scaled = (query.astype(jnp.float32) * width**-0.5).astype(query.dtype)
    mixed: Array = jax.vmap(kernel)(*(jnp.swapaxes(t, 1, 2) for t in (scaled, key, value)))
    result: Array = jnp.swapaxes(mixed, 1, 2)
    return result
