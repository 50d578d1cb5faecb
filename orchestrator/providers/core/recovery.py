"""Take over a slice that has no record here: what it is, its new owner, and the record by which it is observed."""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol, TypeVar

from orchestrator.providers.core.provider import StoppableProvider
from orchestrator.providers.core.record import R, SliceRecord
from orchestrator.slices import OwnedSlice, RecoveredSlice, SliceKeys

_Record_co = TypeVar("_Record_co", bound=SliceRecord, covariant=True)


class Recovery(Protocol[_Record_co]):
    """One slice that is taken over. Every method may raise Refused, and NotFoundError when it is deleted."""

    def describe(self) -> RecoveredSlice:
        """Return the slice as the cloud shows it, with the keys that the cloud holds of its hosts."""
        ...

    def relabel(self, installation: str, epoch: int) -> None:
        """Write the new owner into the labels of everything whose labels can be changed, machines first."""
        ...

    def record(self, recovered: RecoveredSlice, keys: SliceKeys, now: float) -> _Record_co:
        """Return the record of the slice."""
        ...


class RecoverableProvider(StoppableProvider[R]):
    """Slices that another installation can take over; see protocol.Recovers."""

    @abstractmethod
    def _recover(self, found: OwnedSlice) -> Recovery[R]:
        """Return the take-over of a listed slice."""

    def describe_owned(self, found: OwnedSlice) -> RecoveredSlice:
        """See protocol.Recovers."""
        with self._explained("look at", found.name):
            return self._recover(found).describe()

    def relabel(self, found: OwnedSlice, installation: str, epoch: int) -> None:
        """See protocol.Recovers."""
        with self._explained("label", found.name):
            self._recover(found).relabel(installation, epoch)

    def keep_recovered(self, found: OwnedSlice, recovered: RecoveredSlice, keys: SliceKeys) -> None:
        """See protocol.Recovers."""
        with self._explained("look at", found.name):
            self._records.put(self._recover(found).record(recovered, keys, self._now()))
