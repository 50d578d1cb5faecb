"""The model as plain torch modules; trainer/shape/architecture.py lists the parameters by the same names.

Shapes are static. Nothing here depends on other processes, or, except for attention in float32, on devices. With tensor
parallelism a process holds only some of the heads and hidden units, so sizes are taken from the layers' results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812  # the usual name
from torch import Tensor, nn

from trainer.config import DTypeName, LoraConfig, ModelConfig
from trainer.shape.lora import ATTENTION, FFN, list_targets
from trainer.shape.pipeline import Stage, make_stage
from trainer.shape.rotary import make_local_rotary_table, make_rotary_table
from trainer.torch_engine.attention_mask import AttentionMask, attend_by_tiles, make_attention_mask
from trainer.torch_engine.context import ContextShare, take_own_tokens
from trainer.torch_engine.experts import ExpertFeedForward
from trainer.torch_engine.ring_attention import attend_in_ring
from trainer.torch_engine.untyped import from_numpy

NO_LORA = LoraConfig()

BlockResult: TypeAlias = Tensor | tuple[Tensor, Tensor]
"""The residual stream; in a model with experts also the balance of the block's router (experts.py)."""
Recompute: TypeAlias = Callable[..., BlockResult]
"""`rerun(function, *arguments)` calls the function, keeps no activations, and calls it again in the backward pass."""


class Transformer(nn.Module):
    """A transformer whose result is the last hidden state after its norm; `head_weight()` turns it into logits.

    Attributes:
        balance: Of the routers in the newest forward pass, shape (layers, 2, experts); None without experts.
        stage: The part of the model that this one is.
    """

    def __init__(
        self,
        config: ModelConfig,
        seq_len: int,
        rerun: Recompute | None = None,
        lora: LoraConfig = NO_LORA,
        *,
        tiled: bool = False,
        residual: DTypeName = "fp32",
        context: ContextShare | None = None,
        stage: Stage | None = None,
    ) -> None:
        """Build the modules.

        Args:
            config: Sizes of the model.
            seq_len: Longest sequence; with `context` that of all.
            rerun: How a block is recomputed in the backward pass; None keeps its activations.
            tiled: Whether flex_attention computes attention with a mask; else SDPA does.
            lora: Adapters, with which all other weights are frozen.
            residual: Type of the values between blocks.
            context: This process among those that divide the tokens of a row; None where each has whole rows.
            stage: The part of the model that this one is; None for all of it. Modules of other stages do not exist.
        """
        super().__init__()
        self.stage = stage = stage or make_stage(config, 1, 0)
        self._context = context
        self._config, self._seq_len, self._tiled = config, seq_len, tiled
        self._residual = torch.bfloat16 if residual == "bf16" else torch.float32
        self.balance: Tensor | None = None
        if stage.has_embedding:
            self.embedding = Embedding(config.tokens, config.dim)
        self.blocks = nn.ModuleList()
        for layer in stage.layers:
            self.blocks.add_module(str(layer), Block(config, layer, rerun, lora))
        if stage.is_last:
            self.norm = Norm(config, config.dim)
        self.head = Linear(config.dim, config.tokens, bias=False) if stage.is_last and not config.tied else None
        self.cosine: Tensor
        self.sine: Tensor
        self.local_cosine: Tensor
        self.local_sine: Tensor
        for name in ("cosine", "sine", *(("local_cosine", "local_sine") if config.local_rope_theta else ())):
            own = seq_len // (1 if context is None else context.size)
            self.register_buffer(name, torch.empty(own, config.head_dim // 2), persistent=False)
        if not self.cosine.is_meta:
            self.fill_tables()
        if lora.rank:
            for module in self.modules():
                for weight in module.parameters(recurse=False):
                    weight.requires_grad_(isinstance(module, Adapter))

    def forward(self, tokens: Tensor, documents: Tensor | None = None) -> Tensor:
        """Return the hidden state; before the last stage the residual stream.

        Args:
            tokens: int64, shape (batch, length), length at most seq_len; with `context` those of this process. After
                the first stage what the one before has returned.
            documents: Number of each token's document, of whole rows; None where they attend across documents.

        Returns:
            Shape (batch, length, dim); a tensor axis divides the length.
        """
        if not self.stage.is_first:  # a tensor axis divides the tokens of what the stage before has returned
            length = len(self.cosine)
            like = tokens.new_empty(()).expand(len(tokens), length)
        else:
            length, like = tokens.shape[1], tokens
        # Positions are those in the row, also within a document: only their differences reach the scores.
        angles = self.cosine[:length], self.sine[:length]
        local = (self.local_cosine[:length], self.local_sine[:length]) if self._config.local_rope_theta else angles
        masks = self._make_masks(like, documents)
        x = self._embed(tokens) if self.stage.is_first else tokens
        balances: list[Tensor] = []
        for layer, block in zip(self.stage.layers, self.blocks, strict=True):
            window = self._config.get_window(layer)
            found: BlockResult = block(x, *(local if window else angles), masks[window])
            if isinstance(found, tuple):
                balances.append(found[1])
            x = found[0] if isinstance(found, tuple) else found
        self.balance = torch.stack(balances) if balances else None
        if not self.stage.is_last:
            return x
        result: Tensor = self.norm(x)
        return result

    def _embed(self, tokens: Tensor) -> Tensor:
        """Return the residual stream before the first block."""
        x: Tensor = self.embedding(tokens).float()
        if self._config.embed_scale:
            x = x * self._config.dim**0.5
        return x.to(self._residual)

    def _make_masks(self, tokens: Tensor, documents: Tensor | None) -> dict[int, AttentionMask | None]:
        """Return the mask of each window that blocks have; 0 for none."""
        kind, config = tokens.device.type, self._config
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else self.cosine.dtype
        tiled = self._tiled and not config.attention_softcap
        return {
            window: make_attention_mask(tokens, window, documents, dtype=dtype, tiled=tiled, context=self._context)
            for window in sorted({config.get_window(layer) for layer in self.stage.layers})
        }

    def head_weight(self) -> Tensor:
        """Return the head's weight, shape (vocab, dim), which the last stage has."""
        return self.embedding.weight if self.head is None else self.head.weight

    def fill_tables(self) -> None:
        """Write the position tables, for a model that was moved off the meta device."""
        pairs = [((self.cosine, self.sine), make_rotary_table(self._config, self._seq_len))]
        if self._config.local_rope_theta:
            local = make_local_rotary_table(self._config, self._seq_len)
            pairs.append(((self.local_cosine, self.local_sine), local))
        for buffers, tables in pairs:
            for buffer, table in zip(buffers, tables, strict=True):
                buffer.copy_(take_own_tokens(self._context, from_numpy(table)[None])[0])


class Block(nn.Module):
    """Attention and feed-forward, each after a norm, and with `post_norm` before one, added to the residual stream."""

    def __init__(self, config: ModelConfig, layer: int, rerun: Recompute | None, lora: LoraConfig) -> None:
        super().__init__()
        self._rerun = rerun
        self.attention_norm = Norm(config, config.dim)
        self.attention = Attention(config, lora)
        self.attention_post_norm = Norm(config, config.dim) if config.post_norm else nn.Identity()
        self.ffn_norm = Norm(config, config.dim)
        self.ffn = ExpertFeedForward(config) if config.experts else FeedForward(config, lora)
        self.ffn_post_norm = Norm(config, config.dim) if config.post_norm else nn.Identity()

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, mask: AttentionMask | None) -> BlockResult:
        if self._rerun is not None and self.training:
            return self._rerun(self.compute, x, cosine, sine, mask)
        return self.compute(x, cosine, sine, mask)

    def compute(self, x: Tensor, cosine: Tensor, sine: Tensor, mask: AttentionMask | None) -> BlockResult:
        x = x + self.attention_post_norm(self.attention(self.attention_norm(x), cosine, sine, mask))
        found: BlockResult = self.ffn(self.ffn_norm(x))
        if isinstance(found, tuple):
            return x + self.ffn_post_norm(found[0]), found[1]
        result: Tensor = x + self.ffn_post_norm(found)
        return result


class Linear(nn.Linear):
    """Linear layer without initial values, which trainer/shape/initial_values.py makes.

    torch's own initialization on the meta device would load its compiler.
    """

    def reset_parameters(self) -> None:
        pass


class Embedding(nn.Embedding):
    """Embedding without initial values; see Linear."""

    def reset_parameters(self) -> None:
        pass


class Norm(nn.RMSNorm):
    """RMS norm computed in float32, with its result in the type of the products that read it."""

    def __init__(self, config: ModelConfig, size: int) -> None:
        super().__init__(size, eps=config.norm_eps)  # pyright: ignore[reportUnknownMemberType]  # torch's is untyped
        self.offset = config.norm_offset

    def forward(self, x: Tensor) -> Tensor:
        weight: Tensor = self.weight.float()
        weight = weight + 1.0 if self.offset else weight
        result = F.rms_norm(x.float(), self.normalized_shape, weight, self.eps)
        # Once here, not in each product: each would keep a copy for its backward pass.
        kind = x.device.type
        return result.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else result


class Bias(nn.Module):
    """A bias of the results of a layer whose outputs a tensor axis may shard; it is whole on each device.

    Attributes:
        part: Index of this device's part.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.part = 0
        self.weight = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        first = self.part * x.shape[-1]
        return x + self.weight[first : first + x.shape[-1]].to(x.dtype)


class Adapter(nn.Module):
    """A LoRA adapter of a layer; trainer/shape/lora.py describes it.

    Attributes:
        enter: Applied to the inputs, where a tensor axis shards the layer's outputs.
        join: Sums the narrow values, where a tensor axis shards the layer's inputs.
    """

    def __init__(self, layer: nn.Linear, lora: LoraConfig) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.empty(lora.rank, layer.in_features))
        self.b = nn.Parameter(torch.empty(layer.out_features, lora.rank))
        self.scale = lora.scale
        self.enter: Callable[[Tensor], Tensor] | None = None
        self.join: Callable[[Tensor], Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        narrow = F.linear(x if self.enter is None else self.enter(x), self.a)
        return F.linear(narrow if self.join is None else self.join(narrow), self.b) * self.scale


class AdaptedLayers(nn.Module):
    """Linear layers, some of which have a LoRA adapter."""

    lora: nn.ModuleDict

    def add_adapters(self, names: Sequence[str], lora: LoraConfig) -> None:
        chosen = [name for name in names if name in list_targets(lora)]
        self.lora = nn.ModuleDict({name: Adapter(getattr(self, name), lora) for name in chosen})

    def apply_layer(self, name: str, x: Tensor) -> Tensor:
        """Return the result of a layer with that of its adapter, if it has one."""
        result: Tensor = getattr(self, name)(x)
        return result + self.lora[name](x) if name in self.lora else result


class Attention(AdaptedLayers):
    """Causal attention; each key and value head serves heads / kv_heads query heads."""

    def __init__(self, config: ModelConfig, lora: LoraConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.scale, self.softcap = config.score_scale, config.attention_softcap
        wide, narrow = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.grouped = config.kv_heads != config.heads
        self.query = Linear(config.dim, wide, bias=False)
        self.key = Linear(config.dim, narrow, bias=False)
        self.value = Linear(config.dim, narrow, bias=False)
        self.out = Linear(wide, config.dim, bias=False)
        self.add_adapters(ATTENTION, lora)
        biases = (Bias(size) if config.qkv_bias else nn.Identity() for size in (wide, narrow, narrow))
        self.query_bias, self.key_bias, self.value_bias = biases
        norms = (Norm(config, self.head_dim) if config.qk_norm else nn.Identity() for _ in range(2))
        self.query_norm, self.key_norm = norms

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, mask: AttentionMask | None = None) -> Tensor:
        batch, length, _ = x.shape
        query, key, value = (
            bias(self.apply_layer(name, x)).view(batch, length, -1, self.head_dim)
            for name, bias in (("query", self.query_bias), ("key", self.key_bias), ("value", self.value_bias))
        )
        query = apply_rotary(self.query_norm(query), cosine, sine)
        key = apply_rotary(self.key_norm(key), cosine, sine)
        mixed = self._attend(query, key, value, mask)
        return self.apply_layer("out", mixed.transpose(1, 2).reshape(batch, length, -1))

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask | None) -> Tensor:
        """Return shape (batch, heads, length, head_dim)."""
        if mask is not None and mask.ring is not None:
            heads = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
            return attend_in_ring(*heads, mask.ring, self.scale, self.softcap)
        if self.softcap:
            return attend_with_softcap(query, key, value, mask, self.scale, self.softcap).transpose(1, 2)
        if mask is not None and mask.tiles is not None:
            heads = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
            return attend_by_tiles(*heads, mask.tiles, self.scale)
        grouped = self.grouped
        if grouped and not supports_grouped_heads(query.device.type, query.dtype, masked=mask is not None):
            key, value = (repeat_heads(part, query.shape[2] // part.shape[2]) for part in (key, value))
            grouped = False
        return F.scaled_dot_product_attention(
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            attn_mask=None if mask is None else mask.added,
            is_causal=mask is None,
            scale=self.scale,
            enable_gqa=grouped,
        )


def attend_with_softcap(
    query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask | None, scale: float, softcap: float
) -> Tensor:
    """Compute causal attention with bounded scores, which SDPA does not have, by plain products.

    Args:
        query: Shape (batch, length, heads, head_dim).
        key: Shape (batch, length, kv_heads, head_dim).
        value: Shape (batch, length, kv_heads, head_dim).
        mask: With numbers to add; None for a causal mask.
        scale: Factor of the scores.
        softcap: Bound of the scores.

    Returns:
        The shape of `query`.
    """
    batch, length, heads, width = query.shape
    grouped = query.view(batch, length, key.shape[2], -1, width)
    scores = softcap * torch.tanh(torch.einsum("bqkgd,bskd->bkgqs", grouped, key).float() * (scale / softcap))
    if mask is None or mask.added is None:
        later = torch.ones((length, length), dtype=torch.bool, device=query.device).triu(diagonal=1)
        scores = scores.masked_fill(later, -torch.inf)
    else:  # of all rows, or of each: then there is one dimension for the groups of heads, and one for each group
        scores = scores + (mask.added if mask.added.ndim == 2 else mask.added[:, None])
    shares = scores.softmax(dim=-1).to(value.dtype)
    return torch.einsum("bkgqs,bskd->bqkgd", shares, value).reshape(batch, length, heads, width)


def apply_rotary(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate each pair (x_i, x_{i + half}) of a head in float32, and return x's type.

    Args:
        x: Shape (batch, length, heads, head_dim).
        cosine: Shape (length, head_dim / 2).
        sine: Shape (length, head_dim / 2).
    """
    cosine, sine = cosine[:, None], sine[:, None]
    first, second = x.float().chunk(2, dim=-1)
    turned = torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)
    return turned.to(x.dtype)


def supports_grouped_heads(device: str, dtype: torch.dtype, *, masked: bool = False) -> bool:
    """Return whether torch's fused attention accepts fewer key heads than query heads.

    In torch 2.13 all kernels do, except CUDA's only kernel for float32, which is also its only one for a mask.
    """
    return device != "cuda" or (dtype != torch.float32 and not masked)


def repeat_heads(heads: Tensor, times: int) -> Tensor:
    """Repeat each head `times` times in a row; `heads` has shape (batch, length, heads, head_dim)."""
    return heads[:, :, :, None].expand(-1, -1, -1, times, -1).flatten(2, 3)


class FeedForward(AdaptedLayers):
    """Gated feed-forward (SwiGLU, or GeGLU with `gelu_tanh`)."""

    def __init__(self, config: ModelConfig, lora: LoraConfig) -> None:
        super().__init__()
        self.gelu = config.activation == "gelu_tanh"
        self.gate = Linear(config.dim, config.hidden, bias=False)
        self.up = Linear(config.dim, config.hidden, bias=False)
        self.down = Linear(config.hidden, config.dim, bias=False)
        self.add_adapters(FFN, lora)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.apply_layer("gate", x)
        active = F.gelu(gate, approximate="tanh") if self.gelu else F.silu(gate)
        return self.apply_layer("down", active * self.apply_layer("up", x))
