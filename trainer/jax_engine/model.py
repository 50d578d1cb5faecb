"""The decoder-only transformer as pure functions of its weights; shape/architecture.py lists the parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from jax import Array

from trainer.config import DTypeName, ModelConfig, RematLevel
from trainer.jax_engine.arithmetic import (
    SCATTERED,
    TENSOR,
    Arithmetic,
    gather_tokens,
    gather_vector,
    matmul,
    scatter_sum,
)
from trainer.jax_engine.attention import ATTENTION_RESULT, AttentionMask, Kernel, Scores, attend, split_documents
from trainer.jax_engine.context import take_own_tokens
from trainer.jax_engine.experts import EXPERT_RESULT, ExpertWeights, compute_experts
from trainer.jax_engine.library import jax, jnp, lax
from trainer.jax_engine.vocabulary import compute_loss_sum, look_up_tokens

_BlockResult: TypeAlias = tuple[Array, Array | None]
"""The residual stream, and the balance of the block's router; None without experts."""
_BLOCKS = "blocks."
EVERY_BLOCK = "blocks.*."
"""Prefix of the names of stacked weights, which have a leading dimension for the layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What is fixed about the model when it is compiled.

    Attributes:
        model: Its sizes.
        arithmetic: Type of the products, and the mesh.
        kernel: Of attention.
        scanned: Whether the blocks are scanned.
        remat: What of a block is computed again in the backward pass.
        scale: Of each token in the loss.
        marked: Whether rows may have negative tokens, which are not trained on (trainer/data/tokens/marks.py).
        documents: Whether tokens attend only within their document (trainer/data/tokens/document_starts.py).
        adapted: Factor of the results of LoRA adapters, where weights have some.
        residual: Type of the values between blocks.
    """

    model: ModelConfig
    arithmetic: Arithmetic
    kernel: Kernel
    scanned: bool
    remat: RematLevel
    scale: float
    marked: bool = False
    documents: bool = False
    adapted: float = 0.0
    residual: DTypeName = "fp32"


def compute_loss(recipe: Recipe, weights: Mapping[str, Array], rows: Array, angles: Array) -> Array:
    """Return `recipe.scale` times the summed loss, in nats, of all tokens of this device's rows.

    It is that of all devices of the tensor axis, which divide the tokens between products.

    The arguments are those of `compute_loss_and_balance`.
    """
    return compute_loss_and_balance(recipe, weights, rows, angles)[0]


def compute_loss_and_balance(
    recipe: Recipe, weights: Mapping[str, Array], rows: Array, angles: Array
) -> tuple[Array, Array | None]:
    """Return the loss, and the balance of the routers, shape (layers, 2, experts); None without experts.

    Args:
        recipe: The model.
        weights: This device's shards by name.
        rows: Shape (rows, seq_len + 1), of which devices of a context axis take their tokens.
        angles: Cosine and sine from trainer/shape/rotary.py; then those of blocks with a window, if these have others.
    """
    arithmetic = recipe.arithmetic
    rows, documents = split_documents(rows) if recipe.documents else (rows, None)
    tokens = jnp.where(rows < 0, ~rows, rows) if recipe.marked else rows
    rows, inputs, targets, angles = (
        take_own_tokens(arithmetic.mesh, values) for values in (rows[:, 1:], tokens[:, :-1], tokens[:, 1:], angles)
    )
    x = look_up_tokens(arithmetic, weights["embedding.weight"], inputs)
    if recipe.model.embed_scale:
        x = x * recipe.model.dim**0.5
    if recipe.residual == "bf16":
        x = x.astype(jnp.bfloat16)
    x, balance = _blocks(recipe, weights, x, angles, documents)
    x = norm(recipe, weights["norm.weight"], x)
    head = weights["embedding.weight" if recipe.model.tied else "head.weight"]
    counted = rows >= 0 if recipe.marked else None
    softcap = recipe.model.softcap
    return compute_loss_sum(arithmetic, recipe.scale, x, head, targets, counted, softcap=softcap), balance


def _blocks(
    recipe: Recipe, weights: Mapping[str, Array], x: Array, angles: Array, documents: Array | None
) -> tuple[Array, Array | None]:
    """Return the residual stream, and the balances of the routers; None without experts."""
    model = recipe.model
    local = [model.get_window(layer) > 0 for layer in range(model.layers)]

    def block(is_local: Array | bool, x: Array, own: Mapping[str, Array]) -> tuple[Array, Array | None]:
        mixed = _attention(recipe, own, norm(recipe, own["attention_norm.weight"], x), angles, documents, is_local)
        x = x + _post_norm(recipe, own, "attention", mixed)
        fed, balance = _feed_forward(recipe, own, norm(recipe, own["ffn_norm.weight"], x))
        return x + _post_norm(recipe, own, "ffn", fed), balance

    if not recipe.scanned:
        balances: list[Array] = []
        for layer, is_local in enumerate(local):
            prefix = f"{_BLOCKS}{layer}."
            own = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
            x, balance = _recompute_block(recipe, partial(block, is_local))(x, own)
            balances += [] if balance is None else [balance]
        return x, jnp.stack(balances) if balances else None
    stacked = {name.removeprefix(EVERY_BLOCK): value for name, value in weights.items() if name.startswith(EVERY_BLOCK)}
    if len(set(local)) == 1:
        once = _recompute_block(recipe, partial(block, local[0]))

        result: tuple[Array, Array | None] = lax.scan(once, x, stacked)
        return result
    either = _recompute_block(recipe, block)

    def scan_either(x: Array, layer: tuple[Array, Mapping[str, Array]]) -> tuple[Array, Array | None]:
        return either(layer[0], x, layer[1])

    alternated: tuple[Array, Array | None] = lax.scan(scan_either, x, (jnp.array(local), stacked))
    return alternated


def _recompute_block(recipe: Recipe, block: Callable[..., _BlockResult]) -> Callable[..., _BlockResult]:
    if recipe.remat == "none":
        return block
    policies = jax.checkpoint_policies
    # Products with weights have no batch dimensions; attention's have, and only its result is kept.
    named = policies.save_only_these_names(ATTENTION_RESULT, EXPERT_RESULT, SCATTERED)
    kept = policies.save_from_both_policies(policies.dots_with_no_batch_dims_saveable, named)
    # Inside a scan nothing can be merged with the forward pass, so no barrier against it is needed.
    result: Callable[..., _BlockResult] = jax.checkpoint(
        block, prevent_cse=not recipe.scanned, policy=kept if recipe.remat == "selective" else None
    )
    return result


def _attention(
    recipe: Recipe,
    own: Mapping[str, Array],
    x: Array,
    angles: Array,
    documents: Array | None,
    is_local: Array | bool,
) -> Array:
    """Compute attention of one block.

    Args:
        recipe: The model.
        own: Weights of the block.
        x: Shape (rows, length, dim), of this device's tokens.
        angles: As in `compute_loss`.
        documents: Number of each token's document; None for one document a row.
        is_local: Whether the block has the window; an array where a scan has blocks of both kinds.
    """
    arithmetic, model = recipe.arithmetic, recipe.model
    own_angles = (
        (angles[-2:] if is_local else angles[:2])
        if isinstance(is_local, bool)
        else jnp.where(is_local, angles[-2:], angles[:2])
    )
    x = gather_tokens(arithmetic, x)

    def project(part: str) -> Array:
        found = _apply_column(recipe, own, f"attention.{part}", x)
        if model.qkv_bias:
            found += _bias(arithmetic, own[f"attention.{part}_bias.weight"], found)
        heads: Array = found.reshape(*x.shape[:2], -1, model.head_dim)
        return heads

    def rotate(part: str) -> Array:
        heads = project(part)
        if model.qk_norm:
            heads = norm(recipe, own[f"attention.{part}_norm.weight"], heads)
        return apply_rotary(heads, own_angles)

    scores = Scores(scale=model.score_scale, softcap=model.attention_softcap)
    near, far = (
        partial(
            attend,
            arithmetic,
            recipe.kernel,
            mask=AttentionMask(window=window, documents=documents),
            scores=scores,
        )
        for window in (model.window, 0)
    )
    heads = rotate("query"), rotate("key"), project("value")
    mixed: Array
    if isinstance(is_local, bool):
        mixed = near(*heads) if is_local else far(*heads)
    else:  # both are compiled, and one of them runs
        mixed = lax.cond(is_local, near, far, *heads)
    return _apply_row(recipe, own, "attention.out", mixed.reshape(*x.shape[:2], -1))


def _apply_column(recipe: Recipe, own: Mapping[str, Array], layer: str, x: Array) -> Array:
    """Apply a layer, with its adapter, whose outputs the tensor axis may shard."""
    arithmetic, (a, b) = recipe.arithmetic, _name_adapter(layer)
    found = matmul(arithmetic, 1, x, own[f"{layer}.weight"])
    if a in own:
        found += recipe.adapted * matmul(arithmetic, None, matmul(arithmetic, None, x, own[a]), own[b])
    return found


def _apply_row(recipe: Recipe, own: Mapping[str, Array], layer: str, x: Array) -> Array:
    """Apply a layer, with its adapter, whose inputs the tensor axis may shard."""
    arithmetic, (a, b) = recipe.arithmetic, _name_adapter(layer)
    found = scatter_sum(arithmetic, matmul(arithmetic, 0, x, own[f"{layer}.weight"]))
    if a in own:
        narrow = scatter_sum(arithmetic, matmul(arithmetic, None, x, own[a]))
        found += recipe.adapted * matmul(arithmetic, None, narrow, own[b])
    return found


def _name_adapter(layer: str) -> tuple[str, str]:
    part, _, target = layer.partition(".")
    return f"{part}.lora.{target}.a", f"{part}.lora.{target}.b"


def _bias(arithmetic: Arithmetic, part: Array, x: Array) -> Array:
    """Return the values of a bias for this device's columns of x, in the type of x."""
    whole = gather_vector(arithmetic, part)
    if arithmetic.mesh.tensor > 1:
        whole = lax.dynamic_slice_in_dim(whole, lax.axis_index(TENSOR) * x.shape[-1], x.shape[-1])
    return whole.astype(x.dtype)


def _feed_forward(recipe: Recipe, own: Mapping[str, Array], x: Array) -> tuple[Array, Array | None]:
    """Return the result, and the balance of the router; None without experts."""
    arithmetic = recipe.arithmetic
    activate = partial(jax.nn.gelu, approximate=True) if recipe.model.activation == "gelu_tanh" else jax.nn.silu
    combine = _rematerialize(recipe, lambda gate, up: activate(gate) * up)
    if recipe.model.experts:
        held = ExpertWeights(
            own["ffn.router.weight"], own["ffn.experts.gate"], own["ffn.experts.up"], own["ffn.experts.down"]
        )
        return compute_experts(arithmetic, recipe.model, held, x, combine)
    x = gather_tokens(arithmetic, x)
    gate, up = (_apply_column(recipe, own, layer, x) for layer in ("ffn.gate", "ffn.up"))
    return _apply_row(recipe, own, "ffn.down", combine(gate, up)), None


def _post_norm(recipe: Recipe, own: Mapping[str, Array], part: str, x: Array) -> Array:
    return norm(recipe, own[f"{part}_post_norm.weight"], x) if recipe.model.post_norm else x


def norm(recipe: Recipe, weight: Array, x: Array) -> Array:
    """Apply RMS norm in fp32; the result has the products' type."""

    def scaled(x: Array, weight: Array) -> Array:
        x = x.astype(jnp.float32)
        size = lax.rsqrt(jnp.square(x).mean(axis=-1, keepdims=True) + recipe.model.norm_eps)
        result: Array = x * size * (1.0 + weight if recipe.model.norm_offset else weight)
        return result.astype(recipe.arithmetic.type)

    return _rematerialize(recipe, scaled)(x, gather_vector(recipe.arithmetic, weight))


def _rematerialize(recipe: Recipe, function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """Recompute elementwise work in a scan, which would keep its results for every layer; it is cheap.

    300m without remat on v5e 2x4: 7.7 GiB within a step instead of 13.9.
    """
    return jax.checkpoint(function, prevent_cse=False) if recipe.scanned else function


def apply_rotary(x: Array, angles: Array) -> Array:
    """Rotate each pair (x_i, x_{i + half}) in fp32; x has shape (rows, length, heads, head_dim)."""
    cosine, sine = angles[:, :, None, :]
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate((first * cosine - second * sine, second * cosine + first * sine), axis=-1)
    result: Array = turned.astype(x.dtype)
    return result
