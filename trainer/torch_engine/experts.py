"""A feed-forward part of several experts, of which a router chooses some for each token (mixture of experts).

No token is dropped. Each choice of an expert by a token is a row. Rows are sorted by expert, and each expert computes
its own in one grouped product, so shapes are static and the CPU does not wait for the router. Over a tensor axis each
device has some of the tokens and whole experts. It routes its tokens; then tokens and choices are gathered. It sorts
the rows of its experts to the front and computes these, and sums of the results are scattered over the tokens.

The shares of the chosen experts are multiplied before the last product, not after it: the sum is the same, and the
results of that product are not needed for the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812  # the usual name
from torch import Tensor, nn

from trainer.config import ModelConfig
from trainer.torch_engine.grouped_product import multiply_groups


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of all choices, sorted by expert, those of other devices' experts last.

    Attributes:
        order: Index among all choices, (token * experts of a token + number of the choice), of each row.
        place: Row of each choice.
        ends: int32, the index behind the last row of each of this device's experts.
        own: Which rows are of this device's experts, shape (rows, 1); None for all.
    """

    order: Tensor
    place: Tensor
    ends: Tensor
    own: Tensor | None


class ExpertFeedForward(nn.Module):
    """A router and its experts.

    Attributes:
        first: Index of this device's first expert.
        enter: Gathers all tokens' values, where a tensor axis shards the experts; scatters sums of gradients.
        join: Scatters sums of results over the tokens, where a tensor axis shards the experts.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.router = Router(config)
        self.experts = Experts(config)
        self.chosen = config.experts_per_token
        self.first = 0
        self.enter: Callable[[Tensor], Tensor] | None = None
        self.join: Callable[[Tensor], Tensor] | None = None

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the result, in the shape of x, and the router's balance, as `Router.forward` does."""
        flat = x.flatten(0, 1)
        shares, experts, balance = self.router(flat)
        if self.enter is not None:
            flat, shares, experts = self.enter(flat), self.enter(shares), self.enter(experts)
        rows = sort_rows(experts, self.experts.gate.shape[0], self.first, divided=self.enter is not None)
        inputs = spread(flat, rows, self.chosen)
        weighed = spread(shares.reshape(-1, 1), rows, 1)
        result = collect(self.experts(inputs, weighed, rows.ends), rows, self.chosen)
        if self.join is not None:
            result = self.join(result)
        return result.view_as(x), balance


class Router(nn.Module):
    """Chooses the experts of each token, always in float32."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.chosen, self.normalized = config.experts_per_token, config.normalize_experts
        self.weight = nn.Parameter(torch.empty(config.experts, config.dim))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Choose experts.

        Args:
            x: Shape (tokens, dim).

        Returns:
            The shares of the chosen experts and their indices, shape (tokens, experts of a token); for each expert how
            often it was chosen, and the sum of its shares of all tokens, shape (2, experts).
        """
        with torch.autocast(x.device.type, enabled=False):
            every = F.linear(x.float(), self.weight.float()).softmax(dim=-1)
            shares, experts = every.topk(self.chosen, dim=-1)
            if self.normalized:
                shares = shares / shares.sum(dim=-1, keepdim=True)
            numbers = torch.arange(every.shape[-1], device=x.device)
            counts = (experts[..., None] == numbers).sum(dim=(0, 1)).float()
            return shares, experts, torch.stack((counts, every.sum(dim=0)))


class Experts(nn.Module):
    """The matrices of the experts on this device."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        count, hidden = config.experts, config.expert_dim
        self.gelu = config.activation == "gelu_tanh"
        self.gate = nn.Parameter(torch.empty(count, hidden, config.dim))
        self.up = nn.Parameter(torch.empty(count, hidden, config.dim))
        self.down = nn.Parameter(torch.empty(count, config.dim, hidden))

    def forward(self, x: Tensor, shares: Tensor, ends: Tensor) -> Tensor:
        """Return the experts' results times the shares of their rows.

        Args:
            x: Sorted by expert, shape (rows, dim).
            shares: float32, shape (rows, 1).
            ends: As in `Rows`.
        """
        kind = x.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
        x = x.to(dtype)
        gate = multiply_groups(x, self.gate.to(dtype), ends)
        active = F.gelu(gate, approximate="tanh") if self.gelu else F.silu(gate)
        hidden = (active * multiply_groups(x, self.up.to(dtype), ends) * shares).to(dtype)
        return multiply_groups(hidden, self.down.to(dtype), ends)


def sort_rows(experts: Tensor, count: int, first: int, *, divided: bool) -> Rows:
    """Sort the choices of all tokens.

    Args:
        experts: Index of each choice's expert, shape (tokens, experts of a token).
        count: Number of this device's experts.
        first: Index of the first of them.
        divided: Whether other devices have other experts.
    """
    found, order = experts.flatten().sort(stable=True)
    last = torch.arange(first, first + count, device=experts.device)
    ends = torch.searchsorted(found, last, right=True)
    own = None
    if divided:
        start = torch.searchsorted(found, last[:1])
        numbers = torch.arange(len(order), device=order.device)
        order = order[(numbers + start) % len(order)]
        ends = ends - start
        own = (numbers < ends[-1])[:, None]
    place = torch.empty_like(order).scatter(0, order, torch.arange(len(order), device=order.device))
    return Rows(order=order, place=place, ends=ends.int(), own=own)


def spread(x: Tensor, rows: Rows, times: int) -> Tensor:
    """Return the row of x for each sorted choice; each row of x has `times` of them.

    Rows of other devices' experts have undefined gradients, which count as zero.
    """
    function: Any = _Spread  # torch leaves `apply` untyped
    return cast("Tensor", function.apply(x, rows.order, rows.place, rows.own, times))


def collect(y: Tensor, rows: Rows, times: int) -> Tensor:
    """Sum the results of each token's choices: the transpose of `spread`.

    Rows of other devices' experts have undefined results, which count as zero.
    """
    function: Any = _Collect  # see above
    return cast("Tensor", function.apply(y, rows.order, rows.place, rows.own, times))


class _Spread(torch.autograd.Function):
    """Gathers in both directions; torch's own gradient of an index adds, in an order that is not fixed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, place: Tensor, own: Tensor | None, times: int) -> Tensor:
        ctx.save_for_backward(place, own)
        ctx.times = times
        return x[order // times]

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        place, own = ctx.saved_tensors
        return _sum_choices(slopes[0], place, own, ctx.times), None, None, None, None


class _Collect(torch.autograd.Function):
    """The transpose of _Spread."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, order: Tensor, place: Tensor, own: Tensor | None, times: int) -> Tensor:
        ctx.save_for_backward(order)
        ctx.times = times
        return _sum_choices(y, place, own, times)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        (order,) = ctx.saved_tensors
        return slopes[0][order // ctx.times], None, None, None, None


def _sum_choices(values: Tensor, place: Tensor, own: Tensor | None, times: int) -> Tensor:
    if own is not None:
        values = torch.where(own, values, 0.0)
    return values[place].view(-1, times, values.shape[-1]).sum(dim=1)
