"""One look at a slice: what Google says of its queued resource, its nodes and its pending create."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.providers.core.faults import Kind, Refused
from orchestrator.providers.google import labels, states
from orchestrator.providers.google.addresses import Login, ready_view
from orchestrator.providers.google.client import TpuApi
from orchestrator.providers.google.record import Phase, Record, Records
from orchestrator.providers.google.retries import by_code
from orchestrator.slices import SliceState, SliceView

SETTLE_SECONDS = 90.0  # longer than a create may take to arrive: before that, "not found" proves nothing
KEY_PATIENCE = 180.0  # how long a READY slice is held back until its hosts say that they have our keys
TOLD_PATIENCE = 20.0  # the same until those of an adopted slice say which keys they have

_NEVER_TOLD = frozenset({Kind.PERMISSION, Kind.INVALID, Kind.WRONG_STATE, Kind.NOT_FOUND})


@dataclass(slots=True, kw_only=True)
class Eyes:
    """ready_since: since when a slice is READY but for its keys; losing it costs only time."""

    api: TpuApi
    records: Records
    login: Login
    now: Callable[[], float] = time.time
    ready_since: dict[str, float] = field(default_factory=dict[str, float])

    def look(self, record: Record) -> SliceView:
        """Raises Refused."""
        view = self._queued(record) if record.kind == "queued" else self._node(record)
        if view.state is not SliceState.READY and view.state is not SliceState.CREATING:
            self.records.uncheck(record.name)  # hosts that come back are new ones, and get their keys anew
        return view

    def is_there(self, record: Record) -> bool | None:
        """True: ours is there. None: nothing is. False: somebody else's has the name. Raises Refused."""
        if record.kind == "queued":
            queued = self.api.queued(record.queued_path)
            if queued is not None:
                return is_ours(record, queued_labels(queued))
        nodes = [node for path in record.node_paths if (node := self.api.node(path)) is not None]
        if not nodes:
            return None
        return record.kind == "node" and all(is_ours(record, node.labels) for node in nodes)

    def own_nodes(self, record: Record) -> list[Any]:
        """The nodes of this slice that are there, in order. Raises Refused."""
        found = [self.api.node(path) for path in record.node_paths]
        return [node for node in found if node is not None and is_ours(record, node.labels)]

    def has_queued(self, record: Record, queued: Any) -> bool:
        """Whether this queued resource is that of the record. Raises Refused.

        The one that an adopted node belongs to carries no label of ours. It is ours as long as it is the same one, and
        its node, if it is there, carries them: whoever takes them off takes it out of our hands.
        """
        if not record.adopted:
            return is_ours(record, queued_labels(queued))
        if record.made != moment(queued):
            return False
        node = self.api.node(record.node_paths[0])
        return node is None or is_ours(record, node.labels)

    def _queued(self, record: Record) -> SliceView:
        queued = self.api.queued(record.queued_path)
        if queued is None or not self.has_queued(record, queued):
            left = self.own_nodes(record)
            if not left:
                return self._absent(record)
            words = f"its queued resource is deleted, {len(left)} of its nodes are not"
            going = all(states.node_view(node).state is SliceState.ENDING for node in left)
            return SliceView(state=SliceState.ENDING if going else SliceState.FAILED, reason=words)
        view = states.queued_view(
            queued, self.now(), valid_seconds=record.valid_seconds, run_seconds=record.run_seconds
        )
        return replace(self._nodes(record), until=view.until) if view.state is SliceState.READY else view

    def _node(self, record: Record) -> SliceView:
        node = self.api.node(record.node_paths[0])
        if node is None or not is_ours(record, node.labels):
            return self._absent(record)
        return self._nodes(record, [node])

    def _nodes(self, record: Record, nodes: list[Any] | None = None) -> SliceView:
        found = self.own_nodes(record) if nodes is None else nodes
        owner = labels.from_google(dict(found[0].labels), labels.INSTALLATION) if found else ""
        return replace(self._judge(record, found), installation=owner)

    def _judge(self, record: Record, found: list[Any]) -> SliceView:
        if len(found) < record.slices:
            return SliceView(
                state=SliceState.PREEMPTED, reason=f"{record.slices - len(found)} of {record.slices} nodes are gone"
            )
        view = states.together([states.node_view(node) for node in found])
        if view.state is not SliceState.READY:
            return view
        if record.adopted and not record.host_public and not self.records.is_checked(record.name):
            told = () if any(_tells_nothing(node) for node in found) else self._told(record)
            if told is None:
                return SliceView(
                    state=SliceState.CREATING, reason="its hosts have not reported which SSH keys they have"
                )
            record = self.records.write(replace(record, host_public=told), record.phase)
        login = replace(self.login, user=record.user or self.login.user)
        ready = ready_view(record, found, login)
        if ready.state is not SliceState.READY:
            return ready
        missing = self._without_key(record)
        return missing or SliceView(state=ready.state, hosts=ready.hosts, reason=view.reason)

    def _without_key(self, record: Record) -> SliceView | None:
        """Hosts that do not have our key yet: to connect to one now would look like an impostor."""
        if self.records.is_checked(record.name):
            return None
        if record.adopted and not record.host_public:
            self.records.check(record.name)
            return None
        expected = [line.split()[1] for line in record.host_public]
        since = self.ready_since.setdefault(record.name, self.now())
        try:
            said = [key for path in record.node_paths for key in self.api.host_keys(path)]
        except Refused as refused:
            if refused.answer.kind not in _NEVER_TOLD:
                raise
            said = []
            if refused.answer.kind is not Kind.NOT_FOUND:
                since -= KEY_PATIENCE  # nothing can be read here, ever: SSH itself will tell
        right = sum(one == other for one, other in zip(said, expected, strict=False))
        if right < len(expected) and self.now() - since < KEY_PATIENCE:
            return SliceView(state=SliceState.CREATING, reason=f"{right} of {len(expected)} hosts have their SSH key")
        self.ready_since.pop(record.name, None)
        self.records.check(record.name)
        return None

    def _told(self, record: Record) -> tuple[str, ...] | None:
        """The keys of adopted hosts, all of them, as each says it itself; None: wait for it.

        () where they say nothing: then the first one that a host shows is kept.
        """
        since = self.ready_since.setdefault(record.name, self.now())
        try:
            said = [key for path in record.node_paths for key in self.api.host_keys(path)]
        except Refused as refused:
            if refused.answer.kind not in _NEVER_TOLD:
                raise
            said = []
            since -= TOLD_PATIENCE
        if len(said) == record.slices * record.hosts_per_slice and all(said):
            return tuple(f"ssh-ed25519 {key}" for key in said)
        return None if self.now() - since < TOLD_PATIENCE else ()

    def _absent(self, record: Record) -> SliceView:
        """Google shows nothing. That is ABSENT, unless a create may still be on its way or has just failed."""
        if record.phase is Phase.ACCEPTED and record.operation:
            return self._operation(record)
        if self.now() - record.asked < SETTLE_SECONDS and self._may_come(record):
            return SliceView(state=SliceState.UNCLEAR, reason="requested, not shown yet")
        return SliceView(state=SliceState.ABSENT)

    def _may_come(self, record: Record) -> bool:
        """Whether a create goes on whose slice is not shown. True where its answer, and so its operation, was lost.

        Of an adoption never: a request that arrives late makes nothing.
        """
        if not record.operation:
            return not record.adopted
        operation = self.api.operation(record.operation, record.api)
        return operation is not None and not operation.done

    def _operation(self, record: Record) -> SliceView:
        operation = self.api.operation(record.operation, record.api)
        if operation is None:
            return SliceView(state=SliceState.ABSENT)
        if not operation.done:
            return SliceView(state=SliceState.CREATING, reason="accepted, not shown yet")
        if operation.code:
            kind = by_code(operation.code, operation.words)
            return SliceView(state=SliceState.FAILED, reason=f"{kind}: {' '.join(operation.words.split())[:250]}")
        return SliceView(state=SliceState.ABSENT)


def is_ours(record: Record, found: Any) -> bool:
    """Whether these labels say that it was made for this very record."""
    return labels.from_google(dict(found), labels.INTENT) == record.token


def _tells_nothing(node: Any) -> bool:
    """Whether its guest attributes are switched off (Compute Engine, "Guest attributes", 2025)."""
    return str(node.metadata.get("enable-guest-attributes", "")).lower() == "false"


def moment(queued: Any) -> str:
    """When it was made: of two queued resources of one name, which."""
    return str(queued.create_time.rfc3339()) if queued.create_time else ""


def queued_labels(queued: Any) -> dict[str, str]:
    """A queued resource has no labels of its own: those of its first node count."""
    return dict(queued.tpu.node_spec[0].node.labels) if queued.tpu.node_spec else {}
