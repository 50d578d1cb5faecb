"""Causal attention with shared key and value heads: a fused kernel where the device has one, else softmax in fp32."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from jax import Array

from trainer.engine import DOCUMENT_START
from trainer.jax_engine.arithmetic import Arithmetic
from trainer.jax_engine.library import ad_checkpoint, jax, jnp
from trainer.jax_engine.ring_attention import Ring, attend_in_ring
from trainer.shape.attention_chunks import list_attention_chunks

Kernel: TypeAlias = Literal["plain", "splash", "cudnn", "ring"]
ATTENTION_RESULT: Final = "attention"
"""Name of attention's result, which selective recomputation keeps."""

_LANES = 128  # of a TPU's vector unit: the splash kernel needs heads and lengths that are multiples
_BLOCK = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionMask:
    """Which keys each query attends to, of those that are not after it.

    Attributes:
        window: Newest keys that a query attends to; 0 for all.
        documents: Number of each token's document, int32 of shape (rows, length): a query attends to keys with its own
            number. None for all keys of the row. On a context axis, of whole rows.
    """

    window: int = 0
    documents: Array | None = None


_CAUSAL: Final = AttentionMask()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """How attention's scores are made of products.

    Attributes:
        scale: Their factor.
        softcap: Their bound c, as c * tanh(score / c); 0 for none.
    """

    scale: float
    softcap: float = 0.0


def split_documents(rows: Array) -> tuple[Array, Array]:
    """Return rows without the starts of documents, and the number of each input's document within its row.

    Args:
        rows: Shape (rows, seq_len + 1), with starts of documents (trainer/data/tokens/document_starts.py).

    Returns:
        The rows, and int32 of shape (rows, seq_len).
    """
    starts = ((rows & DOCUMENT_START) != 0) != (rows < 0)
    return jnp.where(starts, rows ^ DOCUMENT_START, rows), starts[:, :-1].cumsum(axis=1, dtype=jnp.int32)


def choose_kernel(
    platform: str, arithmetic: Arithmetic, head_dim: int, length: int, *, documents: bool = False, softcap: float = 0.0
) -> Kernel:
    """Choose the attention kernel by shape and type.

    Shapes that a kernel does not accept use plain attention. So does fp32, which cuDNN does not support, and whose
    products splash computes in the TPU's default precision (jax 0.10.2, splash_attention_kernel.py). So do documents
    on GPUs: jax.nn.dot_product_attention gives them to cuDNN only as a bias of (length x length), whose gradient it
    computes, too (jax 0.10.2, cudnn/fused_attention_stablehlo.py). cuDNN has no bound of scores.
    """
    if arithmetic.mesh.context > 1:
        return "ring"
    if arithmetic.dtype == "fp32":
        return "plain"
    if platform == "tpu" and head_dim % _LANES == 0 and length % _LANES == 0:
        return "splash"
    fits_cudnn = not documents and not softcap and head_dim % 8 == 0 and head_dim <= 128
    if platform in {"cuda", "gpu"} and fits_cudnn:
        return "cudnn" if length % 2 == 0 else "plain"
    return "plain"


def attend(
    arithmetic: Arithmetic,
    kernel: Kernel,
    query: Array,
    key: Array,
    value: Array,
    *,
    mask: AttentionMask = _CAUSAL,
    scores: Scores | None = None,
) -> Array:
    """Compute causal attention.

    Args:
        arithmetic: Type of the products.
        kernel: From `choose_kernel`.
        query: Shape (rows, length, heads, head_dim).
        key: Shape (rows, length, kv_heads, head_dim).
        value: Shape (rows, length, kv_heads, head_dim).
        mask: Which of the earlier keys a query attends to.
        scores: Their factor and bound; None for the usual factor.

    Returns:
        The shape of `query`.
    """
    scores = scores or Scores(scale=query.shape[-1] ** -0.5)
    if kernel == "splash":
        return splash_attention(query, key, value, mask, scores)
    if kernel == "ring":
        ring = Ring(
            arithmetic=arithmetic,
            scale=scores.scale,
            softcap=scores.softcap,
            window=mask.window,
            result_name=ATTENTION_RESULT,
        )
        return attend_in_ring(ring, query, key, value, mask.documents)
    mixed = (
        fused_attention(query, key, value, "cudnn", mask, scores.scale)
        if kernel == "cudnn"
        else _attend_in_chunks(arithmetic, scores, query, key, value, mask)
    )
    result: Array = ad_checkpoint.checkpoint_name(mixed, ATTENTION_RESULT)
    return result


def _attend_in_chunks(
    arithmetic: Arithmetic, scores: Scores, query: Array, key: Array, value: Array, mask: AttentionMask
) -> Array:
    length = query.shape[1]
    window = mask.window or length
    chunks = list_attention_chunks(length, mask.window)

    def pick(part: slice) -> Array | None:
        return None if mask.documents is None else mask.documents[:, part]

    if len(chunks) == 1 and arithmetic.recomputed:
        return _plain(arithmetic, scores, window, 0, query, key, value, mask.documents, mask.documents)
    # Scores of one chunk of queries exist at a time, also in the backward pass; no other keys are used.
    part = jax.checkpoint(partial(_plain, arithmetic, scores, window), static_argnums=(0,))
    outs: list[Array] = []
    for chunk in chunks:
        queries, keys = slice(chunk.first, chunk.end), slice(chunk.oldest, chunk.end)
        of_chunk = (query[:, queries], key[:, keys], value[:, keys], pick(queries), pick(keys))
        outs.append(part(chunk.first - chunk.oldest, *of_chunk))
    result: Array = jnp.concatenate(outs, axis=1)
    return result


def _plain(
    arithmetic: Arithmetic,
    scores: Scores,
    window: int,
    first: int,
    query: Array,
    key: Array,
    value: Array,
    of_queries: Array | None,
    of_keys: Array | None,
) -> Array:
    """Compute attention by plain products.

    The first query is at the position of the key number `first`. The last two are the numbers of documents.
    """
    rows, length, heads, width = query.shape
    shared = heads // key.shape[2]
    grouped = query.reshape(rows, length, key.shape[2], shared, width)
    products = jnp.einsum(
        "bqkgd,bskd->bkgqs", grouped, key, precision=arithmetic.precision, preferred_element_type=jnp.float32
    )
    distance = np.arange(first, first + length)[:, None] - np.arange(key.shape[1])
    seen: Any = (distance >= 0) & (distance < window)
    if of_queries is not None and of_keys is not None:
        seen = seen & (of_queries[:, None, None, :, None] == of_keys[:, None, None, None, :])
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
    mask: AttentionMask = _CAUSAL,
    scale: float | None = None,
) -> Array:
    """Compute attention with JAX's own function, on cuDNN (CUDA) or as plain XLA anywhere.

    Shapes are as in `attend`. Without `scale`, scores are divided by the root of head_dim (jax 0.10.2,
    jax.nn.dot_product_attention).
    """
    near = (mask.window - 1, 0) if 0 < mask.window < query.shape[1] else None
    numbers = mask.documents
    same = None if numbers is None else numbers[:, None, :, None] == numbers[:, None, None, :]
    result: Array = jax.nn.dot_product_attention(
        query,
        key,
        value,
        mask=same,
        is_causal=True,
        scale=scale,
        local_window_size=near,
        implementation=implementation,
    )
    return result


def splash_attention(
    query: Array,
    key: Array,
    value: Array,
    mask: AttentionMask = _CAUSAL,
    scores: Scores | None = None,
    *,
    interpret: bool = False,
) -> Array:
    """Compute attention with the TPU's splash kernel; shapes are as in `attend`.

    Args:
        query: Scaled here.
        key: Keys.
        value: Values.
        mask: Which of the earlier keys a query attends to.
        scores: Their factor and bound; None for the usual factor.
        interpret: Run the kernel's program step by step on any device, slowly.
    """
    from jax.experimental.pallas.ops.tpu import splash_attention as kernels

    _, length, heads, width = query.shape
    scores = scores or Scores(scale=width**-0.5)
    block = next(size for size in (_BLOCK, 256, _LANES) if length % size == 0)
    shape = (length, length)
    near = (mask.window - 1, 0)
    one = kernels.LocalMask(shape, near, 0) if 0 < mask.window < length else kernels.CausalMask(shape)
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
        kernels.MultiHeadMask([one for _ in range(heads)]),
        block_sizes=sizes,
        head_shards=1,
        q_seq_shards=1,
        attn_logits_soft_cap=scores.softcap or None,
        interpret=interpret,
        residual_checkpoint_name=ATTENTION_RESULT,
    )
    scaled = (query.astype(jnp.float32) * scores.scale).astype(query.dtype)
    numbers = mask.documents
    segments = None if numbers is None else kernels.SegmentIds(q=numbers, kv=numbers)
    mixed: Array = jax.vmap(kernel)(*(jnp.swapaxes(t, 1, 2) for t in (scaled, key, value)), segments)
    result: Array = jnp.swapaxes(mixed, 1, 2)
    return result
