"""A tree to a folder on every host: one round trip to ask what is there, one packed stream of what changed.

Files that an earlier sync sent and that are gone from the tree are deleted; other files are never touched.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.hosts import HostAddress, HostOutcome
from orchestrator.remote.fleet import Fleet, FleetResult, HostResult
from orchestrator.remote.pack import Change, Pack, manifest_of, pack
from orchestrator.remote.scripts import shell_command
from orchestrator.remote.tree import Tree

_STATE = re.compile(rb"^orch-sync (none|clean|changed) (\S+)$", re.MULTILINE)
_MANIFEST = b"\norch-manifest\n"
_WHOLE = 1 << 31  # bytes of output kept where all of it is needed


@dataclass(frozen=True, slots=True)
class HostSync:
    """What went to one host. sent_bytes: of the packed stream, as it was sent."""

    rank: int
    sent_files: int
    sent_bytes: int
    deleted_files: int


@dataclass(frozen=True, slots=True)
class SyncResult:
    """result: one outcome for every host; last_line of a failed one is the host's own message (a full disk)."""

    result: FleetResult
    hosts: tuple[HostSync, ...]

    @property
    def sent_bytes(self) -> int:
        return sum(host.sent_bytes for host in self.hosts)

    @property
    def sent_files(self) -> int:
        return sum(host.sent_files for host in self.hosts)


@dataclass(frozen=True, slots=True)
class _Holding:
    """What a host has: path to (kind and mode, checksum), as in a manifest; `owned` are the paths we sent there."""

    digest: str | None
    files: Mapping[bytes, bytes]
    owned: frozenset[bytes]


def sync(
    fleet: Fleet,
    tree: Tree,
    destination: str,
    *,
    ranks: Sequence[int] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> SyncResult:
    """Make `destination` on the hosts hold `tree`. A relative one, or one that begins with ~/, is below the home.

    on_progress(done, total): bytes over all hosts; called from the hosts' threads, one at a time.
    """
    asked = _Destination(destination)
    probed, holdings = _probe(fleet, asked, ranks)
    packs = _packs(tree, holdings)
    results = {host.outcome.rank: host for host in probed.hosts}
    if packs:
        results |= _send(fleet, asked, packs, on_progress)
    merged = tuple(results[rank] for rank in sorted(results))
    first = probed.first_failure or _first_failure(merged)
    return SyncResult(FleetResult(merged, first), tuple(_summary(host, packs) for host in merged))


class _Destination:
    def __init__(self, text: str) -> None:
        path = text.removeprefix("~/") if text != "~" else "."
        self.path = path if path == "/" else path.rstrip("/") or "."
        self.key = hashlib.sha256(self.path.encode("utf-8", "surrogateescape")).hexdigest()[:16]

    def command(self, script: str, *arguments: str) -> str:
        return shell_command(script, self.key, self.path, *arguments, library="sync-lib.sh")


def _probe(fleet: Fleet, asked: _Destination, ranks: Sequence[int] | None) -> tuple[FleetResult, dict[int, _Holding]]:
    """What each host that answers has. The first host sends its manifest along, for mostly all have the same."""
    first = min(ranks, default=-1) if ranks is not None else (fleet.hosts[0].rank if fleet.hosts else -1)
    short, full = asked.command("sync-probe.sh", ""), asked.command("sync-probe.sh", "full")
    probed = fleet.run(lambda host: full if host.rank == first else short, ranks=ranks, keep=_WHOLE)
    states = {host.outcome.rank: _STATE.search(host.output) for host in probed.hosts if host.outcome.ok}
    manifests: dict[bytes, bytes] = {b"-": b""}
    for host in probed.hosts:
        found = states.get(host.outcome.rank)
        if found is not None and (at := host.output.find(_MANIFEST)) >= 0:
            manifests[found[2]] = host.output[at + len(_MANIFEST) :]
    probed = _fetch_manifests(fleet, full, probed, states, manifests)
    changed = [rank for rank, found in states.items() if found is not None and found[1] == b"changed"]
    holdings = _inventory(fleet, asked, changed) if changed else {}
    for rank, found in states.items():
        if found is not None and found[1] != b"changed" and found[2] in manifests:
            holdings[rank] = _from_manifest(found[2].decode("ascii"), manifests[found[2]])
    return probed, holdings
