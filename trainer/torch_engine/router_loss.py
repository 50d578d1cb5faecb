"""The loss by which a router learns to choose all experts equally often.

It is that of the Switch Transformer (Fedus et al. 2021, arXiv 2101.03961, equations 4 to 6) as transformers computes it
for Mixtral and Qwen 3 (5.24, load_balancing_loss_func), over all blocks together and all rows of a micro-batch:

    experts * sum over experts of (choices of the expert / tokens) * (mean of its shares of all tokens)

It is experts of a token when all are chosen equally often. Choices have no gradient; those of all processes are summed
before the backward pass. So a micro-batch has the same loss on every mesh. The mesh decides only which rows of a step
are in the same micro-batch: each shard of rows is cut into micro-batches by itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainer.config import Config
from trainer.shape.mesh import Mesh
from trainer.torch_engine.untyped import dist


class RouterLoss:
    """Computes the loss of each micro-batch, and its mean over a step."""

    def __init__(self, config: Config, mesh: Mesh) -> None:
        """Begin without numbers; each device of the mesh has other tokens."""
        self._chosen, self._summed = config.model.experts_per_token, mesh.devices > 1
        self._weight = config.model.router_loss / config.accumulate
        self._found: list[Tensor] = []

    def begin(self) -> None:
        """Forget the numbers of the last step."""
        self._found = []

    def add(self, balance: Tensor) -> Tensor:
        """Return this process's part of a micro-batch's loss, times its factor in the loss of the step.

        Args:
            balance: Of the routers for this process's tokens, shape (layers, 2, experts).
        """
        layers, _, experts = balance.shape
        whole = balance.detach().clone()
        if self._summed:
            dist.all_reduce(whole)
        choices, shares = whole.sum(dim=0)
        total = choices.sum()  # tokens x experts of a token x layers
        slope = choices * (experts * self._chosen**2 / total**2)
        largest = whole[:, 0].max() * (layers / total)
        self._found.append(torch.stack(((slope * shares).sum(), largest)))
        result: Tensor = self._weight * (slope * balance[:, 1].sum(dim=0)).sum()
        return result

    def numbers(self) -> Tensor:
        """Return the step's mean loss of all rows, without its factor, and the largest share of an expert; shape (2,).

        The share is of the choices in one block and micro-batch, and the mean of the micro-batches.
        """
        return torch.stack(self._found).mean(dim=0)
