"""What this computer has: accounts of clouds, own machines, and the folder of a program. Reads files, sends nothing.

No value of a credential is read: only whether there is one, and where.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.drivers import Driver, has_part, list_clouds, load_part
from orchestrator.messages import escape_controls, join_some, to_one_line
from orchestrator.providers.ssh_config_stamp import list_host_names
from orchestrator.setup_guide.folder import ProgramFolder, inspect_folder
from orchestrator.task.infra import HOSTS, LOCAL

_SLUG = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPlace:
    """A place where machines are, and how it is known.

    Attributes:
        infra: As a task file names it.
        title: What it is, in words.
        source: Where it was found, never with a value.
        accounts: Names of projects or profiles that are set up here.
    """

    infra: str
    title: str
    source: str
    accounts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the proposals are made from.

    Attributes:
        places: Those that were found; this computer comes last.
        folder: The folder of the user's program; None where there is none, as on the service's page.
        hosts: Names of own machines in ~/.ssh/config.
        home: Of the user.
        label: Letters and digits that are the user's own, for the name of a bucket.
        explains_logins: Whether the user can set up a cloud here.
    """

    places: tuple[FoundPlace, ...] = ()
    folder: ProgramFolder | None = None
    hosts: tuple[str, ...] = ()
    home: Path = Path("/")
    label: str = "mine"
    explains_logins: bool = True


def inspect_program(folder: str, home: Path) -> ProgramFolder:
    """Return what a folder holds, as `workdir` names it; a whole home folder is nothing to send."""
    path = Path(os.path.expanduser(folder))  # noqa: PTH111  # Path.expanduser raises for an unknown user
    found = inspect_folder(path, folder)
    return replace(found, holds_files=False, program="") if path.absolute() == home else found


def inspect_computer(environ: Mapping[str, str], home: Path, folder: str) -> Surroundings:
    """Return what this computer has.

    Args:
        environ: Its variables.
        home: The user's home folder.
        folder: The folder of their program.
    """
    hosts = list_host_names(home / ".ssh" / "config")
    return Surroundings(
        places=(*find_clouds(environ, home), *_find_own(hosts), THIS_PLACE),
        folder=inspect_program(folder, home),
        hosts=hosts,
        home=home,
        label=make_label(f"{_find_user()}@{socket.gethostname()}"),
    )


def find_clouds(environ: Mapping[str, str], home: Path) -> Iterator[FoundPlace]:
    """Yield the clouds for which this computer may have credentials, as far as their SDKs' files and variables say."""
    for driver in list_clouds():
        if not has_part(driver.name, "configured"):
            continue
        configured = load_part(driver.name, "configured")
        if source := str(configured.find_credentials(environ, home)):
            accounts: tuple[str, ...] = configured.list_accounts(environ, home)
            yield FoundPlace(
                infra=driver.name,
                title=f"{driver.vendor}: {driver.rents}",
                source=_describe_source(source.replace(f"{home}/", "~/"), accounts, driver.place_option),
                accounts=accounts,
            )


def describe_login(driver: Driver) -> tuple[str, ...]:
    """Return lines with what a person types to use a cloud for the first time, and where it is documented."""
    if driver.guide is None:
        return ()
    files = driver.check.files if driver.check is not None else None
    rows = [*driver.guide.logins]
    if files is not None:
        rows.append((f"orch check {driver.name} {files.flag} {files.purposes[0]}", "the least permissions for orch"))
    width = max(len(command) for command, _ in rows)
    head = f"{driver.vendor} ({driver.guide.page}, docs/iam/README.md):"
    return (head, *(f"  {command:<{width}}  {purpose}" for command, purpose in rows))


THIS_PLACE = FoundPlace(infra=LOCAL, title="this computer", source="nothing is rented, and nothing costs")


def _find_own(hosts: tuple[str, ...]) -> Iterator[FoundPlace]:
    if hosts:
        yield FoundPlace(infra=HOSTS, title="your own machines", source=f"~/.ssh/config names {join_some(hosts)}")


def _describe_source(source: str, accounts: tuple[str, ...], noun: str) -> str:
    names = f"; {noun}{'s' if len(accounts) > 1 else ''} {join_some(accounts)}" if accounts else ""
    return escape_controls(to_one_line(f"{source}{names}"))


def make_label(owner: str) -> str:
    """Return letters and digits for the name of a bucket, which no other owner's label has; `owner` is USER@PLACE."""
    digest = hashlib.sha256(owner.encode()).hexdigest()[:6]
    slug = _SLUG.sub("-", owner.partition("@")[0].lower()).strip("-")[:20].strip("-")
    return f"{slug or 'orch'}-{digest}"


def _find_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        return ""
