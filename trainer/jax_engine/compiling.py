"""How often and how long JAX compiled, and the step's own program: lowered when opened, compiled once."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from typing import Any

from trainer.jax_engine.library import jax, versions
from trainer.jax_engine.step import Step

_COMPILED = "/jax/core/compile/backend_compile_duration"


class Compilations:
    """Counts from when it is made; JAX calls it for each program that its backend compiled or took from the cache."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._heard)

    def close(self) -> None:
        jax.monitoring.unregister_event_duration_listener(self._heard)

    def _heard(self, event: str, duration: float, **_: Any) -> None:
        if event == _COMPILED:
            self.count += 1
            self.seconds += duration


class Program:
    """The step for one set of shapes. What has other shapes is refused, so nothing is ever compiled again."""

    def __init__(self, step: Step) -> None:
        self._lowered = step.function.lower(*step.arguments)
        self._compiled: Any = None
        self.seconds = 0.0

    def digest(self) -> str:
        """Of the program's text and of the versions that compile it."""
        text = f"{versions}\n{self._lowered.as_text()}"
        return hashlib.sha256(text.encode()).hexdigest()

    def run(self, *arguments: Any) -> Any:
        compiled = self._compiled or self._compile()
        return compiled(*arguments)

    def _compile(self) -> Any:
        begun = time.monotonic()
        compiled = self._compiled = self._lowered.compile()
        self.seconds = time.monotonic() - begun
        return compiled

    def facts(self) -> Mapping[str, float]:
        """Bytes on one device, by the compiler; empty before the first step."""
        sizes = self._compiled.memory_analysis() if self._compiled is not None else None
        if sizes is None:
            return {}
        return {
            "arguments_bytes": sizes.argument_size_in_bytes,
            "temporaries_bytes": sizes.temp_size_in_bytes,
            "output_bytes": sizes.output_size_in_bytes,
        }
