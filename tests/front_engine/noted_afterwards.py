"""A broken provider that every front has: the crash matrix must find what it leaves."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

from orchestrator.paths import load_paths
from orchestrator.slices import SliceKeys, SliceSpec, SliceView


class NamesNotedAfterwards:
    """A provider that names a slice at its create and records the name after it, as many launchers do.

    The class of the real provider is the next base.
    """

    def create(self, spec: SliceSpec, keys: SliceKeys) -> None:
        if not self._note(spec.name).exists():
            fresh = f"{spec.name}-{uuid.uuid4().hex[:6]}"
            super().create(replace(spec, name=fresh), keys)  # type: ignore[misc]  # the next base has it
            self._note(spec.name).write_text(fresh)

    def observe(self, name: str, token: str = "") -> SliceView:
        seen: SliceView = super().observe(self._noted(name))  # type: ignore[misc]  # as above
        return seen

    def end(self, name: str, token: str = "") -> None:
        super().end(self._noted(name))  # type: ignore[misc]  # as above

    def _note(self, name: str) -> Path:
        folder = load_paths().state / "notes"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / name

    def _noted(self, name: str) -> str:
        return self._note(name).read_text() if self._note(name).exists() else name
