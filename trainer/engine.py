"""The interface between the loop and an engine: a model with its optimizer on this process's devices, ready to step.

Two families implement it: trainer/torch_engine (cpu, cuda, tpu, neuron; xla) and trainer/jax_engine. The loop and the
checkpoints see numpy arrays only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from trainer.config import EngineName
from trainer.shape.box import TensorRegion
from trainer.shape.mesh import Mesh, RowShare

FloatArray: TypeAlias = npt.NDArray[np.float32]
TokenArray: TypeAlias = npt.NDArray[Any]
"""Rows of tokens: uint8, uint16, int16 or int32, shape (rows, seq_len + 1).
Negative ones: trainer/data/tokens/marks.py. With `data.document_mask` they are int32: document_starts.py there."""
DOCUMENT_START: Final = 1 << 30
"""Bit that differs from the sign in the first token of a document; no vocabulary needs it."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """The results of a step, the same on every process.

    Attributes:
        loss: Mean nats a token over all rows, or over their marked tokens.
        grad_norm: Global norm, before clipping.
        stops: Number of processes with a stop request.
        router_loss: Loss that balances experts, without its coefficient; None without experts.
        expert_share: Largest share of a block's choices that an expert has; None without experts.
    """

    loss: float
    grad_norm: float
    stops: int
    router_loss: float | None = None
    expert_share: float | None = None


class Engine(Protocol):
    """A model with its optimizer on the devices of this process.

    Every method may raise PeerError (another process is lost) and DeviceError (out of memory, a failed device).
    """

    @property
    def name(self) -> EngineName:
        """The framework: torch or jax."""
        ...

    @property
    def mesh(self) -> Mesh: ...

    @property
    def share(self) -> RowShare:
        """The rows of each step that this process feeds."""
        ...

    @property
    def read_every(self) -> int:
        """Largest number of steps between two reads of the numbers; 1 where a read is cheap."""
        ...

    @property
    def peak_flops(self) -> float | None:
        """Published peak of all devices of the mesh together at the run's dtype; None when one is unknown."""
        ...

    def headline(self) -> str:
        """Return one line for people: devices, backend, mesh, threads."""
        ...

    def notes(self) -> Sequence[str]:
        """Return what the user should know (fallbacks taken, idle devices), one line each; printed once."""
        ...

    def program(self) -> str:
        """Return a digest of a step: model, mesh, dtype, versions, and the traced program where there is one.

        It must be the same on every process, or they would wait for each other forever.
        """
        ...

    def step(self, rows: TokenArray, rate: float, stop: bool, step: int) -> None:
        """Begin one optimizer step; devices may still be computing on return.

        Args:
            rows: This process's rows, shape (share of batch, seq_len + 1).
            rate: The learning rate.
            stop: Whether this process requests a stop.
            step: Steps done before this one, from 0 (bias correction, decay of moments).
        """
        ...

    def numbers(self) -> Numbers:
        """Of the newest step; waits for it."""
        ...

    def evaluate(self, rows: TokenArray) -> float:
        """Return the mean loss, in nats a token, of a batch of rows over all processes, and wait for it.

        Tokens that are not marked count as 0. Neither the training state nor the numbers of the newest step change.

        Args:
            rows: This process's rows, of the shape of a step's.
        """
        ...

    def written(self) -> Sequence[TensorRegion]:
        """Return the regions of the training state that this process writes into a checkpoint.

        All processes together cover every tensor exactly once. Fixed for the life of the engine.
        """
        ...

    def copy_out(self, into: Mapping[TensorRegion, FloatArray]) -> None:
        """Copy the current values of the regions that this process writes; each array has the shape of its region."""
        ...

    def needed(self) -> Sequence[TensorRegion]:
        """Return the regions that this process needs to resume from a checkpoint."""
        ...

    def load(self, values: Iterable[tuple[TensorRegion, FloatArray]]) -> None:
        """Replace the state with the given values.

        Each region that this process needs comes exactly once, in any order. The caller may reuse an array when
        the next one is drawn.
        """
        ...

    def memory(self) -> int | None:
        """Return the peak bytes in use on one device of this process so far; None when unknown."""
        ...

    def counters(self) -> Mapping[str, float]:
        """Return counters for metrics and diagnostics, such as compilations so far; cheap."""
        ...

    def diagnostics(self) -> Mapping[str, Any]:
        """Return JSON-able facts: devices, capabilities, the library's own metrics (torch_xla report, NVML, ...)."""
        ...

    def profile(self, folder: Path) -> AbstractContextManager[object]:
        """Record what happens while it is entered, and write the library's trace files into the folder."""
        ...

    def close(self) -> None:
        """Release the devices and leave the other processes, after the last step and the last checkpoint."""
        ...
