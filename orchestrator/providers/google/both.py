"""The provider "gcp": the TPU API and Compute Engine behind one protocol. Where a slice is, its record says."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Protocol

from orchestrator.errors import UserError
from orchestrator.providers.google import choices
from orchestrator.providers.protocol import Adopts, Provider, Stops
from orchestrator.slices import OwnedSlice, SliceKeys, SliceSpec, SliceState, SliceView, Stranger

TPU = "google"  # folders of the records, below the state folder
COMPUTE = "google-compute"


class Tpus(Provider, Stops, Adopts, Protocol):
    """The half that does all."""


class Both:
    """tpu: the half that serves the TPU API. compute: opens the other half, when it is needed."""

    name = "gcp"

    def __init__(self, state: Path, tpu: Tpus, compute: Callable[[], Provider]) -> None:
        self._state = state
        self._tpu = tpu
        self._open_compute = compute

    def create(self, spec: SliceSpec, keys: SliceKeys) -> None:
        self._planned(spec).create(spec, keys)

    def observe(self, name: str) -> SliceView:
        if (half := self._half(name)) is not None:
            return half.observe(name)
        view = self._tpu.observe(name)
        return self._compute.observe(name) if view.state is SliceState.ABSENT else view

    def end(self, name: str) -> None:
        half = self._half(name)
        for each in (self._tpu, self._compute) if half is None else (half,):
            each.end(name)

    def owned(self, installation: str) -> tuple[OwnedSlice, ...]:
        return (*self._tpu.owned(installation), *self._compute.owned(installation))

    def find(self, name: str, zone: str, project: str = "", user: str = "") -> Stranger:
        return self._tpu.find(name, zone, project, user)

    def release(self, name: str) -> None:
        self._tpu.release(name)

    def stop(self, name: str) -> None:
        self._stopping(name).stop(name)

    def start(self, name: str) -> None:
        self._stopping(name).start(name)

    def _planned(self, spec: SliceSpec) -> Provider:
        return self._compute if choices.path_of(spec.candidate).api == "compute" else self._tpu

    def _half(self, name: str) -> Provider | None:
        """Which half has it, None when it may be either: what no record tells of, or two.

        There are two when an older slice of this name was with the other half.
        """
        tpu, compute = ((self._state / folder / f"{name}.json").is_file() for folder in (TPU, COMPUTE))
        if tpu == compute:
            return None
        return self._tpu if tpu else self._compute

    def _stopping(self, name: str) -> Stops:
        half = self._half(name)
        if half is None:
            half = self._compute if self._tpu.observe(name).state is SliceState.ABSENT else self._tpu
        if not isinstance(half, Stops):
            raise UserError(f"'{name}' cannot be stopped and kept", "it is on Compute Engine", "orch down   ends it")
        return half

    @cached_property
    def _compute(self) -> Provider:
        return self._open_compute()
