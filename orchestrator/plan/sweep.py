"""Classify the slices that carry our label in the cloud: tracked by a record, or orphans. Pure.

The cloud is listed first and the records are read after it. The other way round, a slice that is planned between the
two would look like an orphan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.plan.observed import FINAL_STATES, Intent
from orchestrator.slices import OwnedSlice, SliceState

GRACE = 600.0  # seconds; a younger unknown slice may belong to a record that is not visible yet


class SweepVerdict(StrEnum):
    """Verdict on a slice found in the cloud."""

    TRACKED = "tracked"  # an open record refers to it
    LEFT_OVER = "left over"  # our record says that it was deleted or never created
    UNKNOWN = "unknown"  # our label, and no record
    YOUNG = "young"  # the same, but too new to be ended
    FOREIGN = "foreign"  # the label of another installation: never ended
    LEAVING = "leaving"  # listed, and already absent
    ADOPTED = "adopted"  # no open record, but orch did not create it: a sweep never ends it


ORPHANS = frozenset({SweepVerdict.LEFT_OVER, SweepVerdict.UNKNOWN})


@dataclass(frozen=True, slots=True)
class SweptSlice:
    """A slice found by a sweep, with its verdict."""

    slice: OwnedSlice
    verdict: SweepVerdict
    why: str

    @property
    def orphan(self) -> bool:
        """Whether a sweep should end it."""
        return self.verdict in ORPHANS


def classify_slice(
    found: OwnedSlice, intents: Mapping[str, Intent], installation: str, now: float, grace: float = GRACE
) -> SweptSlice:
    """Return the verdict on one slice.

    Args:
        found: The slice, as the provider lists it.
        intents: Every intent ever recorded here, by token (the slice's `intent` label).
        installation: Our installation id.
        now: Epoch seconds.
        grace: Age in seconds below which an unknown slice is not ended.
    """
    if found.installation != installation:
        return SweptSlice(found, SweepVerdict.FOREIGN, f"it belongs to installation {found.installation or '(none)'}")
    if found.state is SliceState.ABSENT:
        return SweptSlice(found, SweepVerdict.LEAVING, "it is already absent")
    intent = intents.get(found.intent)
    if intent is not None and intent.state not in FINAL_STATES:
        return SweptSlice(found, SweepVerdict.TRACKED, f"used by '{found.cluster}'")
    if found.adopted:
        return SweptSlice(found, SweepVerdict.ADOPTED, "it was adopted, and no record of it is open: end it by hand")
    # A slice whose end is recorded is ended again: it may be stuck without a running command.
    if intent is not None:
        reason = "its record is closed" if intent.billed_until is not None else f"its record says {intent.state}"
        return SweptSlice(found, SweepVerdict.LEFT_OVER, reason)
    if now - found.created < grace:
        return SweptSlice(found, SweepVerdict.YOUNG, f"no record of it, but it is only {now - found.created:.0f} s old")
    return SweptSlice(found, SweepVerdict.UNKNOWN, "no record of it here")
