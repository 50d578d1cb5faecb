"""`orch cp`: files and folders to hosts and back. A host's side is written CLUSTER:PATH or CLUSTER/RANK:PATH."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from orchestrator.cli.clusters import CLUSTER, find, hosts_of, reader
from orchestrator.cli.command import OrchCommand
from orchestrator.cli.human import parse_ranges, plural, size
from orchestrator.cli.terminal import say
from orchestrator.errors import HostError, IdentityMismatch, OrchError, SetupError, UserError

if TYPE_CHECKING:
    from orchestrator.hosts import HostAddress
    from orchestrator.remote.fleet import Fleet, FleetResult

_REMOTE = re.compile(r"(?P<cluster>[A-Za-z][A-Za-z0-9-]*)(?:/(?P<ranks>[0-9,-]+))?:(?P<path>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class There:
    """A path on hosts; below the home when it is relative. ranks None: all hosts."""

    cluster: str
    ranks: tuple[int, ...] | None
    path: str


@dataclass(frozen=True, slots=True)
class Here:
    """as_folder: it was written with a slash at its end."""

    path: Path
    as_folder: bool = False


Place: TypeAlias = There | Here


class PlaceType(click.ParamType[Place]):
    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        try:
            return parse_place(str(value))
        except ValueError as error:
            self.fail(f"{error}; write mine/0,3-5:PATH", param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        files = [CompletionItem(incomplete, type="file")]
        if "/" in incomplete or ":" in incomplete:
            return files
        return [CompletionItem(f"{item.value}:") for item in CLUSTER.shell_complete(ctx, param, incomplete)] or files


def parse_place(text: str) -> Place:
    """`mine:out`, `mine/2:out`, or a path here; `./a:b` is a path. Raises ValueError for hosts that are no list."""
    found = _REMOTE.fullmatch(text)
    if found is None:
        return Here(Path(text), text.endswith("/"))
    ranks = parse_ranges(found["ranks"]) if found["ranks"] else None
    return There(found["cluster"], ranks, found["path"])


PLACE = PlaceType()


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch cp data.bin mine:", "to the home folder of every host"),
        ("orch cp ./config mine/0:work/config", "a folder, to the head"),
        ("orch cp mine:out/log.txt ./logs", "from every host: ./logs/head/log.txt, ./logs/worker1/log.txt, ..."),
        ("orch cp mine/2:out ./out", "from one host"),
    ],
)
@click.argument("source", metavar="SRC", type=PLACE)
@click.argument("destination", metavar="DST", type=PLACE)
@click.option("--dry-run", is_flag=True, help="Say what would be copied; copy nothing.")
@click.pass_context
def cp(ctx: click.Context, source: Place, destination: Place, dry_run: bool) -> None:
    """Copy files or folders to hosts, or from them.

    Of a folder in a git work tree, what git ignores stays here. Names are kept; a destination that is a folder, or
    ends in /, takes the source into it.
    """
    match source, destination:
        case Here(), There():
            ctx.exit(_up(source.path, destination, dry_run))
        case There(), Here():
            ctx.exit(_down(source, destination, dry_run))
        case _:
            raise UserError(
                "one side is on a cluster, the other here",
                "copying between hosts goes through this computer",
                "orch cp FILE CLUSTER:PATH   or: orch cp CLUSTER:PATH FILE",
            )


def _up(source: Path, to: There, dry_run: bool) -> int:
    from orchestrator.cli.upload import upload
    from orchestrator.remote.tree import read_tree

    tree = read_tree(source.expanduser())
    hosts = _hosts(to)
    what = f"{plural(len(tree.files), 'file')}, {size(tree.total_bytes)} to {to.path or '~/'} on {_named(hosts)}"
    if dry_run:
        say(f"would copy {what}; nothing was done")
        return 0
    from orchestrator.cli.narrator import TerminalNarrator
    from orchestrator.remote.fleet import Fleet

    with TerminalNarrator(sys.stderr) as narrator, Fleet(hosts) as fleet:
        result = upload(
            fleet,
            tree,
            source.resolve().name,
            to.path,
            lambda done, total: narrator.progress(f"cp {source}", done, total),
        )
    return _tell(result, f"copied {what}")


def _down(source: There, here: Here, dry_run: bool) -> int:
    hosts, to = _hosts(source), here.path
    what = f"{source.path or '~/'} of {_named(hosts)} to {to}"
    if dry_run:
        say(f"would copy {what}; nothing was done")
        return 0
    from orchestrator.remote.files import fetch_tree
    from orchestrator.remote.fleet import Fleet

    with Fleet(hosts) as fleet:
        if len(hosts) > 1:
            return _tell(fetch_tree(fleet, source.path or ".", lambda host: to / host.label), f"copied {what}")
        name = Path(source.path).name
        if to.is_dir() or here.as_folder or name in {"", "..", "~"}:
            return _tell(fetch_tree(fleet, source.path or ".", lambda _host: to), f"copied {what}")
        return _tell(_fetch_as(fleet, source.path, name, to), f"copied {what}")


def _fetch_as(fleet: Fleet, path: str, name: str, to: Path) -> FleetResult:
    """Into a folder beside `to`, then renamed: `to` appears whole or not at all."""
    import tempfile

    from orchestrator.remote.files import fetch_tree

    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".orch-cp-", dir=to.parent) as folder:
        result = fetch_tree(fleet, path, lambda _host: Path(folder))
        if result.ok:
            (Path(folder) / name).replace(to)
    return result


def _hosts(place: There) -> tuple[HostAddress, ...]:
    with reader() as store:
        return hosts_of(find(store, place.cluster), place.ranks)


def _named(hosts: tuple[HostAddress, ...]) -> str:
    from orchestrator.plan.ranks import host_words

    return host_words(host.rank for host in hosts)


def _tell(result: FleetResult, done: str) -> int:
    """Say what was done, or raise for the hosts where it was not, after a table of them."""
    if result.ok:
        say(done)
        return 0
    from orchestrator.cli.outcomes import table

    say(*table(tuple(host.outcome for host in result.hosts)))
    raise _failure(result)


def _failure(result: FleetResult) -> OrchError:
    from orchestrator.hosts import Failure

    failed = result.failed
    words = f"the copy failed on {plural(len(failed), 'host')}"
    if any(outcome.failure is Failure.IDENTITY for outcome in failed):
        return IdentityMismatch(words, "a host presented another key than the pinned one")
    if any(outcome.failure is not None for outcome in failed):
        return HostError(words, failed[0].detail, "orch status --refresh")
    return SetupError(words, failed[0].last_line)
