"""Causal attention with shared key and value heads: a fused kernel where the device has one, else softmax in fp32."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, TypeAlias

import numpy as np
from jax import Array

from trainer.jax_engine.arithmetic import Arithmetic
from trainer.jax_engine.library import ad_checkpoint, jax, jnp
from trainer.shape.limits import ATTENTION_CHUNK

Kernel: TypeAlias = Literal["plain", "splash", "cudnn"]
ATTENTION_RESULT: Final = "attention"
"""Name of attention's result, which selective recomputation keeps."""

_LANES = 128  # of a TPU's vector unit: the splash kernel needs heads and lengths that are multiples
_MOST_CHUNKS = 16  # each chunk adds to the size of the program
_BLOCK = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """How attention's scores are made of products.

    Attributes:
        scale: Their factor.
        softcap: Their bound c, as c * tanh(score / c); 0 for none.
    """

    scale: float
    softcap: float = 0.0


def choose_kernel(platform: str, arithmetic: Arithmetic, head_dim: int, length: int, softcap: float = 0.0) -> Kernel:
    """Choose the attention kernel by shape and type.

    Shapes that a kernel does not accept use plain attention. So does fp32, which cuDNN does not support, and whose
    products splash computes in the TPU's default precision (jax 0.10.2, splash_attention_kernel.py). cuDNN has no bound
    of scores.
    """
    if arithmetic.dtype == "fp32":
        return "plain"
    if platform == "tpu" and head_dim % _LANES == 0 and length % _LANES == 0:
        return "splash"
    if platform in {"cuda", "gpu"} and not softcap and head_dim % 8 == 0 and head_dim <= 128:
        return "cudnn" if length % 2 == 0 else "plain"
    return "plain"


def attend(
    arithmetic: Arithmetic,
    kernel: Kernel,
    query: Array,
    key: Array,
    value: Array,
    window: int = 0,
    scores: Scores | None = None,
) -> Array:
    """Compute causal attention.

    Args:
        arithmetic: Type of the products.
        kernel: From `choose_kernel`.
        query: Shape (rows, length, heads, head_dim).
        key: Shape (rows, length, kv_heads, head_dim).
        value: Shape (rows, length, kv_heads, head_dim).
        window: Newest keys that a query attends to; 0 for all.
        scores: Their factor and bound; None for the usual factor.

    Returns:
        The shape of `query`.
    """
    scores = scores or Scores(scale=query.shape[-1] ** -0.5)
    if kernel == "splash":
        return splash_attention(query, key, value, window, scores)
    mixed = (
        fused_attention(query, key, value, "cudnn", window, scores.scale)
        if kernel == "cudnn"
        else _attend_in_chunks(arithmetic, scores, query, key, value, window)
    )
    result: Array = ad_checkpoint.checkpoint_name(mixed, ATTENTION_RESULT)
    return result


def _attend_in_chunks(
    arithmetic: Arithmetic, scores: Scores, query: Array, key: Array, value: Array, window: int
) -> Array:
    length = query.shape[1]
    window = window or length
    size = max(ATTENTION_CHUNK, -(-length // _MOST_CHUNKS))
    if length <= size:
        return _plain(arithmetic, scores, window, 0, query, key, value)
    # Scores of one chunk of queries exist at a time, also in the backward pass; no other keys are used.
    part = jax.checkpoint(partial(_plain, arithmetic, scores, window), static_argnums=(0,))
    outs: list[Array] = []
    for at in range(0, length, size):
        oldest = max(0, at - window + 1)
        keys = slice(oldest, at + size)
        outs.append(part(at - oldest, query[:, at : at + size], key[:, keys], value[:, keys]))
    result: Array = jnp.concatenate(outs, axis=1)
    return result


def _plain(
    arithmetic: Arithmetic, scores: Scores, window: int, first: int, query: Array, key: Array, value: Array
) -> Array:
    """Compute attention by plain products; the first query is at the position of the key number `first`."""
    rows, length, heads, width = query.shape
    shared = heads // key.shape[2]
    grouped = query.reshape(rows, length, key.shape[2], shared, width)
    products = jnp.einsum(
        "bqkgd,bskd->bkgqs", grouped, key, precision=arithmetic.precision, preferred_element_type=jnp.float32
    )
    distance = np.arange(first, first + length)[:, None] - np.arange(key.shape[1])
    seen = (distance >= 0) & (distance < window)
    scaled = products * scores.scale
    if scores.softcap:
        scaled = scores.softcap * jnp.tanh(scaled / scores.softcap)
    shares = jax.nn.softmax(jnp.where(seen, scaled, -jnp.inf), axis=-1).astype(value.dtype)
    mixed = jnp.einsum(
        "bkgqs,bskd->bqkgd", shares, value, precision=arithmetic.precision, preferred_element_type=value.dtype
    )
    result: Array = mixed.reshape(query.shape)
    return result


def fused_attention(
    query: Array,
    key: Array,
    value: Array,
    implementation: Literal["cudnn", "xla"],
    window: int = 0,
    scale: float | None = None,
) -> Array:
    """Compute attention with JAX's own function, on cuDNN (CUDA) or as plain XLA anywhere.

    Shapes are as in `attend`. Without `scale`, scores are divided by the root of head_dim (jax 0.10.2,
    jax.nn.dot_product_attention).
    """
    near = (window - 1, 0) if 0 < window < query.shape[1] else None
    result: Array = jax.nn.dot_product_attention(
        query, key, value, is_causal=True, scale=scale, local_window_size=near, implementation=implementation
    )
    return result


def splash_attention(
    query: Array, key: Array, value: Array, window: int = 0, scores: Scores | None = None, *, interpret: bool = False
) -> Array:
    """Compute attention with the TPU's splash kernel; shapes are as in `attend`.

    Args:
        query: Scaled here.
        key: Keys.
        value: Values.
        window: Newest keys that a query attends to; 0 for all.
        scores: Their factor and bound; None for the usual factor.
        interpret: Run the kernel's program step by step on any device, slowly.
    """
    from jax.experimental.pallas.ops.tpu import splash_attention as kernels

    _, length, heads, width = query.shape
    scores = scores or Scores(scale=width**-0.5)
    block = next(size for size in (_BLOCK, 256, _LANES) if length % size == 0)
    shape = (length, length)
    one = kernels.LocalMask(shape, (window - 1, 0), 0) if 0 < window < length else kernels.CausalMask(shape)
    mask = kernels.MultiHeadMask([one for _ in range(heads)])
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
    kernel = kernels.make_splash_mha(
        mask,
        block_sizes=sizes,
        head_shards=1,
        q_seq_shards=1,
        attn_logits_soft_cap=scores.softcap or None,
        interpret=interpret,
        residual_checkpoint_name=ATTENTION_RESULT,
    )
    scaled = (query.astype(jnp.float32) * scores.scale).astype(query.dtype)
    mixed: Array = jax.vmap(kernel)(*(jnp.swapaxes(t, 1, 2) for t in (scaled, key, value)))
    result: Array = jnp.swapaxes(mixed, 1, 2)
    return result
