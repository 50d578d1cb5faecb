"""Compilation of parts of the model by torch.compile, with plain torch as the fallback."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

import torch

from trainer.torch_engine.untyped import import_dynamo

P = ParamSpec("P")
T = TypeVar("T")


class TorchCompiler:
    """Compiles functions at their first call; after a failure of the compiler they run uncompiled."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        # inductor repeats it on every rank, also without float32 products; the notes of the device contain it.
        warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
        # It warns of operations in place when a block is recomputed selectively (recomputation.py): a block has none.
        logging.getLogger("torch._higher_order_ops.wrap").setLevel(logging.ERROR)
        self.failure = ""
        """Error of the compiler, after which nothing is compiled; empty when there was none."""

    def __call__(self, function: Callable[P, T], options: Mapping[str, bool] | None = None) -> Callable[P, T]:
        """Return the compiled function; the options of the compiler hold for this function alone."""
        unchecked: Any = torch
        given = dict(options) if options else None
        compiled: Any = unchecked.compile(function, backend=self._backend, dynamic=False, options=given)

        def call(*arguments: P.args, **named: P.kwargs) -> T:
            if self.failure:
                return function(*arguments, **named)
            try:
                result: T = compiled(*arguments, **named)
            except import_dynamo().exc.TorchDynamoException as error:
                self.failure = _reason(error)
                return function(*arguments, **named)
            return result

        return call


def _reason(error: BaseException) -> str:
    """Return the compiler's own message from the first two lines; the first only names the error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2]) or type(error).__name__


def count_compiled_graphs() -> int:
    """Return the number of programs that this process has compiled."""
    return int(import_dynamo().utils.counters["stats"]["unique_graphs"])
