"""Refuse options of the command line that cannot apply to the machines that a cluster has already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.engine.preparation.prepared import PreparedCommand


def refuse_ineffective_options(ready: PreparedCommand, given: Mapping[str, object]) -> PreparedCommand:
    """Return the prepared command, refused if an option in `given` would have no effect."""
    from orchestrator.engine.preparation.cluster_match import option_mismatch
    from orchestrator.plan.desired import Run

    if ready.refusal() is not None or not isinstance(ready.desired, Run):
        return ready
    return replace(ready, refused=option_mismatch(ready.cluster, ready.recorded, ready.desired.candidates, given))
