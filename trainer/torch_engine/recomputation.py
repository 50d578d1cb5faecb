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

from trainer.config import RematLevel
from trainer.torch_engine.model import BlockResult, Recompute

_PRODUCTS = ("mm", "addmm")
_ATTENTION = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_fused_attention_overrideable",  # of devices that plug-ins add
)
_PRODUCTS_OF_A_BLOCK = 7  # query, key, value, out; gate, up, down
_PRODUCTS_OF_EXPERTS = 8  # and the router's


def choose_rerun(level: RematLevel, adapters: int = 0, *, experts: bool = False) -> Recompute | None:
    """Return how a block with so many LoRA adapters, and with experts, is recomputed; None when it is not."""
    if level == "selective":
        products = _PRODUCTS_OF_EXPERTS if experts else _PRODUCTS_OF_A_BLOCK
        return partial(_recompute_cheap_operations, products + 2 * adapters)
    return {"none": None, "full": _recompute}[level]


def _recompute(function: Callable[..., BlockResult], *arguments: Any, **more: Any) -> BlockResult:
    """Call the function without keeping activations, and call it again in the backward pass.

    It must not draw random numbers: generator states are not kept.
    """
    unchecked: Any = torch.utils.checkpoint
    result: BlockResult = unchecked.checkpoint(
        function, *arguments, use_reentrant=False, preserve_rng_state=False, **more
    )
    return result


def _recompute_cheap_operations(products: int, function: Callable[..., BlockResult], *arguments: Any) -> BlockResult:
    """Call a block, keep its products and its attention, and compute the rest again in the backward pass."""
    return _recompute(function, *arguments, context_fn=partial(_make_contexts, products))


def _make_contexts(count: int) -> Any:
    """Return the contexts of both passes of one call of a block with so many products."""
    unchecked: Any = torch.utils.checkpoint
    aten: Any = torch.ops.aten
    products = {getattr(aten, name).default for name in _PRODUCTS}
    products.add(torch.ops.orch_trainer.multiply_groups.default)
    # Not repeated: a program that rounds otherwise may choose otherwise, and what is kept is in the first order.
    choices = {aten.topk.default, aten.sort.stable}
    higher: Any = torch.ops.higher_order
    ring = torch.ops.orch_trainer.attend_in_ring.default
    attention = {*(getattr(aten, name).default for name in _ATTENTION), higher.flex_attention, ring}
    policy: Any = unchecked.CheckpointPolicy
    counts = {False: 0, True: 0}

    def choose(context: Any, operation: Any, *_arguments: Any, **_named: Any) -> Any:
        if operation in products:
            counts[context.is_recompute] += 1
            # Nothing in the block reads the last product, so its result need not be kept. That of experts is repeated
            # all the same: torch saves the inputs of an operation of one's own behind it.
            kept = counts[context.is_recompute] < count
        else:
            kept = operation in attention or operation in choices
        return policy.MUST_SAVE if kept else policy.PREFER_RECOMPUTE

    return unchecked.create_selective_checkpoint_contexts(choose)
