"""Which keys each query attends to where a causal mask alone does not say it: windows, and documents packed into rows.

A mask is made once for a micro-batch, and all blocks read it. SDPA takes it as numbers that are added to the scores,
(length x length). On CUDA compiled blocks use flex_attention instead, with a list of the tiles that are not empty: it
neither keeps such numbers nor computes the scores of other tiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer.engine import DOCUMENT_START
from trainer.torch_engine.context import ContextShare
from trainer.torch_engine.ring_attention import RingMask

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

TILE = 128
"""Queries, and keys, of a tile of flex_attention."""
LEAST_HEAD_DIM = 16
"""Narrowest head that flex_attention's kernels take (torch 2.13, torch/_inductor/kernel/flex)."""


@dataclass(frozen=True, kw_only=True)
class AttentionMask:
    """What attention reads beside queries, keys and values; all but one are None.

    Attributes:
        added: To the scores: 0 or -inf in the type of the products;
            shape (length, length), or (rows, 1, length, length).
        tiles: For flex_attention.
        ring: On a context axis.
    """

    added: Tensor | None = None
    tiles: BlockMask | None = None
    ring: RingMask | None = None


def split_documents(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows without the starts of documents, and the number of each input's document within its row.

    Args:
        rows: Shape (rows, seq_len + 1), with starts of documents (trainer/data/tokens/document_starts.py).

    Returns:
        The rows, and int32 of shape (rows, seq_len).
    """
    starts = ((rows & DOCUMENT_START) != 0) != (rows < 0)
    return torch.where(starts, rows ^ DOCUMENT_START, rows), starts[:, :-1].cumsum(dim=1, dtype=torch.int32)


def make_attention_mask(
    like: Tensor,
    window: int,
    documents: Tensor | None,
    *,
    dtype: torch.dtype,
    tiled: bool,
    context: ContextShare | None = None,
) -> AttentionMask | None:
    """Make the mask of all blocks with this window; None where a causal mask is enough.

    Args:
        like: The tokens, shape (rows, length).
        window: Newest keys that a query attends to; 0 for all.
        documents: From `split_documents`; None where rows are not divided.
        dtype: Of the products.
        tiled: Whether flex_attention computes it.
        context: This process among those that divide the tokens of a row, whose documents are those of whole rows.
    """
    if context is not None:
        return AttentionMask(ring=RingMask(share=context, window=window, documents=documents))
    length = like.shape[1]
    near = window if 0 < window < length else 0
    if documents is None and not near:
        return None
    if tiled:
        return AttentionMask(tiles=_list_tiles(like, near, documents))
    position = torch.arange(length, device=like.device)
    attended = position[:, None] >= position  # no distances, which need eight times as much memory
    if near:
        attended &= position[:, None] < position + near
    if documents is not None:
        attended = attended & (documents[:, None, :, None] == documents[:, None, None, :])
    added = torch.zeros(attended.shape, dtype=dtype, device=like.device).masked_fill_(~attended, -torch.inf)
    return AttentionMask(added=added)


def attend_by_tiles(query: Tensor, key: Tensor, value: Tensor, tiles: BlockMask, scale: float) -> Tensor:
    """Compute attention by flex_attention; shapes are (rows, heads, length, head_dim), key heads may be fewer."""
    from torch.nn.attention.flex_attention import flex_attention

    unchecked: Any = flex_attention  # its results depend on its arguments
    grouped = key.shape[1] != query.shape[1]
    result: Tensor = unchecked(query, key, value, block_mask=tiles, scale=scale, enable_gqa=grouped)
    return result


def _list_tiles(like: Tensor, window: int, documents: Tensor | None) -> BlockMask:
    """List the tiles that are not empty, from the first and last document of each tile, whose numbers rise in a row."""
    from torch.nn.attention.flex_attention import BlockMask

    length, device = like.shape[1], like.device
    numbers = torch.zeros((1, length), dtype=torch.int32, device=device) if documents is None else documents
    tile = torch.arange(-(-length // TILE), device=device)
    first, last = numbers[:, tile * TILE], numbers[:, (tile * TILE + TILE - 1).clamp(max=length - 1)]
    apart = (tile[:, None] - tile) * TILE  # between the first query and the first key
    used = (apart >= 0) & (first[:, :, None] <= last[:, None, :])
    full = (apart > 0) & (last[:, :, None] == first[:, None, :])
    if window:
        used = used & (apart - TILE + 1 < window)
        full = full & (apart + TILE - 1 < window)

    def attends(row: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        found = query >= key
        if window:
            found = found & (query - key < window)
        return found if documents is None else found & (documents[row, query] == documents[row, key])

    return BlockMask.from_kv_blocks(
        *_order(used & ~full), *_order(full), BLOCK_SIZE=TILE, mask_mod=attends, seq_lengths=(length, length)
    )


def _order(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Return the number of chosen tiles of each row of tiles, and the tiles' indices, the chosen ones first."""
    chosen = chosen[:, None].to(torch.int32)
    return chosen.sum(dim=-1, dtype=torch.int32), chosen.argsort(dim=-1, descending=True, stable=True).to(torch.int32)
