"""Classify the slices that carry an orch label in the cloud: on record here, orphans, or of a store that is not here.

Pure. The cloud is listed first and the records are read after it. The other way round, a slice that is planned between
the two would look like one without a record.

A label without a record is no proof of an orphan: the store may have been lost, restored from an old copy, or be a
second one. Only a closed record here says that a slice is wanted no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.plan.observed import FINAL_STATES, Intent
from orchestrator.slices import OwnedSlice, SliceState


class SweepVerdict(StrEnum):
    """Verdict on a slice found in the cloud."""

    TRACKED = "tracked"  # an open record refers to it
    LEFT_OVER = "left over"  # our record says that it was deleted or never created
    LEAVING = "leaving"  # listed, and already absent
    UNKNOWN = "unknown"  # our label, and no record
    EARLIER = "earlier"  # the label of another installation, made before this store: perhaps by a lost one of ours
    FOREIGN = "foreign"  # the label of another installation


LOST = frozenset({SweepVerdict.UNKNOWN, SweepVerdict.EARLIER})
"""Verdicts on slices that may be ours and are not on record: a person has to decide."""


@dataclass(frozen=True, slots=True)
class SweptSlice:
    """A slice found by a sweep, with its verdict."""

    slice: OwnedSlice
    verdict: SweepVerdict
    why: str

    @property
    def orphan(self) -> bool:
        """Whether a sweep should end it."""
        return self.verdict is SweepVerdict.LEFT_OVER

    @property
    def lost(self) -> bool:
        """Whether it may be ours, and is not on record."""
        return self.verdict in LOST


def classify_slice(
    found: OwnedSlice,
    intents: Mapping[str, Intent],
    installation: str,
    began: float = 0.0,
    transferred: Mapping[str, str] | None = None,
) -> SweptSlice:
    """Return the verdict on one slice.

    Args:
        found: The slice, as the provider lists it.
        intents: Every intent ever recorded here, by token (the slice's `intent` label).
        installation: Our installation id.
        began: When our store was made, in epoch seconds.
        transferred: Who has taken slices over from here, by token; labels of queued resources cannot say it.
    """
    if found.state is SliceState.ABSENT:
        return SweptSlice(found, SweepVerdict.LEAVING, "it is already absent")
    intent = intents.get(found.intent)
    if intent is not None and intent.state not in FINAL_STATES:
        return SweptSlice(found, SweepVerdict.TRACKED, f"used by '{found.cluster}'")
    if (holder := (transferred or {}).get(found.intent)) is not None:
        return SweptSlice(found, SweepVerdict.FOREIGN, f"taken over {holder}")
    if found.installation != installation:
        if found.created < began:
            return SweptSlice(
                found, SweepVerdict.EARLIER, "of another store, older than this one: a colleague may use it"
            )
        return SweptSlice(found, SweepVerdict.FOREIGN, f"of installation {found.installation or '(none)'}")
    # A slice whose end is recorded is ended again: it may be stuck without a running command.
    if intent is not None:
        reason = "its record is closed" if intent.billed_until is not None else f"its record says {intent.state}"
        return SweptSlice(found, SweepVerdict.LEFT_OVER, reason)
    return SweptSlice(found, SweepVerdict.UNKNOWN, "no record of it here")
