"""What own requests say of capacity, as the store of this installation has recorded them."""

from __future__ import annotations

import time
from collections.abc import Mapping

from orchestrator.acting import find_acting_member
from orchestrator.documents.capacity import find_capacity
from orchestrator.engine.state.recorded import open_reader
from orchestrator.offers.capacity import CapacityFigures, CapacityKey


def read_own_capacity(
    project: str, now: float | None = None, *, alone: bool = False
) -> Mapping[CapacityKey, CapacityFigures]:
    """Return what own requests say of capacity; nothing for a store without events.

    For a member of a service those of the project alone count, because a plan shows them and members may be of one.

    Args:
        project: Of the cluster; "" for that of the environment.
        now: Epoch seconds; None for the time of this computer.
        alone: Whether those of the project alone count also where no member asks: an engine drives the runs of all
            projects, and writes what it finds where members of this one read it.
    """
    with open_reader(project, alone=alone or bool(find_acting_member())) as reader:
        return find_capacity(reader, time.time() if now is None else now)
