"""The sweep, seen from the cloud: what there carries our label, and does anybody here still want it? Pure.

The cloud is listed first and the records are read after it. The other way round, a slice that is planned between the
two would look like nobody's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.plan.observed import FINAL, Intent
from orchestrator.slices import OwnedSlice, SliceState

GRACE = 600.0  # seconds; something unknown that is younger may belong to a store that we have not seen yet


class Standing(StrEnum):
    """What a slice found in the cloud is to us."""

    TRACKED = "tracked"  # an open record wants it
    LEFT_OVER = "left over"  # our record says that it is gone or was never made
    UNKNOWN = "unknown"  # our label, and no record at all
    YOUNG = "young"  # the same, but so new that it is left alone for now
    FOREIGN = "foreign"  # somebody else's label: never touched
    LEAVING = "leaving"  # listed, and gone already
    ADOPTED = "adopted"  # no record wants it, but somebody else made it: it is never ended by a sweep


ORPHANS = frozenset({Standing.LEFT_OVER, Standing.UNKNOWN})


@dataclass(frozen=True, slots=True)
class Judged:
    slice: OwnedSlice
    standing: Standing
    why: str

    @property
    def orphan(self) -> bool:
        return self.standing in ORPHANS


def judge(
    found: OwnedSlice, intents: Mapping[str, Intent], installation: str, now: float, grace: float = GRACE
) -> Judged:
    """intents: all that were ever recorded here, by their token (the slice's `intent` label)."""
    if found.installation != installation:
        return Judged(found, Standing.FOREIGN, f"it belongs to installation {found.installation or '(none)'}")
    if found.state is SliceState.ABSENT:
        return Judged(found, Standing.LEAVING, "it is gone already")
    intent = intents.get(found.intent)
    if intent is not None and intent.state not in FINAL:
        return Judged(found, Standing.TRACKED, f"wanted by '{found.cluster}'")
    if found.adopted:
        return Judged(found, Standing.ADOPTED, "it was adopted, and no record of it is open: end it by hand")
    # One that is being ended is asked again: it may be stuck there, with nobody left to ask.
    if intent is not None:
        words = "the record of it is closed" if intent.gone is not None else f"its record says {intent.state}"
        return Judged(found, Standing.LEFT_OVER, words)
    if now - found.created < grace:
        return Judged(found, Standing.YOUNG, f"no record of it, but it is only {now - found.created:.0f} s old")
    return Judged(found, Standing.UNKNOWN, "no record of it here")
