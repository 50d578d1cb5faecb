"""Fronts: servers that speak the protocol of a cloud's vendor over a simulated cloud.

They are no part of orch: another distribution provides them as entry points of the group `orch.fronts`, each with the
name of its cloud. Only `orch simulate` loads one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol, cast

from orchestrator.errors import UserError

GROUP = "orch.fronts"
_INSTALL = "in a checkout of orch: scripts/bootstrap   or: pip install --no-deps ./tests/fronts"


class Front(Protocol):
    """A running front."""

    @property
    def env(self) -> Mapping[str, str]:
        """The environment variables that lead orch, its hosts' programs and the vendor's tools to it."""
        ...


OpenFront = Callable[[Path], AbstractContextManager[Front]]
"""Starts a front whose caller has all permissions; the cloud's state is in the given folder."""


def load_front(cloud: str) -> OpenFront:
    """Return what starts the front of a cloud.

    Raises:
        UserError: No installed distribution provides it, or it cannot be imported.
    """
    found = next(iter(entry_points(group=GROUP, name=cloud)), None)
    if found is None:
        why = "the servers of the simulated clouds (distribution orch-fronts) are not installed"
        raise UserError(f"orch simulate {cloud} is not available", why, _INSTALL)
    try:
        loaded: Any = found.load()
    except ImportError as error:
        raise UserError(f"orch simulate {cloud} is not available", f"{found.value}: {error}", _INSTALL) from error
    return cast(OpenFront, loaded)
