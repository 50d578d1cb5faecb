"""What the loop needs of an engine: a model with its optimizer on this process's devices, ready to step.

Two families implement it: trainer/torch_engine (cpu, cuda, tpu, neuron; xla) and trainer/jax_engine. The loop and the
checkpoints see numpy arrays only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from trainer.config import EngineName
from trainer.shape.box import Piece
from trainer.shape.mesh import Mesh, RowShare

FloatArray: TypeAlias = npt.NDArray[np.float32]
TokenArray: TypeAlias = npt.NDArray[Any]
"""Rows of tokens: uint8, uint16 or int32, shape (rows, seq_len + 1)."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """What a step amounted to, the same on every process.

    loss: mean nats a token over all rows. grad_norm: global, before clipping. stops: processes that want to stop.
    """

    loss: float
    grad_norm: float
    stops: int


class Engine(Protocol):
    """Every method may raise PeerError (another process is lost) and DeviceError (out of memory, a dead device)."""

    @property
    def name(self) -> EngineName:
        """torch or jax."""
        ...

    @property
    def mesh(self) -> Mesh: ...

    @property
    def share(self) -> RowShare:
        """Which rows of each step this process feeds."""
        ...

    @property
    def read_every(self) -> int:
        """Steps between two calls of `numbers` at most: 1 where a look is cheap."""
        ...

    @property
    def peak_flops(self) -> float | None:
        """Published peak of all devices of the mesh together at the run's dtype; None when one is not known."""
        ...

    def headline(self) -> str:
        """For people, one line: devices, backend, mesh, threads."""
        ...

    def notes(self) -> Sequence[str]:
        """What the user should know: fallbacks taken, idle devices. One line each, said once."""
        ...

    def program(self) -> str:
        """A digest of what a step does (model, mesh, dtype, versions, traced program where there is one): must be the
        same on every process, or they would wait for each other for ever."""
        ...

    def step(self, rows: TokenArray, rate: float, stop: bool, step: int) -> None:
        """Begin one optimizer step; devices may still be at work on return.

        rows: this process's, shape (share of batch, seq_len + 1). rate: learning rate. stop: this process wants to
        stop. step: steps done before this one, from 0 (bias correction, decay of moments).
        """
        ...

    def numbers(self) -> Numbers:
        """Of the newest step; waits for it."""
        ...

    def written(self) -> Sequence[Piece]:
        """The regions of the training state that this process writes into a checkpoint.

        All processes together cover every tensor exactly once. Fixed for the life of the engine.
        """
        ...

    def copy_out(self, into: Mapping[Piece, FloatArray]) -> None:
        """Copy the present values of `written()`; arrays have the shape of their piece's box."""
        ...

    def needed(self) -> Sequence[Piece]:
        """The regions that this process must be given to go on from a checkpoint."""
        ...

    def load(self, values: Iterable[tuple[Piece, FloatArray]]) -> None:
        """Replace the state; each of `needed()` comes exactly once, in any order. Arrays may be reused by the caller
        after the next is drawn."""
        ...

    def memory(self) -> int | None:
        """Most bytes in use at once on one device of this process so far; None when the device does not say."""
        ...

    def counters(self) -> Mapping[str, float]:
        """Such as compilations so far: for metrics and diagnostics. Cheap."""
        ...

    def diagnostics(self) -> Mapping[str, Any]:
        """JSON-able: devices, capability flags, metrics snapshot of the library (torch_xla report, NVML, ...)."""
        ...

    def profile(self, folder: Path) -> AbstractContextManager[object]:
        """Record what happens while it is entered; writes the library's trace files into the folder."""
        ...

    def close(self) -> None:
        """Let go of the devices and of the other processes, after the last step and the last checkpoint."""
        ...
