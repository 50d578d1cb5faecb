"""torch.compile for parts of the model, with plain torch behind it where the compiler fails."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

from trainer.torch_engine.untyped import dynamo

P = ParamSpec("P")
T = TypeVar("T")


class Compiled:
    """Functions that are compiled at their first call. After a failure of the compiler they run uncompiled."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        # inductor says it on every rank, and in runs without products in float32 too; see the notes of the device.
        warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
        self.failure = ""
        """Why nothing is compiled any more, or ""."""

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        unchecked: Any = torch
        compiled: Any = unchecked.compile(function, backend=self._backend, dynamic=False)

        def call(*arguments: P.args, **named: P.kwargs) -> T:
            if self.failure:
                return function(*arguments, **named)
            try:
                result: T = compiled(*arguments, **named)
            except dynamo().exc.TorchDynamoException as error:
                self.failure = _reason(error)
                return function(*arguments, **named)
            return result

        return call


def _reason(error: BaseException) -> str:
    """The compiler's own words; the first line only names it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2]) or type(error).__name__


def graphs() -> int:
    """Programs compiled so far by this process."""
    return int(dynamo().utils.counters["stats"]["unique_graphs"])
