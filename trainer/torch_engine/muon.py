"""Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/) for the hidden matrices, AdamW for the others.

The formula is torch.optim.Muon's with adjust_lr_fn="match_rms_adamw" (Liu et al. 2025, "Muon is Scalable for LLM
Training", arXiv 2502.16982), and the same in every engine. g is the clipped gradient, m = optim.momentum:

    buffer = m * buffer + (1 - m) * g
    u = m * buffer + (1 - m) * g                                  (Nesterov)
    u = orthogonalize(u)                                          five Newton-Schulz steps on the whole matrix
    w = w * (1 - rate * weight_decay) - rate * 0.2 * sqrt(max(rows, columns)) * u

torch's class multiplies always in bf16 and takes whole matrices. Here the type is a choice, and on a mesh each device
assembles and orthogonalizes some of the matrices: every device's work is an equal share, and only one matrix at a time
is whole in its memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trainer.config import OptimConfig
from trainer.shape.mesh import Mesh
from trainer.shape.newton_schulz import COEFFICIENTS, EPSILON, STEPS, scale_update
from trainer.torch_engine.adamw import AdamW
from trainer.torch_engine.matrix_exchange import MatrixExchange
from trainer.torch_engine.optimizer import Moment
from trainer.torch_engine.slots import Slot
from trainer.torch_engine.untyped import compute_norm, foreach


class Muon:
    """Muon as a trainer.torch_engine.optimizer.Optimizer."""

    def __init__(
        self, slots: Sequence[Slot], config: OptimConfig, mesh: Mesh, device: int, *, narrow: bool, fused: bool
    ) -> None:
        """Create zero moments.

        Args:
            slots: The weights.
            config: Rates, momentum and decay.
            mesh: The mesh; its devices are the ranks of the default process group.
            device: This process's index on the mesh.
            narrow: Whether matrices are orthogonalized in bf16.
            fused: Whether the device has torch's fused kernel of AdamW.
        """
        self._config = config
        self._hidden = [at for at, slot in enumerate(slots) if slot.parameter.is_hidden_matrix]
        self._others = [at for at, slot in enumerate(slots) if not slot.parameter.is_hidden_matrix]
        self._slots = [slots[at] for at in self._hidden]
        self._buffers = [torch.zeros_like(slot.weight) for slot in self._slots]
        self._adamw = AdamW([slots[at] for at in self._others], config, fused=fused)
        self._exchange = MatrixExchange(mesh, device)
        self._batches = self._exchange.make_batches([slot.parameter for slot in self._slots])
        self._type = torch.bfloat16 if narrow else torch.float32

    def moments(self) -> Sequence[Moment]:
        own = [
            Moment(slot=slot, suffix="momentum_buffer", values=values)
            for slot, values in zip(self._slots, self._buffers, strict=True)
        ]
        return [*own, *self._adamw.moments()]

    @torch.no_grad()
    def apply(self, gradients: Sequence[Tensor], factor: Tensor | None, rate: float, step: int) -> None:
        self._adamw.apply([gradients[at] for at in self._others], factor, rate, step)
        hidden = [gradients[at] for at in self._hidden]
        if factor is not None:
            foreach._foreach_mul_(hidden, factor)
        foreach._foreach_lerp_(self._buffers, hidden, 1.0 - self._config.momentum)
        foreach._foreach_lerp_(hidden, self._buffers, self._config.momentum)
        if self._config.weight_decay:
            foreach._foreach_mul_([slot.weight for slot in self._slots], 1.0 - rate * self._config.weight_decay)
        for batch in self._batches:
            shards = [hidden[at].to(self._type) for at in batch.indices]
            mine = self._exchange.assemble(batch, shards)
            result = None if mine is None else orthogonalize(mine)
            for at, update in zip(batch.indices, self._exchange.distribute(batch, result, shards), strict=True):
                slot = self._slots[at]
                slot.weight.sub_(update, alpha=rate * scale_update(slot.parameter.shape))


def orthogonalize(matrix: Tensor) -> Tensor:
    """Return the matrix with all its singular values moved to about one, in its type."""
    a, b, c = COEFFICIENTS
    high = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if high else matrix
    x = x / compute_norm(x).clamp(min=EPSILON)
    for _ in range(STEPS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if high else x
