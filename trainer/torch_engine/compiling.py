"""torch.compile for parts of the model, with plain torch behind it where the compiler fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from trainer.torch_engine.untyped import dynamo


class Compiled:
    """Functions that are compiled at their first call. After a failure of the compiler they run uncompiled."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self.failure = ""
        """Why nothing is compiled any more, or ""."""

    def __call__(self, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        unchecked: Any = torch
        compiled: Any = unchecked.compile(function, backend=self._backend, dynamic=False)

        def call(*arguments: Any) -> Tensor:
            if self.failure:
                return function(*arguments)
            try:
                result: Tensor = compiled(*arguments)
            except dynamo().exc.TorchDynamoException as error:
                self.failure = _reason(error)
                return function(*arguments)
            return result

        return call


def _reason(error: BaseException) -> str:
    """The compiler's own words; the first line only names it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2]) or type(error).__name__


def graphs() -> int:
    """Programs compiled so far by this process."""
    return int(dynamo().utils.counters["stats"]["unique_graphs"])
