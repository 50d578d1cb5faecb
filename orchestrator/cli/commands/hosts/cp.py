"""`orch cp`: copy files and folders to hosts and back, written CLUSTER:PATH or CLUSTER/RANK:PATH."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import write_stderr
from orchestrator.cli.execution.host_access import enter_hosts
from orchestrator.cli.parameters.clusters import CLUSTER
from orchestrator.client.host_records import open_host_records
from orchestrator.errors import (
    HostError,
    IdentityMismatch,
    NotFoundError,
    OrchError,
    SetupError,
    TakenOverError,
    UserError,
)
from orchestrator.formatting import format_size, parse_ranges
from orchestrator.messages import count_noun
from orchestrator.store.lookup import find_cluster, select_hosts

if TYPE_CHECKING:
    from orchestrator.hosts import HostAddress
    from orchestrator.remote.fleet import Fleet, FleetResult

_REMOTE = re.compile(r"(?P<cluster>[A-Za-z][A-Za-z0-9-]*)(?:/(?P<ranks>[0-9,-]+))?:(?P<path>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class RemotePath:
    """A path on hosts; a relative path starts at the home folder.

    Attributes:
        ranks: The hosts; None for all of them.
    """

    cluster: str
    ranks: tuple[int, ...] | None
    path: str


@dataclass(frozen=True, slots=True)
class LocalPath:
    """A path on this computer.

    Attributes:
        as_folder: It was written with a slash at its end.
    """

    path: Path
    as_folder: bool = False


Location: TypeAlias = RemotePath | LocalPath


class LocationType(click.ParamType[Location]):
    """A path on hosts or on this computer, as an argument."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Location:
        try:
            return parse_location(str(value))
        except ValueError as error:
            self.fail(f"{error}; write mine/0,3-5:PATH", param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        files = [CompletionItem(incomplete, type="file")]
        if "/" in incomplete or ":" in incomplete:
            return files
        return [CompletionItem(f"{item.value}:") for item in CLUSTER.shell_complete(ctx, param, incomplete)] or files


def parse_location(text: str) -> Location:
    """Parse `mine:out` or `mine/2:out` as a path on hosts, anything else as a path here; `./a:b` is a path here.

    Raises:
        ValueError: The hosts are not a list of ranks.
    """
    found = _REMOTE.fullmatch(text)
    if found is None:
        return LocalPath(Path(text), text.endswith("/"))
    ranks = parse_ranges(found["ranks"]) if found["ranks"] else None
    return RemotePath(found["cluster"], ranks, found["path"])


LOCATION = LocationType()


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch cp data.bin mine:", "to the home folder of every host"),
        ("orch cp ./config mine/0:work/config", "a folder, to the head"),
        ("orch cp mine:out/log.txt ./logs", "from every host: ./logs/head/log.txt, ./logs/worker1/log.txt, ..."),
        ("orch cp mine/2:out ./out", "from one host"),
    ],
)
@click.argument("source", metavar="SRC", type=LOCATION)
@click.argument("destination", metavar="DST", type=LOCATION)
@click.option("--links", is_flag=True, help="From hosts: also copy symbolic links that stay inside the folder.")
@click.option("--dry-run", is_flag=True, help="Print what would be copied; copy nothing.")
@click.option("-y", "--yes", is_flag=True, help="Download also what costs much: see docs/cost.md.")
@click.pass_context
def cp(ctx: click.Context, source: Location, destination: Location, links: bool, dry_run: bool, yes: bool) -> None:
    """Copy files or folders to hosts, or from them.

    Of a folder in a git work tree, files that git ignores are not copied. Names are kept; a destination that is a
    folder, or ends in /, takes the source into it. Hosts are not trusted: nothing is written outside the destination,
    and symbolic links on them are left out unless --links is given.
    """
    match source, destination:
        case LocalPath(), RemotePath():
            ctx.exit(_up(source.path, destination, dry_run))
        case RemotePath(), LocalPath():
            ctx.exit(_down(source, destination, links, dry_run, agreed=yes))
        case _:
            raise UserError(
                "one side must be on a cluster, the other on this computer",
                "orch does not copy from host to host",
                "orch cp FILE CLUSTER:PATH   or: orch cp CLUSTER:PATH FILE",
            )


def _up(source: Path, to: RemotePath, dry_run: bool) -> int:
    from orchestrator.cli.commands.hosts.upload import upload_tree
    from orchestrator.remote.tree import read_tree

    tree = read_tree(source.expanduser())
    hosts = _hosts(to, connects=not dry_run)
    files = f"{count_noun(len(tree.files), 'file')}, {format_size(tree.total_bytes)}"
    what = f"{files} to {to.path or '~/'} on {_named(hosts)}"
    if dry_run:
        write_stderr(f"would copy {what}; nothing was done")
        return 0
    from orchestrator.cli.drawing.narrator import TerminalNarrator
    from orchestrator.engine.state.pins import open_pins
    from orchestrator.remote.fleet import Fleet

    with TerminalNarrator(sys.stderr) as narrator, open_pins(narrator.note) as pins, Fleet(hosts, pins=pins) as fleet:
        result = upload_tree(
            fleet,
            tree,
            source.resolve().name,
            to.path,
            lambda done, total: narrator.progress(f"cp {source}", done, total),
        )
    return _print_result(to.cluster, result, f"copied {what}")


def _down(source: RemotePath, here: LocalPath, links: bool, dry_run: bool, *, agreed: bool) -> int:
    hosts, to = _hosts(source, connects=not dry_run), here.path
    what = f"{source.path or '~/'} of {_named(hosts)} to {to}"
    if dry_run:
        write_stderr(f"would copy {what}; nothing was done")
        return 0
    from orchestrator.engine.state.pins import open_pins
    from orchestrator.remote.files import fetch_tree, top_name
    from orchestrator.remote.fleet import Fleet

    left_out: list[str] = []

    def leave_out(host: HostAddress, name: str) -> None:
        left_out.append(f"{host.label}:{name}")

    skip_link = None if links else leave_out
    path = source.path or "."
    with open_pins(write_stderr) as pins, Fleet(hosts, pins=pins) as fleet:
        _agree_to_cost(fleet, source.cluster, path, agreed=agreed)
        if len(hosts) == 1 and not to.is_dir() and not here.as_folder and top_name(path):
            result = _fetch_as(fleet, path, to, skip_link)
        else:
            several = len(hosts) > 1
            folders = {host.rank: to / host.label if several else to for host in hosts}
            new = [folder for folder in (*dict.fromkeys(folders.values()), to) if not folder.exists()]
            result = fetch_tree(fleet, path, lambda host: folders[host.rank], skip_link=skip_link)
            if not result.ok:
                _remove_empty(new)
    if left_out:
        more = f" and {len(left_out) - 1} more" if len(left_out) > 1 else ""
        write_stderr(f"left out, as a symbolic link: {left_out[0]}{more}; --links copies those that stay inside")
    return _print_result(source.cluster, result, f"copied {what}")


def _agree_to_cost(fleet: Fleet, cluster: str, path: str, *, agreed: bool) -> None:
    """Show what the download costs where a cloud charges for it, and ask where it is much.

    Raises:
        UserError: There is no terminal to ask on.
        OrchError: The user does not agree, or a host does not answer.
    """
    from orchestrator.cli.execution.transfer_consent import agree_to_transfers
    from orchestrator.engine.operations.transfers import assess_host_download, is_download_paid
    from orchestrator.remote.files import measure_tree

    with open_host_records(cluster) as store:
        slices = store.intents(find_cluster(store, cluster))
    if not slices or not is_download_paid(place := slices[-1].candidate):
        return
    result, size = measure_tree(fleet, path)
    if not result.ok:
        raise _failure(cluster, result)
    agree_to_transfers(assess_host_download(cluster, place, size), agreed=agreed)


def _remove_empty(folders: list[Path]) -> None:
    """Remove the folders of hosts that sent nothing."""
    for folder in folders:
        with suppress(OSError):  # something is in it, or it was never made
            folder.rmdir()


def _fetch_as(fleet: Fleet, path: str, to: Path, skip_link: Callable[[HostAddress, str], None] | None) -> FleetResult:
    """Download into a folder beside `to`, then rename: `to` appears complete or not at all."""
    import tempfile

    from orchestrator.remote.files import fetch_tree, top_name

    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".orch-cp-", dir=to.parent) as folder:
        result = fetch_tree(fleet, path, lambda _host: Path(folder), skip_link=skip_link)
        if result.ok:
            (Path(folder) / top_name(path)).replace(to)
    return result


def _hosts(place: RemotePath, *, connects: bool) -> tuple[HostAddress, ...]:
    with open_host_records(place.cluster) as store:
        record = find_cluster(store, place.cluster)
        return enter_hosts(store, record, place.ranks) if connects else select_hosts(record, place.ranks)


def _named(hosts: tuple[HostAddress, ...]) -> str:
    from orchestrator.plan.ranks import format_hosts

    return format_hosts(host.rank for host in hosts)


def _print_result(cluster: str, result: FleetResult, done: str) -> int:
    """Print what was copied; else print a table of the failed hosts and raise an error."""
    if result.ok:
        write_stderr(done)
        return 0
    from orchestrator.cli.drawing.outcomes import failed_host_table
    from orchestrator.plan.ranks import format_hosts

    write_stderr(*failed_host_table(result.failed))
    if fine := [host.outcome.rank for host in result.hosts if host.outcome.ok]:
        write_stderr(f"{format_hosts(fine)}: copied")
    raise _failure(cluster, result)


def _failure(cluster: str, result: FleetResult) -> OrchError:
    """Return the error of a copy. Raises OrchError where the folder of a host is of another version."""
    from orchestrator.hosts import Failure
    from orchestrator.plan.host_version import raise_other_version

    failed = result.failed
    raise_other_version(cluster, failed)
    message = f"the copy failed on {count_noun(len(failed), 'host')}"
    if wrong := [outcome for outcome in failed if outcome.failure is Failure.IDENTITY]:
        return IdentityMismatch(message, wrong[0].detail, wrong[0].remedy or "orch status --refresh")
    if taken := [outcome for outcome in failed if outcome.failure is Failure.TAKEN_OVER]:
        return TakenOverError(message, f"its hosts were {taken[0].detail}", "orch status --refresh   records it")
    if any(outcome.failure is not None for outcome in failed):
        return HostError(message, failed[0].detail, "orch status --refresh")
    if all(outcome.last_line.endswith(" does not exist") for outcome in failed):
        return NotFoundError(message, failed[0].last_line, "name hosts that have it: orch cp CLUSTER/0,2:PATH ...")
    return SetupError(message, failed[0].last_line, "fix that, then run the same command again")
