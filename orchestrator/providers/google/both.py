"""The provider "gcp": the TPU API and Compute Engine behind one protocol. Where a slice is, its record says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Protocol

from orchestrator.errors import CannotStopError, NotFoundError
from orchestrator.providers.google import choices
from orchestrator.providers.protocol import DiagnosesHosts, Finishes, Recovers, Stops
from orchestrator.providers.records import Records
from orchestrator.slices import OwnedSlice, RecoveredSlice, SliceKeys, SliceSpec, SliceState, SliceView

TPU = "google"  # folders of the records, below the state folder
COMPUTE = "google-compute"


class Named(Recovers, Finishes, DiagnosesHosts, Protocol):
    """Knows what Compute Engine calls its hosts."""

    def projects(self) -> set[str]: ...

    def instance_names(self, name: str) -> tuple[str, ...]: ...


class Tpus(Named, Stops, Protocol):
    """The half that does all."""


class Both:
    """tpu: the half that serves the TPU API. compute: opens the other half, when it is needed.

    complete: both halves are asked, whatever the records say.
    """

    name = "gcp"

    def __init__(
        self, place: Callable[[str], Records], tpu: Tpus, compute: Callable[[], Named], *, complete: bool = False
    ) -> None:
        self._place = place
        self._tpu = tpu
        self._open_compute = compute
        self._complete = complete
        self._holders: dict[tuple[str, str], Recovers] = {}

    def create(self, spec: SliceSpec, keys: SliceKeys) -> None:
        self._planned(spec).create(spec, keys)

    def observe(self, name: str, token: str = "") -> SliceView:
        return self._view(lambda half: half.observe(name, token), name)

    def finish(self, name: str, token: str = "") -> SliceView:
        """See protocol.Finishes."""
        return self._view(lambda half: half.finish(name, token), name)

    def diagnose_hosts(self, name: str, token: str, ranks: Sequence[int]) -> Mapping[int, str]:
        """See protocol.DiagnosesHosts. Only Compute Engine shows a console."""
        half = self._half(name)
        return {} if half is None else half.diagnose_hosts(name, token, ranks)

    def end(self, name: str, token: str = "") -> None:
        half = self._half(name)
        either = (self._tpu, self._compute) if self._compute_used else (self._tpu,)
        for each in either if half is None else (half,):
            each.end(name, token)

    def owned(self, installation: str) -> tuple[OwnedSlice, ...]:
        found = self._tpu.owned(installation)
        return (*found, *self._compute.owned(installation)) if self._compute_used else found

    def projects(self) -> set[str]:
        """Those in which something was made from here."""
        return self._tpu.projects() | (self._compute.projects() if self._compute_used else set[str]())

    def instance_names(self, name: str) -> tuple[str, ...]:
        """See gated.py. Raises NotFoundError for a slice that was not made from here."""
        half = self._half(name)
        if half is None:
            raise NotFoundError(f"no slice '{name}' was made from here", "", "orch status")
        return half.instance_names(name)

    def describe_owned(self, found: OwnedSlice) -> RecoveredSlice:
        return self._holder(found).describe_owned(found)

    def relabel(self, found: OwnedSlice, installation: str, epoch: int) -> None:
        self._holder(found).relabel(found, installation, epoch)

    def keep_recovered(self, found: OwnedSlice, recovered: RecoveredSlice, keys: SliceKeys) -> None:
        self._holder(found).keep_recovered(found, recovered, keys)

    def _holder(self, found: OwnedSlice) -> Recovers:
        """Return the half in which a listed slice is; its project is listed once. Raises NotFoundError."""
        key = (found.name, found.intent)
        for half in (self._tpu, self._compute) if key not in self._holders else ():
            if any((one.name, one.intent) == key for one in half.owned("")):
                self._holders[key] = half
                break
        if key in self._holders:
            return self._holders[key]
        raise NotFoundError(f"'{found.name}' is deleted meanwhile", "", "orch recover   lists what there is")

    def stop(self, name: str) -> None:
        self._stopping(name).stop(name)

    def start(self, name: str) -> None:
        self._stopping(name).start(name)

    def _view(self, view_of: Callable[[Named], SliceView], name: str) -> SliceView:
        if (half := self._half(name)) is not None:
            return view_of(half)
        view = view_of(self._tpu)
        return view_of(self._compute) if view.state is SliceState.ABSENT and self._compute_used else view

    def _planned(self, spec: SliceSpec) -> Named:
        return self._compute if choices.path_of(spec.candidate).api == "compute" else self._tpu

    def _half(self, name: str) -> Named | None:
        """Which half has it, None when it may be either: what no record tells of, or two.

        There are two when an older slice of this name was with the other half.
        """
        if self._complete:
            return None
        tpu, compute = (self._place(kind).read(name) is not None for kind in (TPU, COMPUTE))
        if tpu == compute:
            return None
        return self._tpu if tpu else self._compute

    def _stopping(self, name: str) -> Stops:
        half = self._half(name)
        if half is None:
            half = self._compute if self._tpu.observe(name).state is SliceState.ABSENT else self._tpu
        if not isinstance(half, Stops):
            raise CannotStopError(f"'{name}'", "it is on Compute Engine")
        return half

    @property
    def _compute_used(self) -> bool:
        """Whether anything was made on Compute Engine from here; else its API need not even be enabled."""
        return self._complete or self._place(COMPUTE).folder.is_dir() or bool(self._place(COMPUTE).names())

    @cached_property
    def _compute(self) -> Named:
        return self._open_compute()
