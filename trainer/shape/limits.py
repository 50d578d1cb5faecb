"""Numbers that the engines go by and the advice must know: one value of each for all of them."""

from __future__ import annotations

from typing import Final

LOGITS_BYTES: Final = 256 << 20
"""Most bytes of fp32 logits that one device holds at once; a larger micro-batch takes the loss in chunks."""

SCAN_FROM: Final = 8
"""Layers from which JAX scans over stacked weights on an accelerator: one compiled block instead of many."""

SCAN_FROM_CPU: Final = 33
"""The same on a processor, where a scanned step is a third slower than an unrolled one."""

ATTENTION_CHUNK: Final = 512
"""Queries that attention without a fused kernel takes at once."""
