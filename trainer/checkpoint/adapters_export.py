"""LoRA adapters for Hugging Face: merged into the weights, or as a folder of peft.

Names, files and settings are those of peft 0.21.2 (November 2026): tuners/lora/config.py, and utils/save_and_load.py,
which removes the adapter's name from the names of its tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from trainer.checkpoint.family_names import name_weight
from trainer.checkpoint.regions import Contents
from trainer.config import LoraConfig, ModelConfig
from trainer.engine import FloatArray
from trainer.shape.architecture import Parameter
from trainer.shape.lora import map_adapters

WEIGHTS_FILE = "adapter_model.safetensors"
SETTINGS_FILE = "adapter_config.json"


def read_merged_tensor(
    contents: Contents, kind: str, parameter: Parameter, model: ModelConfig, lora: LoraConfig
) -> FloatArray:
    """Return the values of a weight with its adapter added; `kind` is "model" or "average"."""
    values = read_tensor(contents, kind, parameter)
    pair = map_adapters(model, lora).get(parameter.name)
    if pair is None:
        return values
    a, b = (read_tensor(contents, kind, one) for one in pair)
    return (values + lora.scale * (b @ a)).astype(np.float32)


def read_tensor(contents: Contents, kind: str, parameter: Parameter) -> FloatArray:
    """Return the values of a parameter; the averages of a frozen one are its values."""
    name = f"{kind}/{parameter.name}"
    return contents.read_tensor(name if name in contents.tensors else f"model/{parameter.name}")


def map_adapter_names(model: ModelConfig, lora: LoraConfig) -> Mapping[str, Parameter]:
    """Return the adapters' parameters by the names that peft has for them."""
    return dict(_walk(model, lora))


def make_adapter_config(model: ModelConfig, lora: LoraConfig) -> dict[str, Any]:
    """Return adapter_config.json."""
    layers = {name_weight(weight).split(".")[-2] for weight in map_adapters(model, lora)}
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "",
        "r": lora.rank,
        "lora_alpha": round(lora.scale * lora.rank),
        "target_modules": sorted(layers),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "use_rslora": False,
        "use_dora": False,
        "inference_mode": True,
    }


def _walk(model: ModelConfig, lora: LoraConfig) -> Iterator[tuple[str, Parameter]]:
    for weight, (a, b) in map_adapters(model, lora).items():
        layer = name_weight(weight).removesuffix(".weight")
        yield f"base_model.model.{layer}.lora_A.weight", a
        yield f"base_model.model.{layer}.lora_B.weight", b
