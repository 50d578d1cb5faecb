"""The loss of a model with its first weights, without any framework: every engine must compute the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from trainer.config import ModelConfig
from trainer.engine import FloatArray, TokenArray
from trainer.shape.architecture import list_parameters
from trainer.shape.box import Box
from trainer.shape.initial_values import make_initial_values
from trainer.shape.rotary import make_local_rotary_table, make_rotary_table

_Array: TypeAlias = npt.NDArray[Any]  # float32; numpy's own annotations widen it, or lose it, on the way


def make_first_weights(model: ModelConfig, seed: int) -> Mapping[str, FloatArray]:
    """Return every weight of a model at its first value."""
    return {p.name: make_initial_values(p, Box.whole(p.shape), seed) for p in list_parameters(model)}


def compute_reference_loss(model: ModelConfig, weights: Mapping[str, _Array], rows: TokenArray) -> float:
    """Return the mean nats a token."""
    return float(np.mean(compute_reference_losses(model, weights, rows), dtype=np.float64))


def compute_reference_losses(model: ModelConfig, weights: Mapping[str, _Array], rows: TokenArray) -> FloatArray:
    """Return the nats of each token, shape (rows, length).

    Only for small models: all logits are in memory together.

    Args:
        model: The model.
        weights: By parameter name.
        rows: Tokens, shape (rows, length + 1).
    """
    tokens, answers = rows[:, :-1].astype(np.int64), rows[:, 1:].astype(np.int64)
    x = weights["embedding.weight"][tokens] * np.float32(model.dim**0.5 if model.embed_scale else 1.0)
    for layer in range(model.layers):
        part = {name.removeprefix(f"blocks.{layer}."): w for name, w in weights.items() if name.startswith("blocks.")}
        mixed = _attention(model, layer, part, _norm(model, x, part["attention_norm.weight"]))
        x = x + (_norm(model, mixed, part["attention_post_norm.weight"]) if model.post_norm else mixed)
        fed = _feed_forward(model, part, _norm(model, x, part["ffn_norm.weight"]))
        x = x + (_norm(model, fed, part["ffn_post_norm.weight"]) if model.post_norm else fed)
    head = weights["embedding.weight" if model.tied else "head.weight"]
    logits = _cap(_norm(model, x, weights["norm.weight"]) @ head.T, model.softcap)
    logits -= logits.max(axis=-1, keepdims=True)
    chosen = np.take_along_axis(logits, answers[..., None], axis=-1)[..., 0]
    losses: FloatArray = np.log(np.exp(logits).sum(axis=-1)) - chosen
    return losses


def _norm(model: ModelConfig, x: _Array, weight: _Array) -> _Array:
    factor = 1 + weight if model.norm_offset else weight
    result: _Array = x / np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + np.float32(model.norm_eps)) * factor
    return result


def _cap(x: _Array, bound: float) -> _Array:
    return np.tanh(x / np.float32(bound)) * np.float32(bound) if bound else x


def _attention(model: ModelConfig, layer: int, part: Mapping[str, _Array], x: _Array) -> _Array:
    batch, length, _ = x.shape

    def heads(name: str) -> _Array:
        found = x @ part[f"attention.{name}.weight"].T
        if model.qkv_bias:
            found = found + part[f"attention.{name}_bias.weight"]
        return found.reshape(batch, length, -1, model.head_dim)

    def rotated(name: str) -> _Array:
        found = heads(name)
        if model.qk_norm:
            found = _norm(model, found, part[f"attention.{name}_norm.weight"])
        return _rotated(model, window, found)

    window = model.get_window(layer)

    query, key = rotated("query"), rotated("key")
    shared = model.heads // model.kv_heads
    key, value = (np.repeat(part_, shared, axis=2) for part_ in (key, heads("value")))
    scores = _cap(np.einsum("bqhd,bkhd->bhqk", query, key) * np.float32(model.score_scale), model.attention_softcap)
    distance: _Array = np.array(range(length))[:, None] - np.array(range(length))
    scores[:, :, (distance < 0) | (distance >= (window or length))] = -np.inf
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    scores /= scores.sum(axis=-1, keepdims=True)
    mixed = np.einsum("bhqk,bkhd->bqhd", scores, value).reshape(batch, length, -1)
    result: _Array = mixed @ part["attention.out.weight"].T
    return result


def _rotated(model: ModelConfig, window: int, x: _Array) -> _Array:
    cosine, sine = (make_local_rotary_table if window else make_rotary_table)(model, x.shape[1])[:, :, None]
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate((first * cosine - second * sine, second * cosine + first * sine), axis=-1)


def _feed_forward(model: ModelConfig, part: Mapping[str, _Array], x: _Array) -> _Array:
    if not model.experts:
        return _gated(model, x, part["ffn.gate.weight"], part["ffn.up.weight"], part["ffn.down.weight"])
    shares = np.exp(x @ part["ffn.router.weight"].T)
    shares /= shares.sum(axis=-1, keepdims=True)
    chosen = np.argsort(-shares, axis=-1, kind="stable")[..., : model.experts_per_token]
    used = np.zeros_like(shares)
    np.put_along_axis(used, chosen, np.take_along_axis(shares, chosen, axis=-1), axis=-1)
    if model.normalize_experts:
        used /= used.sum(axis=-1, keepdims=True)
    weights = zip(*(part[f"ffn.experts.{name}"] for name in ("gate", "up", "down")), strict=True)
    result: _Array = sum(
        (used[..., expert, None] * _gated(model, x, *own) for expert, own in enumerate(weights)), np.zeros_like(x)
    )
    return result


def _gated(model: ModelConfig, x: _Array, gate_weight: _Array, up: _Array, down: _Array) -> _Array:
    gate = x @ gate_weight.T
    # Source of the other: torch.nn.functional.gelu, approximate="tanh".
    active = (
        gate / (1 + np.exp(-gate))
        if model.activation == "silu"
        else gate
        * np.float32(0.5)
        * (1 + np.tanh(np.float32(np.sqrt(2 / np.pi)) * (gate + np.float32(0.044715) * gate**3)))
    )
    result: _Array = (active * (x @ up.T)) @ down.T
    return result
