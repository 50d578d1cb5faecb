"""`orch ssh-config`: aliases of hosts for a person's own ssh, scp, rsync and editors."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import can_ask, write_stderr, write_stdout
from orchestrator.cli.execution.host_access import enter_hosts
from orchestrator.cli.execution.host_ssh import write_pinned_keys
from orchestrator.cli.execution.served_commands import refuse_option
from orchestrator.cli.parameters.clusters import CLUSTER, CLUSTER_NAME
from orchestrator.client.host_records import open_host_records
from orchestrator.client.local import open_own_reader
from orchestrator.errors import CloudError, OrchError, UserError
from orchestrator.messages import count_noun, escape_controls
from orchestrator.store.lookup import find_cluster, select_hosts

if TYPE_CHECKING:  # the help of a command needs none of these
    from orchestrator.engine.state.ssh_aliases import Alias
    from orchestrator.store.read import Reader
    from orchestrator.store.records import ClusterRecord

_AT_ONCE = 8  # a person's own machines that are connected to, since each may take seconds to be found absent


@click.command(
    "ssh-config",
    cls=OrchCommand,
    examples=[
        ("orch ssh-config mine", "the entries of the hosts of 'mine', for ~/.ssh/config"),
        ("orch ssh-config --write", "a file with all hosts that ~/.ssh/config includes; orch keeps it up to date"),
        ("ssh mine-1 nvidia-smi", "then: host 1 of 'mine'; also scp, rsync, and editors with remote folders"),
    ],
)
@click.argument("clusters", type=CLUSTER, nargs=-1)
@click.option("--write", is_flag=True, help="Write all of them to a file of orch, and ask to include it in yours.")
@click.option(
    "-y", "--yes", is_flag=True, help="With --write: add the Include line to ~/.ssh/config without a question."
)
def ssh_config(clusters: tuple[str, ...], write: bool, yes: bool) -> None:
    """Print entries for ~/.ssh/config, by which ssh reaches the hosts as `orch ssh` does.

    The head of 'mine' is `mine` and `mine-0`, its next host `mine-1`.
    """
    if write and clusters:
        raise UserError("--write takes no names", "the file has the hosts of all clusters", "orch ssh-config --write")
    if write:
        why = "orch keeps that file up to date by the store of this computer"
        refuse_option("ssh-config", "--write", why, os.environ, "orch ssh-config > FILE   for an Include line")
    if yes and not write:
        raise UserError("--yes is an answer to the question of --write", next_step="orch ssh-config --write --yes")
    if write:
        with open_own_reader() as store:
            _write(store, yes=yes)
        return
    with open_host_records() as store:
        _print(store, clusters)


def _print(store: Reader, clusters: Sequence[str]) -> None:
    from orchestrator.engine.state.ssh_aliases import format_ssh_config, list_aliases

    records = [find_cluster(store, name) for name in clusters]
    for record in records:
        select_hosts(record)  # refuses a cluster without hosts
    uids = {record.uid for record in records or store.clusters() if records or record.project == store.project}
    every = store.clusters()
    known = tuple(_enter(store, record, named=bool(clusters)) if record.uid in uids else record for record in every)
    aliases = [alias for alias in list_aliases(known) if alias.cluster in uids]
    if not aliases:
        write_stderr("no cluster has hosts now; orch launch --help shows how to begin")
        return
    _write_keys(aliases)
    write_stdout(*format_ssh_config(aliases).rstrip("\n").split("\n"))


def _enter(store: Reader, record: ClusterRecord, *, named: bool) -> ClusterRecord:
    """Return a cluster with hosts, which a service lets this computer into; without hosts where it may not enter.

    Raises:
        OrchError: A named one may not be entered.
    """
    try:
        for name in (record.name, record.project):
            if CLUSTER_NAME.fullmatch(name) is None:  # a line of it would be one of the configuration
                raise CloudError(f"the service names a cluster {name[:60]!r}", "that is not a name", "ask who runs it")
        return replace(record, hosts=enter_hosts(store, record, connects=False) if record.hosts else ())
    except OrchError as error:
        if named:
            raise
        write_stderr(escape_controls(f"note: '{record.name}' is left out: {error}"))
        return replace(record, hosts=())


def _write(store: Reader, *, yes: bool) -> None:
    from orchestrator.engine.state.ssh_aliases import list_aliases, write_aliases
    from orchestrator.paths import load_paths
    from orchestrator.private_files import make_private_folder

    paths, records = load_paths(), store.clusters()
    aliases = list_aliases(records)
    _write_keys(aliases)
    for record in records:
        if record.hosts:
            try:
                enter_hosts(store, record)
            except OrchError as error:
                write_stderr(f"note: '{record.name}' may refuse this computer: {error}")
    make_private_folder(paths.state)
    write_aliases(paths, store)
    write_stderr(f"wrote {count_noun(len(aliases), 'host')} to {paths.ssh_aliases}")
    _include(paths.ssh_aliases, aliases, yes=yes)


def _write_keys(aliases: Sequence[Alias]) -> None:
    """Write the keys of hosts where ssh reads them, as `orch ssh` does before it connects."""
    hosts = [alias.host for alias in aliases]
    write_pinned_keys(hosts)
    own = [host for host in hosts if any(hop.own is not None for hop in host.hops)]
    if not own:
        return
    from concurrent.futures import ThreadPoolExecutor

    from orchestrator.engine.state.pins import write_keys_for_ssh

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        tries = [(host, pool.submit(write_keys_for_ssh, host, write_stderr)) for host in own]
    for host, tried in tries:
        error = tried.exception()
        if isinstance(error, OrchError):
            write_stderr(f"note: ssh will refuse {host.user}@{host.host}: {error}")
        elif error is not None:
            raise error


def _include(file: Path, aliases: Iterable[Alias], *, yes: bool) -> None:
    """Show the line that includes the file, and add it to the person's configuration if they agree."""
    config = Path.home() / ".ssh" / "config"
    text = config.read_text(encoding="utf-8", errors="surrogateescape") if config.exists() else ""
    line = f'Include "{file}"'
    for name in sorted({name for alias in aliases for name in alias.names} & _list_hosts(text)):
        write_stderr(f"note: ~/.ssh/config already has a host '{name}'; orch's comes first")
    if _includes(text, file):
        return
    write_stderr("for ssh to read it, ~/.ssh/config needs this line above its first Host:", f"  {line}")
    if not yes and not (can_ask() and click.confirm("add it?", default=False, err=True)):
        return
    from orchestrator.private_files import make_private_folder

    make_private_folder(config.parent)
    _prepend(config.resolve(), line, text)  # it may be a link to a repository of settings
    write_stderr(f"added to {config}")


def _prepend(config: Path, line: str, text: str) -> None:
    mode = config.stat().st_mode & 0o777 if config.exists() else 0o600
    temporary = config.with_name(f".{config.name}.orch-{os.getpid()}")
    try:
        temporary.write_text(f"{line}\n\n{text}", encoding="utf-8", errors="surrogateescape")
        temporary.chmod(mode)
        temporary.replace(config)
    finally:
        temporary.unlink(missing_ok=True)


def _words(text: str) -> Iterable[list[str]]:
    """Yield the lines of a configuration as words, the keyword in lower case; ssh_config(5) allows `Key=Value`."""
    for line in text.splitlines():
        keyword, _, rest = line.strip().replace("=", " ", 1).partition(" ")
        try:
            yield [keyword.lower(), *shlex.split(rest, comments=True)]
        except ValueError:  # a quote without its other half: ssh refuses it
            continue


def _includes(text: str, file: Path) -> bool:
    """Return whether a configuration includes the file for every host."""
    for keyword, *words in _words(text):
        if keyword in ("host", "match"):
            return False
        if keyword == "include" and str(file) in [str(Path(word).expanduser()) for word in words]:
            return True
    return False


def _list_hosts(text: str) -> set[str]:
    return {word for keyword, *words in _words(text) if keyword == "host" for word in words}
