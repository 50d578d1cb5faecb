"""The names that Hugging Face has for the parameters: a tensor of theirs is one of ours, or one expert's part of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from trainer.checkpoint.families import find_family
from trainer.config import ModelConfig
from trainer.engine import FloatArray
from trainer.shape.architecture import Parameter, list_parameters

_BLOCK: Mapping[str, str] = MappingProxyType(
    {
        "attention_norm.weight": "input_layernorm.weight",
        "attention.query.weight": "self_attn.q_proj.weight",
        "attention.key.weight": "self_attn.k_proj.weight",
        "attention.value.weight": "self_attn.v_proj.weight",
        "attention.out.weight": "self_attn.o_proj.weight",
        "attention.query_bias.weight": "self_attn.q_proj.bias",
        "attention.key_bias.weight": "self_attn.k_proj.bias",
        "attention.value_bias.weight": "self_attn.v_proj.bias",
        "attention.query_norm.weight": "self_attn.q_norm.weight",
        "attention.key_norm.weight": "self_attn.k_norm.weight",
        "ffn_norm.weight": "post_attention_layernorm.weight",
        "ffn.gate.weight": "mlp.gate_proj.weight",
        "ffn.up.weight": "mlp.up_proj.weight",
        "ffn.down.weight": "mlp.down_proj.weight",
    }
)
_POST_NORMS: Mapping[str, str] = MappingProxyType(
    {
        "attention_post_norm.weight": "post_attention_layernorm.weight",
        "ffn_norm.weight": "pre_feedforward_layernorm.weight",
        "ffn_post_norm.weight": "post_feedforward_layernorm.weight",
    }
)
"""Names in blocks with norms of results, where they differ."""
_REST: Mapping[str, str] = MappingProxyType(
    {
        "embedding.weight": "model.embed_tokens.weight",
        "norm.weight": "model.norm.weight",
        "head.weight": "lm_head.weight",
    }
)
_EXPERTS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "mixtral": MappingProxyType(
            {
                "router.weight": "block_sparse_moe.gate.weight",
                "experts.gate": "block_sparse_moe.experts.{}.w1.weight",
                "experts.up": "block_sparse_moe.experts.{}.w3.weight",
                "experts.down": "block_sparse_moe.experts.{}.w2.weight",
            }
        ),
        "qwen3_moe": MappingProxyType(
            {
                "router.weight": "mlp.gate.weight",
                "experts.gate": "mlp.experts.{}.gate_proj.weight",
                "experts.up": "mlp.experts.{}.up_proj.weight",
                "experts.down": "mlp.experts.{}.down_proj.weight",
            }
        ),
    }
)
"""Names below a block, by family and our name below `ffn`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTensor:
    """A tensor of a folder of Hugging Face.

    Attributes:
        parameter: Ours.
        expert: Whose part of the parameter it is; None for all of it.
    """

    parameter: Parameter
    expert: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.parameter.shape if self.expert is None else self.parameter.shape[1:]

    @property
    def size(self) -> int:
        return self.parameter.size if self.expert is None else self.parameter.size // self.parameter.shape[0]

    def select_values(self, values: FloatArray) -> FloatArray:
        """Return a view of the part in the values of the parameter."""
        return values if self.expert is None else values[self.expert]


def map_parameter_names(model: ModelConfig) -> Mapping[str, FileTensor]:
    """Return the tensors by the names that Hugging Face has for them; all parts of a parameter are neighbours.

    Raises:
        ConfigError: The model has experts, and no family computes it.
    """
    return dict(_walk(model))


def _walk(model: ModelConfig) -> Iterator[tuple[str, FileTensor]]:
    names: Mapping[str, str] = _EXPERTS[find_family(model).name] if model.experts else {}
    for parameter in list_parameters(model):
        block, _, ours = parameter.name.partition(".ffn.")
        if ours not in names:
            yield name_weight(parameter.name, post_norm=model.post_norm), FileTensor(parameter=parameter)
            continue
        theirs = f"model.layers.{block.split('.')[1]}.{names[ours]}"
        for expert in range(model.experts) if parameter.is_expert else (None,):
            yield theirs.format(expert), FileTensor(parameter=parameter, expert=expert)


def name_weight(ours: str, *, post_norm: bool = False) -> str:
    """Return the name that Hugging Face has for a parameter that is not of experts.

    The names of norms depend on `post_norm`.
    """
    if ours in _REST:
        return _REST[ours]
    _, layer, rest = ours.split(".", 2)
    block = {**_BLOCK, **_POST_NORMS} if post_norm else _BLOCK
    return f"model.layers.{layer}.{block[rest]}"
