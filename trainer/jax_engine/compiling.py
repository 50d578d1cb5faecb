"""Compilation of a step: lowered when opened, compiled once; and a count of all compilations."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from trainer.jax_engine.library import jax, versions

_NO_OPTIONS: Mapping[str, str] = MappingProxyType({})
_COMPILED = "/jax/core/compile/backend_compile_duration"


class CompilationCounter:
    """Counts, from its creation, the programs that JAX's backend compiled or took from the cache."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._record)

    def close(self) -> None:
        jax.monitoring.unregister_event_duration_listener(self._record)

    def _record(self, event: str, duration: float, **_: Any) -> None:
        if event == _COMPILED:
            self.count += 1
            self.seconds += duration


class Program:
    """A function for one set of shapes; other shapes are refused, so nothing is compiled twice."""

    def __init__(self, function: Any, arguments: Sequence[Any], options: Mapping[str, str] = _NO_OPTIONS) -> None:
        """Lower a jitted function, which has these compiler options, for these shapes, types and shardings."""
        self._lowered = function.lower(*arguments)
        self._options = dict(options)
        self._compiled: Any = None
        self.seconds = 0.0

    def digest(self) -> str:
        """Return a digest of the program's text, and of the versions and options that compile it."""
        text = f"{versions}\n{self._options}\n{self._lowered.as_text()}"
        return hashlib.sha256(text.encode()).hexdigest()

    def run(self, *arguments: Any) -> Any:
        compiled = self._compiled or self._compile()
        return compiled(*arguments)

    def _compile(self) -> Any:
        started = time.monotonic()
        compiled = self._compiled = self._lowered.compile()
        self.seconds = time.monotonic() - started
        return compiled

    def memory_sizes(self) -> Mapping[str, float]:
        """Return bytes on one device, as the compiler reports them; empty before the first step."""
        sizes = self._compiled.memory_analysis() if self._compiled is not None else None
        if sizes is None:
            return {}
        return {
            "arguments_bytes": sizes.argument_size_in_bytes,
            "temporaries_bytes": sizes.temp_size_in_bytes,
            "output_bytes": sizes.output_size_in_bytes,
        }
