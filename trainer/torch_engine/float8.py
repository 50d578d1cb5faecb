"""Products of blocks in float8, by torchao."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trainer.config import Float8Name
from trainer.errors import DeviceError

if TYPE_CHECKING:
    from trainer.accelerators.base import NativeAccelerator
    from trainer.torch_engine.model import Transformer

_ADA = (8, 9)
"""Compute capability of the first GPUs that multiply in float8 (NVIDIA, "CUDA GPU Compute Capability", 2026)."""


def convert_blocks(model: Transformer, recipe: Float8Name, accelerator: NativeAccelerator) -> None:
    """Replace the linear layers of all blocks by torchao's, whose weights are the same parameters.

    On a processor the operands are rounded to float8 and multiplied in their own type.

    Args:
        model: May be on the meta device.
        recipe: How operands are scaled; "none" changes nothing.
        accelerator: The device.

    Raises:
        DeviceError: The GPU does not multiply in float8, or torchao is not installed.
    """
    if recipe == "none":
        return
    import torch

    if accelerator.name == "cuda" and torch.cuda.get_device_capability(accelerator.device) < _ADA:
        raise DeviceError(f"float8={recipe}: this GPU has no products in float8 (Ada or newer has): use float8=none")
    library = _import_library()
    # Padded, because the gradient of a weight sums over the tokens of a micro-batch, which 16 need not divide.
    config = replace(
        library.Float8LinearConfig.from_recipe_name(recipe), emulate=accelerator.name == "cpu", pad_inner_dim=True
    )
    library.convert_to_float8_training(model.blocks, config=config)


def list_compiler_options(recipe: Float8Name) -> dict[str, bool]:
    """Return the options of inductor with which blocks are compiled."""
    # Without it inductor rounds scales twice (pytorch issue 150859, as torchtitan does).
    return {"emulate_precision_casts": True} if recipe == "rowwise" else {}


def _import_library() -> Any:
    """Import torchao's float8, which has no types."""
    try:
        return import_module("torchao.float8")
    except ImportError:
        raise DeviceError("float8 needs torchao, which is not installed: pip install 'torchao>=0.18'") from None
