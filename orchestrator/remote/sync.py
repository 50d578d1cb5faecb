"""A tree to a folder on every host: one command per host that tells what is there and takes what is missing.

Files that an earlier sync sent and that are gone from the tree are deleted; other files are never touched.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from orchestrator.hosts import HostAddress
from orchestrator.remote.command import Conversation
from orchestrator.remote.fleet import Fleet, FleetResult, HostResult
from orchestrator.remote.holdings import NOTHING, Holding, Once, change, from_inventory, from_manifest, from_tree
from orchestrator.remote.pack import Pack, pack
from orchestrator.remote.scripts import shell_command
from orchestrator.remote.tree import Tree

_END = b"end\0"


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


def sync(
    fleet: Fleet,
    tree: Tree,
    destination: str,
    *,
    ranks: Sequence[int] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> SyncResult:
    """Make `destination` on the hosts hold `tree`. A relative one, or one that begins with ~/, is below the home.

    on_progress(done, total): bytes over all hosts that are known to need some; called from the hosts' threads,
    one at a time. Raises UserError when a file of the tree can no longer be read.
    """
    path = destination.removeprefix("~/") if destination != "~" else "."
    path = path if path == "/" else path.rstrip("/") or "."
    key = hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    sending = _Sending(fleet, tree, on_progress)
    result = fleet.run(
        shell_command("sync.sh", key, path),
        ranks=ranks,
        talk=sending.talk,
        on_sent=sending.sent,
        keep=64 * 1024,
    )
    hosts = tuple(_quiet(host) for host in result.hosts)
    return SyncResult(FleetResult(hosts, result.first_failure), tuple(sending.summary(host) for host in result.hosts))


class _Sending:
    """One tree on its way to many hosts. Hosts that hold the same share what is sent: it is packed once."""

    def __init__(self, fleet: Fleet, tree: Tree, report: Callable[[int, int], None] | None) -> None:
        self._fleet, self._tree, self._report = fleet, tree, report
        self._wanted = from_tree(tree)
        self._held: Once[str, Holding] = Once()
        self._packed: Once[tuple[Holding, bool], Pack | None] = Once()
        self._packs: dict[int, Pack] = {}
        self._lock = threading.Lock()
        self._done = self._total = 0

    def talk(self, host: HostAddress, host_says: Conversation) -> memoryview:
        """Hear what the host holds; answer with what it lacks."""
        if host_says.expect(b"orch-sync ") is None or (said := host_says.expect(b"\n")) is None:
            return memoryview(b"")  # it ended: its status and its last line say why
        state, digest = said.decode("ascii", "replace").split(" ", 1)
        held = self._holding(state, digest, host_says)
        if held is None:
            return memoryview(b"")
        far = self._fleet.link(host).is_far
        packed = self._packed.get((held, far), lambda: self._pack(held, compress=far))
        if packed is None:
            return memoryview(b"")
        with self._lock:
            self._packs[host.rank] = packed
            self._total += len(packed.stream)
        host_says.say(f"apply {self._tree.digest} {packed.option}")
        return packed.stream

    def sent(self, host: HostAddress, size: int) -> None:
        with self._lock:
            self._done += size
            if self._report is not None:
                self._report(self._done, self._total)

    def summary(self, host: HostResult) -> HostSync:
        rank = host.outcome.rank
        sent = self._packs.get(rank)
        if sent is None or not host.outcome.ok:
            return HostSync(rank, 0, 0, 0)
        return HostSync(rank, len(sent.change.files), len(sent.stream), len(sent.change.deleted))

    def _holding(self, state: str, digest: str, host_says: Conversation) -> Holding | None:
        if state == "none":
            return NOTHING
        if state == "clean" and digest == self._tree.digest:
            return self._wanted
        if state == "clean":
            try:
                return self._held.get(digest, lambda: from_manifest(_ask(host_says, "manifest")))
            except EOFError:
                return None
        try:
            return from_inventory(_ask(host_says, "inventory"))
        except EOFError:
            return None

    def _pack(self, held: Holding, *, compress: bool) -> Pack | None:
        """None when the host lacks nothing. A place that never saw a sync is made, even for an empty tree."""
        if held is self._wanted:
            return None
        return pack(self._tree, change(self._tree, self._wanted, held), compress=compress)


def _ask(host_says: Conversation, word: str) -> bytes:
    host_says.say(word)
    told = host_says.expect(_END)
    if told is None:
        raise EOFError(word)
    return told


def _quiet(host: HostResult) -> HostResult:
    """A good answer is for us, not for a table."""
    return HostResult(replace(host.outcome, last_line=""), b"") if host.outcome.ok else host
