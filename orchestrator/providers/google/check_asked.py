"""What the questions of `orch check gcp` are about."""

from __future__ import annotations

from orchestrator.catalog.machines import ComputeType, TpuSlice
from orchestrator.errors import UserError
from orchestrator.providers.checks import Ask
from orchestrator.providers.google.rented import find_rented


def machine_of(ask: Ask) -> TpuSlice | ComputeType | None:
    """Return the machine asked for, None for none. Raises UserError for a name that is not a machine of Google."""
    if not ask.accelerator:
        return None
    found = find_rented(ask.accelerator)
    if found is None:
        why = "orch rents TPU slices and the families e2, n2, g2 and a2 from it"
        raise UserError(f"{ask.accelerator} is not a machine of Google", why, "orch accelerators")
    return found


def needs_tpu_api(ask: Ask) -> bool:
    """Return whether the question is not about a machine without TPUs. Raises UserError."""
    return not isinstance(machine_of(ask), ComputeType)
