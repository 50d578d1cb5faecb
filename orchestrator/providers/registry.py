"""Provider names and where they live. A new provider is a folder and one line here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import cast

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


def rented(state: Path) -> tuple[str, ...]:
    """Providers whose machines can be left over: not the user's own, and of the others those that were used from here.

    A provider that was never used from here is not asked: it would want credentials that need not exist.
    """
    used = {name: any((state / folder).is_dir() for folder in folders) for name, folders in _FOLDERS.items()}
    return tuple(name for name in _MODULES if name != "hosts" and used.get(name, True))


def planner(name: str) -> Planner:
    """The pure half; loads no SDK. Raises UserError for a name that is not served."""
    return cast(Planner, _module(name, "planner").PLANNER)


def open_provider(name: str, state: Path) -> Provider:
    """The half that does I/O. `state` is the folder where orch keeps its own state."""
    return cast(Provider, _module(name, "provider").open_provider(state))


class Planners(Mapping[str, Planner]):
    """Every provider's planner by name, each loaded when it is asked for."""

    def __getitem__(self, name: str) -> Planner:
        if name not in _MODULES:
            raise KeyError(name)
        return planner(name)

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
