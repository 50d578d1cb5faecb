"""Names of providers and their modules. A new provider is a folder and one line here."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import cast

from orchestrator.clock import RealClock, ServerClock
from orchestrator.errors import UserError
from orchestrator.providers.protocol import Planner, Provider
from orchestrator.providers.records import FolderRecords, RecordSource

_MODULES = {
    "local": "orchestrator.providers.local",
    "hosts": "orchestrator.providers.hosts",
    "gcp": "orchestrator.providers.google",
    "aws": "orchestrator.providers.aws",
    "simulated": "orchestrator.simulator",
}


# Folders below the state folder that say that a provider was used from here.
_FOLDERS = {"gcp": ("google", "google-compute"), "aws": ("aws",), "simulated": ("simulated",)}
_WITH_CREDENTIALS = ("gcp", "aws")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rented:
    """A provider that may have machines of ours.

    Attributes:
        included: Whether it has to be asked.
        why: Why it has to be, or need not be.
    """

    provider: str
    included: bool
    why: str


def names() -> tuple[str, ...]:
    return tuple(_MODULES)


def list_rented_providers(
    state: Path, recorded: Container[str], environ: Mapping[str, str], home: Path
) -> tuple[Rented, ...]:
    """Return every provider that may have machines left over, and whether it has to be asked. Sends nothing.

    A cloud has to be asked if it was ever used from here, or if this computer has credentials of it: after the loss of
    the state folder only these are left.

    Args:
        state: The folder of this installation.
        recorded: The providers of all intents on record.
        environ: The environment variables.
        home: The user's home folder.
    """
    found = [Rented(provider="local", included=True, why="this computer")]
    for name, folders in _FOLDERS.items():
        used = name in recorded or any((state / folder).is_dir() for folder in folders)
        credentials = ""
        if name in _WITH_CREDENTIALS:
            credentials = str(_module(name, "configured").find_credentials(environ, home))
        if used or credentials:
            found.append(Rented(provider=name, included=True, why="used from here" if used else credentials))
        elif name in _WITH_CREDENTIALS:
            why = "never used from here, and there are no credentials"
            found.append(Rented(provider=name, included=False, why=why))
    return tuple(found)


def load_planner(name: str) -> Planner:
    """Return the pure half of a provider; loads no SDK.

    Raises:
        UserError: The name is unknown.
    """
    return cast(Planner, _module(name, "planner").PLANNER)


def open_provider(
    name: str, state: Path, clock: ServerClock | None = None, records: RecordSource = FolderRecords
) -> Provider:
    """Return the half that does I/O.

    Args:
        name: The provider.
        state: The folder of this installation.
        clock: Gives the time, and learns it from the provider's answers; default: this computer's.
        records: Where the provider keeps its records.
    """
    return cast(Provider, _module(name, "provider").open_provider(state, clock or RealClock(), records))


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
