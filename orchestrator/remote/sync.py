"""A tree to a folder on every host: one command per host that lists what exists there and receives what is missing.

Files that an earlier sync sent and that are gone from the tree are deleted; other files are never touched.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from posixpath import basename, dirname

from orchestrator.hosts import HostAddress
from orchestrator.remote.command import Conversation
from orchestrator.remote.deadlines import Stall
from orchestrator.remote.fleet import Fleet, FleetResult, HostResult
from orchestrator.remote.holdings import (
    NOTHING,
    Holding,
    Once,
    holding_of_tree,
    parse_inventory,
    parse_manifest,
    plan_change,
)
from orchestrator.remote.pack import Pack, pack_change
from orchestrator.remote.scripts import shell_command
from orchestrator.remote.tree import Tree

_END = b"end\0"
_UNRELEASED = 32 << 20  # bytes that are sent before their memory is given back
_HASHING = 600.0  # seconds in which a host may read a large folder without a word


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSync:
    """The files sent to one host. sent_bytes counts the packed stream."""

    rank: int
    sent_files: int
    sent_bytes: int
    deleted_files: int


@dataclass(frozen=True, slots=True)
class SyncResult:
    """One outcome for every host. The last_line of a failed one is the host's own message, such as a full disk."""

    result: FleetResult
    hosts: tuple[HostSync, ...]

    @property
    def sent_bytes(self) -> int:
        return sum(host.sent_bytes for host in self.hosts)

    @property
    def sent_files(self) -> int:
        return sum(host.sent_files for host in self.hosts)


def sync_tree(
    fleet: Fleet,
    tree: Tree,
    destination: str,
    *,
    ranks: Sequence[int] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> SyncResult:
    """Make `destination` on the hosts hold `tree`.

    Args:
        fleet: the hosts.
        tree: the files.
        destination: a folder, and for a tree of one file the path of the file; with a / at its end the folder that
            the file goes to. A relative one, or one that begins with ~/, is below the home directory.
        ranks: the hosts to use, None for all.
        on_progress: gets (done, total) in bytes over all hosts that need some, from the hosts' threads, one at a
            time.

    Raises:
        UserError: a file of the tree can no longer be read.
    """
    path = destination.removeprefix("~/") if destination != "~" else "."
    one_file = tree.is_file and not path.endswith("/")
    path = path if path == "/" else path.rstrip("/") or "."
    key = _key_of(f"file:{path}" if one_file else path)
    if one_file:
        tree, path = replace(tree, files=(replace(tree.files[0], path=basename(path)),)), dirname(path) or "."
    sending = _Sending(fleet, tree, on_progress)
    result = fleet.run(
        shell_command("sync.sh", key, path),
        ranks=ranks,
        talk=sending.talk,
        on_sent=sending.sent,
        keep=64 * 1024,
        timeout=Stall(_HASHING),
    )
    hosts = tuple(_without_output(host) for host in result.hosts)
    return SyncResult(FleetResult(hosts, result.first_failure), tuple(sending.summary(host) for host in result.hosts))


def _key_of(path: str) -> str:
    """Return the name of the state of a destination. Several files of one folder have a state each."""
    return hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:16]


class _Sending:
    """The sending of one tree to many hosts. A change that several hosts need is packed once."""

    def __init__(self, fleet: Fleet, tree: Tree, report: Callable[[int, int], None] | None) -> None:
        self._fleet, self._tree, self._report = fleet, tree, report
        self._target = holding_of_tree(tree)
        self._held: Once[str, Holding] = Once()
        self._packed: Once[tuple[Holding, bool], Pack | None] = Once()
        self._packs: dict[int, Pack] = {}
        self._lock = threading.Lock()
        self._done = self._total = self._released = 0

    def talk(self, host: HostAddress, conversation: Conversation) -> memoryview:
        """Read what the host holds and return the stream with what is missing there."""
        if conversation.read_until(b"orch-sync ") is None or (answer := conversation.read_until(b"\n")) is None:
            return memoryview(b"")  # it ended: its status and its last line are the reason
        state, digest = answer.decode("ascii", "replace").split(" ", 1)
        held = self._holding(state, digest, conversation)
        if held is None:
            return memoryview(b"")
        far = self._fleet.link(host).is_far
        packed = self._packed.get((held, far), lambda: self._pack(held, compress=far))
        if packed is None:
            return memoryview(b"")
        with self._lock:
            self._packs[host.rank] = packed
            self._total += len(packed.stream)
        conversation.send_line(f"apply {self._tree.digest} {packed.option}")
        return packed.stream

    def sent(self, host: HostAddress, size: int) -> None:
        """Count bytes that were sent to a host."""
        with self._lock:
            self._done += size
            if self._done - self._released >= _UNRELEASED:
                self._released = self._done
                for pack in {id(pack): pack for pack in self._packs.values()}.values():
                    pack.release()
            if self._report is not None:
                self._report(self._done, self._total)

    def summary(self, host: HostResult) -> HostSync:
        """Return what was sent to one host."""
        rank = host.outcome.rank
        sent = self._packs.get(rank)
        if sent is None or not host.outcome.ok:
            return HostSync(rank=rank, sent_files=0, sent_bytes=0, deleted_files=0)
        return HostSync(
            rank=rank,
            sent_files=len(sent.change.files),
            sent_bytes=len(sent.stream),
            deleted_files=len(sent.change.deleted),
        )

    def _holding(self, state: str, digest: str, conversation: Conversation) -> Holding | None:
        if state == "none":
            return NOTHING
        if state == "clean" and digest == self._tree.digest:
            return self._target
        if state == "clean":
            try:
                return self._held.get(digest, lambda: parse_manifest(_ask(conversation, "manifest")))
            except EOFError:
                return None
        try:
            return parse_inventory(_ask(conversation, "inventory"))
        except EOFError:
            return None

    def _pack(self, held: Holding, *, compress: bool) -> Pack | None:
        """Pack the change, or return None when nothing is missing. A new destination is made even for an empty tree."""
        if held is self._target:
            return None
        return pack_change(self._tree, plan_change(self._tree, self._target, held), compress=compress)


def _ask(conversation: Conversation, word: str) -> bytes:
    conversation.send_line(word)
    answer = conversation.read_until(_END)
    if answer is None:
        raise EOFError(word)
    return answer


def _without_output(host: HostResult) -> HostResult:
    """Keep a successful answer out of the table of outcomes."""
    return HostResult(replace(host.outcome, last_line=""), b"") if host.outcome.ok else host
