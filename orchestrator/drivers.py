"""Names of the drivers and their modules: a new driver is a folder and one line here.

What a driver declares of itself is a `Driver` in the module `driver` of its folder, which loads nothing but this one.
So packages below `providers` use a driver by its name and by their own protocols, and never import it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

from orchestrator.errors import UserError

_MODULES = {
    "local": "orchestrator.providers.local",
    "hosts": "orchestrator.providers.hosts",
    "gcp": "orchestrator.providers.google",
    "aws": "orchestrator.providers.aws",
    "simulated": "orchestrator.simulator",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceNames:
    """How a cloud names its places.

    Attributes:
        region: Regular expression of a region's whole name.
        zone: Regular expression of a zone's whole name; its first group is the region.
        example: A place as `infra` writes it, provider/region/zone.
    """

    region: str
    zone: str
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Seconds after which a driver's machines count as failed, where they differ from the usual ones (plan/desired.py).

    Attributes:
        contact: From the provider's report that a host runs to its first answer over SSH; None for the usual.
        end: From the request to end machines to their absence; None for the usual.
    """

    contact: float | None = None
    end: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionFiles:
    """Files that give orch its permissions; the module `permission_files` makes them.

    Attributes:
        flag: The option of `orch check` that prints one.
        purposes: Its values.
        meaning: What it prints, for its help.
    """

    flag: str
    purposes: tuple[str, ...]
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOffer:
    """What `orch check` offers for a driver beside the checks of its module `check`.

    Attributes:
        answered: The check that shows that the provider answers.
        more: What can be checked then: options with their values, and the fields of providers/checks.Ask.
        counts: Whether it checks a number of machines and their market.
        files: Files that give orch its permissions; None for none.
    """

    answered: str
    more: tuple[tuple[str, str], ...]
    counts: bool = False
    files: PermissionFiles | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountGuide:
    """What a person types to use a driver's cloud for the first time.

    Attributes:
        logins: Commands that give this computer credentials, each with what it is for.
        bucket: The command that creates a bucket, with {name} and {region}.
        page: The page of the documentation that has them all.
    """

    logins: tuple[tuple[str, str], ...]
    bucket: str
    page: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """What a driver declares of itself.

    Attributes:
        name: As users write it, in `infra` and elsewhere.
        vendor: Who rents the machines out, in messages; "" where nothing is rented.
        rents: What they are, in messages, in the plural.
        spellings: Other names that users write for it.
        places: How it names places; None where any words are allowed.
        owned: Whether its machines are the user's own: nothing is rented there.
        offered: Whether users may name it; the driver of rehearsals is ours alone.
        state_folders: Folders below the state folder that show that it was used from here.
        place_option: The option that names an account or project, whose slices a sweep finds; "" for none.
        account_variable: The variable that chooses the credentials of another account; "" for none.
        account_prefixes: Beginnings of the environment variables that lead to its accounts.
        without_accounts: Variables that hide its accounts on this computer; {folder} stands for an empty folder.
        bucket_scheme: Of the buckets beside its machines, such as "s3"; "" for none.
        bucket_credentials: Variables that give a program credentials for them on machines without a role for them.
        bucket_login: Folder below a home that holds such credentials; "" for none.
        deadlines: How long its machines take.
        check: What `orch check` offers for it; None for nothing special.
        guide: How a person begins with it; None where nothing is needed.
    """

    name: str
    vendor: str = ""
    rents: str = ""
    spellings: tuple[str, ...] = ()
    places: PlaceNames | None = None
    owned: bool = False
    offered: bool = True
    state_folders: tuple[str, ...] = ()
    place_option: str = ""
    account_variable: str = ""
    account_prefixes: tuple[str, ...] = ()
    without_accounts: tuple[tuple[str, str], ...] = ()
    bucket_scheme: str = ""
    bucket_credentials: tuple[str, ...] = ()
    bucket_login: str = ""
    deadlines: Deadlines = field(default_factory=Deadlines)
    check: CheckOffer | None = None
    guide: AccountGuide | None = None


def list_driver_names() -> tuple[str, ...]:
    """Return the names of all drivers."""
    return tuple(_MODULES)


@cache
def list_drivers() -> tuple[Driver, ...]:
    """Return what all drivers declare."""
    return tuple(get_driver(name) for name in _MODULES)


@cache
def list_clouds() -> tuple[Driver, ...]:
    """Return the drivers that rent machines from a vendor."""
    return tuple(driver for driver in list_drivers() if driver.vendor)


@cache
def get_driver(name: str) -> Driver:
    """Return what a driver declares.

    Raises:
        UserError: The name is unknown.
    """
    return cast(Driver, load_part(name, "driver").DRIVER)


def name_vendor(name: str) -> str:
    """Return who rents machines out, for a sentence; the provider may be one that is not served."""
    return (get_driver(name).vendor if name in _MODULES else "") or "the provider"


@cache  # `import_module` is slow also where nothing is left to do
def load_part(name: str, part: str) -> Any:
    """Return a module of a driver's folder, such as its planner, complete also while another thread imports it.

    Raises:
        UserError: The name of the driver is unknown.
    """
    if name not in _MODULES:
        raise UserError(
            f"no provider called '{name}'",
            f"served now: {', '.join(_MODULES)}",
            "--infra local   takes the same shape here",
        )
    return import_module(f"{_MODULES[name]}.{part}")


@cache
def has_part(name: str, part: str) -> bool:
    """Return whether the folder of a known driver has a module."""
    return name in _MODULES and find_spec(f"{_MODULES[name]}.{part}") is not None
