"""Aliases of clusters' hosts for a person's own ssh: a file that their ~/.ssh/config includes.

`orch ssh-config --write` makes the file. From then on whoever learns new addresses of hosts writes it again, so that
`ssh mine`, rsync and editors reach the hosts of today.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from orchestrator.errors import UserError
from orchestrator.hosts import HostAddress, list_ssh_options
from orchestrator.paths import Paths
from orchestrator.private_files import write_whole
from orchestrator.project import DEFAULT_PROJECT
from orchestrator.store.records import ClusterRecord

HEAD = (
    "# The hosts of orch's clusters. `orch ssh-config --write` made this file, and orch keeps it up to date:\n"
    "# changes in it are lost.\n"
)
_CONTROL, _BLANK = re.compile(r"[\x00-\x1f\x7f]"), re.compile(r"[\x00-\x20\x7f\"']")
_PATTERN = re.compile(r"^-|[^A-Za-z0-9._-]")  # what is not one plain name of `Host`
_WORDS = frozenset({"HostName", "User", "HostKeyAlias"})


class HasClusters(Protocol):
    """A store, or a reader of it."""

    def clusters(self) -> tuple[ClusterRecord, ...]:
        """Return all existing clusters, of all projects."""
        ...


@dataclass(frozen=True, slots=True)
class Alias:
    """The names of one host in a person's ssh configuration: of a head two, `mine` and `mine-0`.

    Attributes:
        cluster: Uid of its cluster.
    """

    names: tuple[str, ...]
    cluster: str
    host: HostAddress


def list_aliases(records: Iterable[ClusterRecord]) -> tuple[Alias, ...]:
    """Return the hosts of clusters under names that are unique.

    A cluster outside of the default project is called `PROJECT.NAME`, too. Its name alone is left to one of the default
    project, or to none where two projects have it. `mine-1` is the cluster of that name, where there is one.
    """
    known = [record for record in records if record.hosts]
    stems = _name_clusters(known)
    taken = {name for names in stems.values() for name in names}
    found: list[Alias] = []
    for record in known:
        for host in record.hosts:
            numbered = [name for stem in stems[record.uid] if (name := f"{stem}-{host.rank}") not in taken]
            taken.update(numbered)
            names = (*(stems[record.uid] if host.rank == 0 else ()), *numbered)
            found.append(Alias(names, record.uid, host))
    return tuple(alias for alias in found if alias.names)


def _name_clusters(records: Sequence[ClusterRecord]) -> dict[str, tuple[str, ...]]:
    """Return the names of each cluster by its uid."""
    counts = Counter(record.name for record in records)
    default = {record.name for record in records if record.project == DEFAULT_PROJECT}
    found: dict[str, tuple[str, ...]] = {}
    for record in records:
        if record.project == DEFAULT_PROJECT:
            found[record.uid] = (record.name,)
        else:
            short = counts[record.name] == 1 and record.name not in default
            found[record.uid] = (*([record.name] if short else []), f"{record.project}.{record.name}")
    return found


def format_ssh_config(aliases: Iterable[Alias]) -> str:
    """Return the entries of ssh_config(5) with the options by which `orch ssh` connects."""
    return "\n".join(_format_host(alias) for alias in aliases)


def _format_host(alias: Alias) -> str:
    host = alias.host
    options = list_ssh_options(host, strict=any(hop.own is not None for hop in host.hops))
    if not host.proxy and host.jump is None:  # ProxyJump of a person's `Host *` has no effect behind it: ssh_config(5)
        options.append(("ProxyCommand", "none"))
    lines = [("HostName", host.host), ("Port", str(host.port)), ("User", host.user), *options]
    for name, value in [*(("Host", one) for one in alias.names), *lines]:
        _check_value(name, value)
    return f"Host {' '.join(alias.names)}\n" + "".join(f"    {name} {value}\n" for name, value in lines)


def _check_value(name: str, value: str) -> None:
    """Refuse a value of which ssh would read more than one: addresses and names come from clouds and services.

    Raises:
        UserError: It has a control character, or a blank where ssh takes one word.
    """
    unsafe = _PATTERN if name == "Host" else _BLANK if name in _WORDS else _CONTROL
    if not value or unsafe.search(value):
        what = f"{name} {value[:60]!r} is not written to a configuration of ssh"
        raise UserError(what, "ssh would read more than one value", "orch status   shows whose it is")


def write_aliases(paths: Paths, store: HasClusters) -> None:
    """Write the file.

    Raises:
        OSError: It cannot be written.
        UserError: An address is none.
    """
    text = HEAD + "\n" + format_ssh_config(list_aliases(store.clusters()))
    file = paths.ssh_aliases
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        write_whole(file, text)


def keep_aliases_current(paths: Paths, store: HasClusters) -> None:
    """Write the file again where a person uses it. What cannot be written changes no cluster, and is left."""
    if paths.ssh_aliases.exists():
        with contextlib.suppress(OSError, UserError):
            write_aliases(paths, store)
