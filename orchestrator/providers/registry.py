"""Both halves of a provider by its name; the names are in orchestrator/drivers.py."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from orchestrator.clock import RealClock, ServerClock
from orchestrator.drivers import has_part, list_driver_names, list_drivers, load_part
from orchestrator.providers.protocol import Planner, Provider
from orchestrator.providers.records import FolderRecords, RecordSource


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
    for driver in list_drivers():
        if driver.owned:
            continue
        may_have_credentials = has_part(driver.name, "configured")
        used = driver.name in recorded or any((state / folder).is_dir() for folder in driver.state_folders)
        credentials = ""
        if may_have_credentials:
            credentials = str(load_part(driver.name, "configured").find_credentials(environ, home))
        if used or credentials:
            found.append(Rented(provider=driver.name, included=True, why="used from here" if used else credentials))
        elif may_have_credentials:
            why = "never used from here, and there are no credentials"
            found.append(Rented(provider=driver.name, included=False, why=why))
    return tuple(found)


def load_planner(name: str) -> Planner:
    """Return the pure half of a provider; loads no SDK.

    Raises:
        UserError: The name is unknown.
    """
    return cast(Planner, load_part(name, "planner").PLANNER)


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
    return cast(Provider, load_part(name, "provider").open_provider(state, clock or RealClock(), records))


class Planners(Mapping[str, Planner]):
    """Every provider's planner by name, each loaded when it is first needed."""

    def __getitem__(self, name: str) -> Planner:
        if name not in list_driver_names():
            raise KeyError(name)
        return load_planner(name)

    def __iter__(self) -> Iterator[str]:
        return iter(list_driver_names())

    def __len__(self) -> int:
        return len(list_driver_names())
