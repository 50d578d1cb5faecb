"""A tree to a folder on every host: one round trip to ask what is there, one packed stream of what changed.

Files that an earlier sync sent and that are gone from the tree are deleted; other files are never touched.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.hosts import HostAddress
from orchestrator.remote.fleet import Fleet, FleetResult, HostResult
from orchestrator.remote.pack import Change, Pack, manifest_of, pack
from orchestrator.remote.scripts import shell_command
from orchestrator.remote.tree import Tree

_STATE = re.compile(rb"^orch-sync (none|clean|changed) (\S+)$", re.MULTILINE)
_MANIFEST = b"\norch-manifest\n"
_RECORD = re.compile(rb"([fl][0-7]+ [0-9a-f]{64}) (.*)", re.DOTALL)
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
    """What a host has of ours: path to "f755 CHECKSUM", as in a manifest; owned: all paths we ever sent there."""

    files: Mapping[bytes, bytes]
    owned: frozenset[bytes]


_NOTHING = _Holding({}, frozenset())


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
    place = _Place(fleet, destination)
    results, holdings = _ask(place, tree, ranks)
    packs = _packs(fleet, tree, holdings)
    if packs:
        results |= {host.outcome.rank: host for host in place.send(tree, packs, on_progress).hosts}
    merged = tuple(results[rank] for rank in sorted(results))
    failed = sorted((host.outcome for host in merged if not host.outcome.ok), key=lambda outcome: outcome.seconds)
    return SyncResult(
        FleetResult(merged, failed[0] if failed else None), tuple(_summary(host, packs) for host in merged)
    )


class _Place:
    """The destination on the hosts, and the scripts that look at it and change it."""

    def __init__(self, fleet: Fleet, destination: str) -> None:
        path = destination.removeprefix("~/") if destination != "~" else "."
        self._path = path if path == "/" else path.rstrip("/") or "."
        self._key = hashlib.sha256(self._path.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self.fleet = fleet

    def probe(self, known: str, full: frozenset[int] | None, ranks: Sequence[int] | None) -> FleetResult:
        """Ask for the state; the hosts `full` (None: all) also tell their manifest unless its digest is `known`."""
        short, long = self._command("sync-probe.sh", ""), self._command("sync-probe.sh", known)
        return self.fleet.run(
            lambda host: long if full is None or host.rank in full else short, ranks=ranks, keep=_WHOLE
        )

    def inventory(self, ranks: Sequence[int]) -> FleetResult:
        return self.fleet.run(self._command("sync-inventory.sh"), ranks=ranks, keep=_WHOLE)

    def send(
        self, tree: Tree, packs: Mapping[int, Pack], on_progress: Callable[[int, int], None] | None
    ) -> FleetResult:
        progress = _Progress(sum(len(pack.stream) for pack in packs.values()), on_progress)
        return self.fleet.run(
            lambda host: self._command("sync-apply.sh", tree.digest, packs[host.rank].option),
            ranks=sorted(packs),
            stdin=lambda host: packs[host.rank].stream,
            on_sent=None if on_progress is None else progress.add,
        )

    def _command(self, script: str, *arguments: str) -> str:
        return shell_command(script, self._key, self._path, *arguments, library="sync-lib.sh")


class _Progress:
    def __init__(self, total: int, report: Callable[[int, int], None] | None) -> None:
        self._total, self._report = total, report
        self._done = 0
        self._lock = threading.Lock()

    def add(self, host: HostAddress, size: int) -> None:
        with self._lock:
            self._done += size
            if self._report is not None:
                self._report(self._done, self._total)


def _ask(place: _Place, tree: Tree, ranks: Sequence[int] | None) -> tuple[dict[int, HostResult], dict[int, _Holding]]:
    """What every host answered, and what those that could answer hold."""
    asked = [host.rank for host in place.fleet.hosts] if ranks is None else sorted(ranks)
    probed = place.probe(tree.digest, frozenset(asked[:1]), ranks)
    results = {host.outcome.rank: _answered(host) for host in probed.hosts}
    states = {host.outcome.rank: _state(host) for host in probed.hosts if host.outcome.ok}
    manifests = {tree.digest: manifest_of(tree), **_manifests(probed)}
    speakers: dict[str, int] = {}  # for each manifest that nobody told yet, one host that has it
    for rank, (state, digest) in states.items():
        if state == "clean" and digest not in manifests:
            speakers.setdefault(digest, rank)
    if speakers:
        manifests |= _manifests(place.probe(tree.digest, None, list(speakers.values())))
    known = {
        digest: _from_manifest(manifests[digest])
        for digest in {digest for _, digest in states.values()} & manifests.keys()
    }
    holdings: dict[int, _Holding] = {}
    unknown: list[int] = []
    for rank, (state, digest) in states.items():
        if state == "none":
            holdings[rank] = _NOTHING
        elif state == "clean" and digest in known:
            holdings[rank] = known[digest]
        else:
            unknown.append(rank)
    if unknown:
        for host in place.inventory(unknown).hosts:
            results[host.outcome.rank] = _answered(host)
            if host.outcome.ok:
                holdings[host.outcome.rank] = _from_inventory(host.output)
    return results, holdings


def _answered(host: HostResult) -> HostResult:
    """A good answer is for us, not for a table."""
    return HostResult(replace(host.outcome, last_line=""), b"") if host.outcome.ok else host


def _state(host: HostResult) -> tuple[str, str]:
    found = _STATE.search(host.output)
    return ("changed", "-") if found is None else (found[1].decode("ascii"), found[2].decode("ascii"))


def _manifests(result: FleetResult) -> dict[str, bytes]:
    """The manifests that hosts told, by digest."""
    told: dict[str, bytes] = {}
    for host in result.hosts:
        if host.outcome.ok and (at := host.output.find(_MANIFEST)) >= 0:
            told[_state(host)[1]] = host.output[at + len(_MANIFEST) :]
    return told


def _from_manifest(manifest: bytes) -> _Holding:
    records = (_RECORD.fullmatch(record) for record in manifest.split(b"\0"))
    files = {found[2]: found[1] for found in records if found is not None}
    return _Holding(files, frozenset(files))


def _from_inventory(output: bytes) -> _Holding:
    """See templates/remote/sync-inventory.sh. A link never matches: sending it again costs nothing."""
    owned: set[bytes] = set()
    modes: dict[bytes, bytes] = {}
    files: dict[bytes, bytes] = {}
    for record in output.split(b"\0")[1:]:
        kind, rest = record[:1], record[1:]
        if kind == b"O":
            owned.add(rest)
        elif kind == b"S" and rest.startswith(b"-"):
            permissions, _, path = rest.partition(b" ")
            modes[path] = b"f755" if permissions[3:4] == b"x" else b"f644"
        elif kind == b"H":
            checksum, _, path = rest.partition(b"  ")
            if path in modes:
                files[path] = modes[path] + b" " + checksum
    return _Holding(files, frozenset(owned))


def _packs(fleet: Fleet, tree: Tree, holdings: Mapping[int, _Holding]) -> dict[int, Pack]:
    """What each host needs; hosts that have the same share one Pack. A host that lacks nothing is absent."""
    hosts = {host.rank: host for host in fleet.hosts}
    groups: dict[int, list[int]] = {}  # hosts by the identity of what they hold
    for rank, holding in holdings.items():
        groups.setdefault(id(holding), []).append(rank)
    wanted = _from_manifest(manifest_of(tree))
    packs: dict[int, Pack] = {}
    for ranks in groups.values():
        holding = holdings[ranks[0]]
        change = _change(tree, wanted, holding)
        if change.files or change.deleted or holding is _NOTHING:
            far = any(fleet.link(hosts[rank]).is_far for rank in ranks)
            packs |= dict.fromkeys(ranks, pack(tree, change, compress=far))
    return packs


def _change(tree: Tree, wanted: _Holding, holding: _Holding) -> Change:
    missing = {path for path, record in wanted.files.items() if holding.files.get(path) != record}
    deleted = sorted(holding.owned - wanted.owned)
    return Change(
        tuple(file for file in tree.files if os.fsencode(file.path) in missing),
        tuple(os.fsdecode(path) for path in deleted),
    )


def _summary(host: HostResult, packs: Mapping[int, Pack]) -> HostSync:
    rank = host.outcome.rank
    sent = packs.get(rank)
    if sent is None or not host.outcome.ok:
        return HostSync(rank, 0, 0, 0)
    return HostSync(rank, len(sent.change.files), len(sent.stream), len(sent.change.deleted))
