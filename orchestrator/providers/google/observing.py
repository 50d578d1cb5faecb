"""Observe a slice: what Google reports of its queued resource, its nodes and their host keys. Sends only reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.errors import ConflictError
from orchestrator.providers.google import labels, states
from orchestrator.providers.google.addresses import Login, ready_view
from orchestrator.providers.google.client import TpuApi
from orchestrator.providers.google.host_keys import HostKeys
from orchestrator.providers.google.record import Record, Records
from orchestrator.providers.google.retries import explain, read_status
from orchestrator.slices import SliceState, SliceView


@dataclass(frozen=True, slots=True, kw_only=True)
class Observer:
    """Observes one slice. Every method may raise Refused.

    Attributes:
        api: Of its project.
        record: Of the slice.
        records: Note which hosts reported their keys.
        login: How its hosts are logged in to.
        keys: How long each slice waits for the keys of its hosts.
        now: Epoch seconds.
    """

    api: TpuApi
    record: Record
    records: Records
    login: Login
    keys: HostKeys
    now: Callable[[], float]

    def observe(self) -> SliceView | None:
        """Return the view of the slice; None where Google shows nothing of it."""
        view = self._queued() if self.record.kind == "queued" else self._node()
        if view is None or view.state not in (SliceState.READY, SliceState.CREATING):
            self.records.uncheck(self.record.name)  # hosts that come back are new ones, and get their keys again
        return view

    def list_nodes(self) -> list[Any]:
        """Return the nodes of this slice that exist, in its order."""
        return [node for node in self._named_nodes() if is_ours(self.record, node.labels)]

    def find_queued(self) -> Any | None:
        """Return the queued resource of this slice, if it exists."""
        queued = self.api.queued(self.record.queued_path)
        return queued if queued is not None and is_ours(self.record, queued_labels(queued)) else None

    def find_created(self) -> Any | None:
        """Return the slice as one of its nodes was requested, where the create took effect.

        Raises:
            ConflictError: Something of another owner has its name.
        """
        record = self.record
        queued = self.api.queued(record.queued_path) if record.kind == "queued" else None
        nodes = self._named_nodes() if queued is None else []
        if queued is None and not nodes:
            return None
        found = nodes[0] if record.kind == "node" else None if queued is None else queued_node(queued)
        if found is None or not is_ours(record, found.labels):
            raise ConflictError(
                f"a TPU '{record.name}' exists already",
                "one with another owner has this name",
                "orch status   or take another name: -c NAME",
            )
        return found

    def _named_nodes(self) -> list[Any]:
        return [node for path in self.record.node_paths if (node := self.api.node(path)) is not None]

    def _queued(self) -> SliceView | None:
        record, queued = self.record, self.find_queued()
        if queued is None:
            left = self.list_nodes()
            if not left:
                return None
            reason = f"its queued resource is deleted, {len(left)} of its nodes are not"
            ending = all(states.node_view(node).state is SliceState.ENDING for node in left)
            return SliceView(state=SliceState.ENDING if ending else SliceState.FAILED, reason=reason)
        view = states.queued_view(
            queued, self.now(), valid_seconds=record.valid_seconds, run_seconds=record.run_seconds
        )
        failed = queued.state.failed_data.error
        if view.state is SliceState.FAILED and failed.code:
            refused = explain("create", record.name, read_status(failed.code, failed.message), record.project)
            return replace(view, refused=refused)
        return replace(self._judge(self.list_nodes()), until=view.until) if view.state is SliceState.READY else view

    def _node(self) -> SliceView | None:
        nodes = self.list_nodes()
        return self._judge(nodes) if nodes else None

    def _judge(self, nodes: list[Any]) -> SliceView:
        lost = self.record.slices - len(nodes)
        if lost:
            view = SliceView(state=SliceState.PREEMPTED, reason=f"{lost} of {self.record.slices} nodes are gone")
        else:
            view = states.together([states.node_view(node) for node in nodes])
        if view.state is SliceState.READY:
            view = self._ready(nodes, view.reason)
        owner = labels.from_google(dict(nodes[0].labels), labels.INSTALLATION) if nodes else ""
        return replace(view, installation=owner)

    def _ready(self, nodes: list[Any], reason: str) -> SliceView:
        """Return the view of nodes that run, with their hosts when these have their keys."""
        record, checked = self.record, self.records.is_checked(self.record)
        view = ready_view(record, nodes, self.login)
        if view.state is not SliceState.READY:
            return view
        if not checked:
            waits = self.keys.check(record.name, record.host_public, self._read)
            if waits is not None:
                return waits
            self.records.check(record)
        return replace(view, reason=reason)

    def _read(self) -> list[str]:
        return [key for path in self.record.node_paths for key in self.api.host_keys(path)]


def is_ours(record: Record, found: Any) -> bool:
    """Return whether these labels say that it was made for this very record."""
    return labels.from_google(dict(found), labels.INTENT) == record.token


def queued_node(queued: Any) -> Any | None:
    """Return what the first node of a queued resource is to be."""
    return queued.tpu.node_spec[0].node if queued.tpu.node_spec else None


def queued_labels(queued: Any) -> dict[str, str]:
    """Return the labels of its first node: a queued resource has none of its own."""
    node = queued_node(queued)
    return {} if node is None else dict(node.labels)
