"""The stages of a pipeline in torch: its schedule (1F1B) for the model of trainer/torch_engine/build.py.

torch.distributed.pipelining runs the schedule and moves values and gradients between stages. It calls functions, not
the model, so that gradients.py remains the one place that steers FSDP2 and the sums over replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from trainer.config import Config
from trainer.shape.mesh import Mesh
from trainer.shape.pipeline import Stage
from trainer.torch_engine.untyped import dist

Compute = Callable[[Tensor, Tensor | None], Tensor]
"""`compute(values, documents)` is the forward pass of a stage."""
ComputeLoss = Callable[[Tensor, Tensor], Tensor]
"""`loss(hidden, targets)` is the mean loss of a micro-batch."""
_WRAPPED = ("failed to run forward", "Failed to run stage backward")  # torch's own errors around the cause


def meet_stages(group: Any, device: torch.device) -> None:
    """Let all stages create the communicator that messages in both directions use.

    Otherwise the first such message of two stages would create it, and NCCL waits then for all members
    (torch 2.13, schedules.py, "STATIC mode group communicator warm-up gap").
    """
    dist.all_reduce(torch.zeros(1, device=device), group=group)


class Pipeline:
    """Runs the micro-batches of a step through the stages."""

    def __init__(
        self,
        config: Config,
        mesh: Mesh,
        stage: Stage,
        group: Any,
        device: torch.device,
        *,
        compute: Compute,
        loss: ComputeLoss,
        before_backward: Callable[[bool], None],
    ) -> None:
        """Describe the stage to torch.

        Args:
            config: The settings.
            mesh: The mesh.
            stage: The one of this process.
            group: Process group of the devices with the same position in all stages.
            device: The device.
            compute: Forward pass of the stage.
            loss: Of the last stage.
            before_backward: Called before the backward pass of each micro-batch, with whether it is the step's last.
        """
        self._stage, self._device = stage, device
        self._share: float | Tensor = 1.0
        rows, length = config.rows_per_micro_batch(mesh.shards), config.seq_len // mesh.context
        # Shapes and types alone: so the stages need not ask each other for them.
        dtype = torch.bfloat16 if config.residual == "bf16" else torch.float32
        own = (rows, length // mesh.tensor, config.model.dim)
        stream = torch.empty(own, dtype=dtype, device="meta", requires_grad=True)
        tokens = torch.empty((rows, length), dtype=torch.int64, device="meta")
        self._torch_stage: Any = _Stage(
            _Function(compute),
            stage.index,
            stage.count,
            device,
            input_args=tokens if stage.is_first else stream,
            output_args=stream,
            group=group,
        )
        self._torch_stage.before_backward = before_backward

        def weigh(hidden: Tensor, targets: Tensor) -> Tensor:
            return loss(hidden, targets) * self._share

        # Losses are parts of the mean over the step, so gradients are sums.
        self._schedule: Any = Schedule1F1B(self._torch_stage, config.accumulate, loss_fn=weigh, scale_grads=False)

    def backward(self, tokens: Tensor, targets: Tensor, documents: Tensor | None, share: float | Tensor) -> Tensor:
        """Compute the gradients of this stage, and return its part of the mean loss: 0 before the last stage.

        Args:
            tokens: Of all micro-batches, int64, shape (rows of this process, length).
            targets: Likewise.
            documents: Numbers of the documents; None where tokens attend across documents.
            share: Factor of the loss of each micro-batch.
        """
        self._share = share
        return self._run(self._schedule.step, tokens, targets, documents)

    def evaluate(self, tokens: Tensor, targets: Tensor, documents: Tensor | None) -> Tensor:
        """Return the sum of the losses of all micro-batches: 0 before the last stage."""
        self._share = 1.0
        return self._run(self._schedule.eval, tokens, targets, documents)

    def skip_negotiation(self) -> None:
        """Leave out the messages by which stages agree that shapes are known: fake processes answer none."""
        from torch.distributed.pipelining import stage as library

        unchecked: Any = library

        def skip(*_: Any) -> None:
            self._torch_stage._inference_mode = unchecked.InferenceMode.STATIC

        self._schedule._warmup_p2p = skip

    def _run(self, run: Callable[..., Any], tokens: Tensor, targets: Tensor, documents: Tensor | None) -> Tensor:
        losses: list[Tensor] = []
        first = (tokens,) if self._stage.is_first else ()
        last = {"target": targets} if self._stage.is_last else {}
        more = {} if documents is None else {"documents": documents}
        with _unwrap_errors():
            run(*first, losses=losses, return_outputs=False, **last, **more)
        total = torch.zeros((), device=self._device)
        for loss in losses:
            total += loss.detach()
        return total


class _Function(nn.Module):
    """A function as a module without parameters."""

    def __init__(self, compute: Compute) -> None:
        super().__init__()
        self._compute = compute

    def forward(self, values: Tensor, documents: Tensor | None = None) -> Tensor:
        return self._compute(values, documents)


class _Stage(PipelineStage):
    before_backward: Callable[[bool], None]

    def backward_one_chunk(self, *arguments: Any, last_backward: bool = False, **more: Any) -> Any:
        self.before_backward(last_backward)
        unchecked: Any = super()
        return unchecked.backward_one_chunk(*arguments, last_backward=last_backward, **more)


@contextmanager
def _unwrap_errors() -> Generator[None]:
    """Raise what the model or a collective raised, of which torch's own error around it names only arguments."""
    try:
        yield
    except RuntimeError as error:
        if error.__cause__ is None or not any(text in str(error) for text in _WRAPPED):
            raise
        raise cast("Exception", error.__cause__) from None
