"""One look at a slice: what Google says of its queued resource, its nodes and its pending create."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.providers.google import labels, states
from orchestrator.providers.google.addresses import Login, ready_view
from orchestrator.providers.google.client import Refused, TpuApi
from orchestrator.providers.google.record import Phase, Record, Records
from orchestrator.providers.google.retries import Kind, by_code
from orchestrator.slices import SliceState, SliceView

SETTLE_SECONDS = 90.0  # longer than a create may take to arrive: before that, "not found" proves nothing
KEY_PATIENCE = 180.0  # how long a READY slice is held back until its hosts say that they have our keys


@dataclass(slots=True)
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

    def _queued(self, record: Record) -> SliceView:
        queued = self.api.queued(record.queued_path)
        if queued is None or not is_ours(record, queued_labels(queued)):
            left = self.own_nodes(record)
            if not left:
                return self._absent(record)
            words = f"its queued resource is gone, {len(left)} of its nodes are not"
            going = all(states.node_view(node).state is SliceState.ENDING for node in left)
            return SliceView(SliceState.ENDING if going else SliceState.FAILED, reason=words)
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
        if len(found) < record.slices:
            return SliceView(
                SliceState.PREEMPTED, reason=f"{record.slices - len(found)} of {record.slices} nodes are gone"
            )
        view = states.together([states.node_view(node) for node in found])
        if view.state is not SliceState.READY:
            return view
        ready = ready_view(record, found, self.login)
        if ready.state is not SliceState.READY:
            return ready
        missing = self._without_key(record)
        return missing or SliceView(ready.state, ready.hosts, view.reason)

    def _without_key(self, record: Record) -> SliceView | None:
        """Hosts that do not have our key yet: to connect to one now would look like an impostor."""
        if self.records.is_checked(record.name):
            return None
        expected = [line.split()[1] for line in record.host_public]
        since = self.ready_since.setdefault(record.name, self.now())
        try:
            said = [key for path in record.node_paths for key in self.api.host_keys(path)]
        except Refused as refused:
            if refused.answer.kind not in (Kind.PERMISSION, Kind.INVALID, Kind.WRONG_STATE, Kind.NOT_FOUND):
                raise
            said = []
            if refused.answer.kind is not Kind.NOT_FOUND:
                since -= KEY_PATIENCE  # nothing can be read here, ever: SSH itself will tell
        right = sum(one == other for one, other in zip(said, expected, strict=False))
        if right < len(expected) and self.now() - since < KEY_PATIENCE:
            return SliceView(SliceState.CREATING, reason=f"{right} of {len(expected)} hosts have their SSH key")
        self.ready_since.pop(record.name, None)
        self.records.check(record.name)
        return None

    def _absent(self, record: Record) -> SliceView:
        """Google shows nothing. That is ABSENT, unless a create may still be on its way or has just failed."""
        age = self.now() - record.asked
        if record.phase is Phase.ENDING and record.operation == "" and age < SETTLE_SECONDS:
            return SliceView(SliceState.UNCLEAR, reason="the create may still be on its way")
        if record.phase is Phase.ASKED and age < SETTLE_SECONDS:
            return SliceView(SliceState.UNCLEAR, reason="asked for, not shown yet")
        if record.phase is Phase.ACCEPTED and record.operation:
            return self._operation(record)
        return SliceView(SliceState.ABSENT)

    def _operation(self, record: Record) -> SliceView:
        operation = self.api.operation(record.operation, record.api)
        if operation is None:
            return SliceView(SliceState.ABSENT)
        if not operation.done:
            return SliceView(SliceState.CREATING, reason="accepted, not shown yet")
        if operation.code:
            kind = by_code(operation.code, operation.words)
            return SliceView(SliceState.FAILED, reason=f"{kind}: {' '.join(operation.words.split())[:250]}")
        return SliceView(SliceState.ABSENT)


def is_ours(record: Record, found: Any) -> bool:
    """Whether these labels say that it was made for this very record."""
    return labels.from_google(dict(found), labels.INTENT) == record.token


def queued_labels(queued: Any) -> dict[str, str]:
    """A queued resource has no labels of its own: those of its first node count."""
    return dict(queued.tpu.node_spec[0].node.labels) if queued.tpu.node_spec else {}
