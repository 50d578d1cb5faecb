"""Names of providers and their modules. A new provider is a folder and one line here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import cast

from orchestrator.clock import RealClock, ServerClock
from orchestrator.errors import UserError
from orchestrator.providers.protocol import Planner, Provider

_MODULES = {
    "local": "orchestrator.providers.local",
    "hosts": "orchestrator.providers.hosts",
    "gcp": "orchestrator.providers.google",
    "aws": "orchestrator.providers.aws",
    "simulated": "orchestrator.simulator",
}


# Where the records of those are that are asked only if they were used from here: folders below the state folder.
_FOLDERS = {"gcp": ("google", "google-compute"), "aws": ("aws",), "simulated": ("simulated",)}


def names() -> tuple[str, ...]:
    return tuple(_MODULES)


def list_rented_providers(state: Path) -> tuple[str, ...]:
    """Return the providers that may have machines left over: those that rent, and were used from here.

    A provider that was never used from here is not asked, because it would need credentials that may not exist.
    """
    used = {name: any((state / folder).is_dir() for folder in folders) for name, folders in _FOLDERS.items()}
    return tuple(name for name in _MODULES if name != "hosts" and used.get(name, True))


def load_planner(name: str) -> Planner:
    """Return the pure half of a provider; loads no SDK.

    Raises:
        UserError: The name is unknown.
    """
    return cast(Planner, _module(name, "planner").PLANNER)


def open_provider(name: str, state: Path, clock: ServerClock | None = None) -> Provider:
    """Return the half that does I/O.

    Args:
        name: The provider.
        state: The folder of this installation.
        clock: Gives the time, and learns it from the provider's answers; default: this computer's.
    """
    return cast(Provider, _module(name, "provider").open_provider(state, clock or RealClock()))


class Planners(Mapping[str, Planner]):
    """Every provider's planner by name, each loaded when it is first needed."""

    def __getitem__(self, name: str) -> Planner:
        if name not in _MODULES:
            raise KeyError(name)
        return load_planner(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


def _module(name: str, part: str):  # type: ignore[no-untyped-def]  # a module has no useful static type
    if name not in _MODULES:
        raise UserError(
            f"no provider called '{name}'",
            f"served now: {', '.join(_MODULES)}",
            "--infra local   takes the same shape here",
        )
    return import_module(f"{_MODULES[name]}.{part}")
