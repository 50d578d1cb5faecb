"""How far a notification channel is. Needs the standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Kinds of events that change no row, and of which there are notifications.
CONDITION = "condition"  # once for each cause: Ledger.record_condition
ENGINE = "engine"  # what an unattended engine reports


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelRecord:
    """One row of notification_channels.

    Attributes:
        seq: the newest event that was delivered, or has nothing to deliver.
        delivered: when the last message was delivered, in epoch seconds; None for never.
        problem: why the last try failed; "" after a delivery.
    """

    name: str
    seq: int
    delivered: float | None
    problem: str


def channel_from_row(row: Mapping[Any, Any]) -> ChannelRecord:
    """Return the record of a row."""
    return ChannelRecord(name=row["name"], seq=row["seq"], delivered=row["delivered"], problem=row["problem"])
