"""What the questions of `orch check gcp` are about."""

from __future__ import annotations

from orchestrator.catalog.accelerators import resolve
from orchestrator.catalog.machines import TpuSlice
from orchestrator.errors import UserError
from orchestrator.providers.checks import Ask


def tpu_of(ask: Ask) -> TpuSlice | None:
    """The slice asked for, None for none. Raises UserError for a name that is no TPU."""
    if not ask.accelerator:
        return None
    found = resolve(ask.accelerator)
    if not isinstance(found, TpuSlice):
        raise UserError(f"{ask.accelerator} is not a TPU", "of Google's machines, orch rents TPUs", "orch accelerators")
    return found
