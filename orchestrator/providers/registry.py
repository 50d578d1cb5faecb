"""Provider names and where they live. A new provider is a folder and one line here."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import cast

from orchestrator.errors import UserError
from orchestrator.providers.protocol import Planner, Provider

_MODULES = {
    "local": "orchestrator.providers.local",
    "hosts": "orchestrator.providers.hosts",
}


def names() -> tuple[str, ...]:
    return tuple(_MODULES)


def planner(name: str) -> Planner:
    """The pure half; loads no SDK. Raises UserError for a name that is not served."""
    return cast(Planner, _module(name, "planner").PLANNER)


def open_provider(name: str, state: Path) -> Provider:
    """The half that does I/O. `state` is the folder where orch keeps its own state."""
    return cast(Provider, _module(name, "provider").open_provider(state))


def _module(name: str, part: str):  # type: ignore[no-untyped-def]  # a module has no useful static type
    if name not in _MODULES:
        raise UserError(
            f"no provider called '{name}'",
            f"served now: {', '.join(_MODULES)}",
            "--infra local   takes the same shape here",
        )
    return import_module(f"{_MODULES[name]}.{part}")
