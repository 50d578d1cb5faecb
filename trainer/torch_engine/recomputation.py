"""How a block is computed again in the backward pass (`remat`): none of it, all but what is expensive, or all of it.

Selective recomputation keeps the results of matrix products and of attention. What is left is elementwise work, so it
costs little time, and the numbers are those of the first pass to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor

from trainer.config import RematLevel
from trainer.torch_engine.model import Recompute

_PRODUCTS = ("mm", "addmm")
_ATTENTION = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_fused_attention_overrideable",  # of devices that plug-ins add
)
_PRODUCTS_OF_A_BLOCK = 7  # query, key, value, out; gate, up, down


def choose_rerun(level: RematLevel, adapters: int = 0) -> Recompute | None:
    """Return how a block with so many LoRA adapters is recomputed; None when it is not."""
    if level == "selective":
        return partial(_recompute_cheap_operations, _PRODUCTS_OF_A_BLOCK + 2 * adapters)
    return {"none": None, "full": _recompute}[level]


def _recompute(function: Callable[..., Tensor], *arguments: Any, **more: Any) -> Tensor:
    """Call the function without keeping activations, and call it again in the backward pass.

    It must not draw random numbers: generator states are not kept.
    """
    unchecked: Any = torch.utils.checkpoint
    result: Tensor = unchecked.checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False, **more)
    return result


def _recompute_cheap_operations(products: int, function: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """Call a block, keep its products and its attention, and compute the rest again in the backward pass."""
    return _recompute(function, *arguments, context_fn=partial(_make_contexts, products))


def _make_contexts(count: int) -> Any:
    """Return the contexts of both passes of one call of a block with so many products."""
    unchecked: Any = torch.utils.checkpoint
    aten: Any = torch.ops.aten
    products = {getattr(aten, name).default for name in _PRODUCTS}
    higher: Any = torch.ops.higher_order
    ring = torch.ops.orch_trainer.attend_in_ring.default
    attention = {*(getattr(aten, name).default for name in _ATTENTION), higher.flex_attention, ring}
    policy: Any = unchecked.CheckpointPolicy
    counts = {False: 0, True: 0}

    def choose(context: Any, operation: Any, *_arguments: Any, **_named: Any) -> Any:
        if operation in products:
            counts[context.is_recompute] += 1
            # Nothing in the block reads the last product, so its result need not be kept.
            kept = counts[context.is_recompute] < count
        else:
            kept = operation in attention
        return policy.MUST_SAVE if kept else policy.PREFER_RECOMPUTE

    return unchecked.create_selective_checkpoint_contexts(choose)
