"""orch: provision accelerators, set them up, train, resume, and preview all of it first.

For programs: `Client`, a client of the service (docs/service.md), and `OrchError`, the base of all errors. The same
calls without a server: `orchestrator.service.in_process`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.client.http import Client
    from orchestrator.errors import OrchError

__version__ = "0.2.0"
__all__ = ["Client", "OrchError", "__version__"]
_PLACES = {"Client": "orchestrator.client.http", "OrchError": "orchestrator.errors"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: commands import this package, and must start fast."""
    from importlib import import_module

    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
