"""Names that the driver of Compute Engine imports from here."""

from __future__ import annotations

from orchestrator.providers.core.driver import SETTLE_SECONDS
from orchestrator.providers.google.host_keys import KEY_PATIENCE

__all__ = ["KEY_PATIENCE", "SETTLE_SECONDS"]
