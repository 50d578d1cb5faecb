"""Which computer this is: an id in the state folder, made once, and made again for a copy on another machine."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from orchestrator.cloud_access import digest_account_choice
from orchestrator.errors import OrchError
from orchestrator.private_files import make_private_folder, write_whole

FILE = "computer.json"
_MACHINE_ID = Path("/etc/machine-id")  # machine-id(5): the same over reboots; empty or absent in most containers


@dataclass(frozen=True, slots=True, kw_only=True)
class Computer:
    """A state folder on a computer.

    Attributes:
        id: Random, in the state folder.
        host: The computer's name when the id was made.
        machine: What /etc/machine-id said then.
    """

    id: str
    host: str
    machine: str = ""


def read_computer(state: Path) -> Computer:
    """Return this computer's identity. A folder that was copied to another machine gets another one.

    Raises:
        OrchError: The file cannot be read or written.
    """
    path = state / FILE
    try:
        found = _read(path)
        if found is not None and found.machine == read_machine():
            return found
        make_private_folder(state)
        new = Computer(id=os.urandom(6).hex(), host=os.uname().nodename, machine=read_machine())
        if found is not None:
            write_whole(path, json.dumps(asdict(new)))
            return new
        return _write_first(path, new)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OrchError("this computer's id cannot be read or made", str(error), f"see {path}") from error


def read_member() -> str:
    """Return who runs this command, as the operating system calls them."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return str(os.getuid())


def identify_place(state: Path) -> str:
    """Return a text that differs between computers, people and state folders; the same for each command of one."""
    return "\0".join((read_machine(), os.uname().nodename, read_member(), str(state.absolute())))


def _write_first(path: Path, new: Computer) -> Computer:
    """Write the file unless another process has: both must agree on one id."""
    temporary = path.with_name(f".{FILE}.{new.id}")
    write_whole(temporary, json.dumps(asdict(new)))
    try:
        os.link(temporary, path)
    except FileExistsError:
        return _read(path) or new
    finally:
        temporary.unlink()
    return new


def _read(path: Path) -> Computer | None:
    try:
        fields = cast(dict[str, Any], json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    return Computer(id=str(fields["id"]), host=str(fields["host"]), machine=str(fields["machine"]))


def name_engine(environ: Mapping[str, str]) -> str:
    """Return what an unattended engine of this process is called: one is enough for a user of a computer.

    An engine acts with the credentials that it was started with, so commands that choose others have another one.
    """
    chosen = digest_account_choice(environ)
    return "/".join([os.uname().nodename, read_member(), *([chosen] if chosen else [])])


def read_machine() -> str:
    """Return what identifies this machine over its starts; "" where nothing does, as in most containers."""
    with suppress(OSError):
        return _MACHINE_ID.read_text(encoding="ascii", errors="replace").strip()
    return ""
