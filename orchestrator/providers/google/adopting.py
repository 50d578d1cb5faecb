"""Taking a TPU VM that was made without orch under management, and giving it back. See adoption.py for the requests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import NotFoundError, UserError
from orchestrator.providers.core.driver import Changes
from orchestrator.providers.google import adoption, choices, startup
from orchestrator.providers.google.client import TpuApi
from orchestrator.providers.google.observing import created_at
from orchestrator.providers.google.record import Record
from orchestrator.slices import Request, UnmanagedSlice


@dataclass(frozen=True, slots=True)
class Adopter:
    """Changes the labels and the metadata of a node, both in one request. Every method may raise Refused."""

    api: TpuApi

    def find(self, name: str, zone: str, project: str, user: str) -> UnmanagedSlice:
        """Describe a node. Raises NotFoundError, UserError."""
        if not project:
            next_step = "--project PROJECT   or: gcloud config set project PROJECT"
            raise UserError("no Google project is named", "", next_step)
        return adoption.describe_unmanaged(*self._read(name, zone, project), user)

    def check(self, record: Record) -> Changes:
        """Return what the record notes of the node that is to be adopted. Raises UserError where it cannot be."""
        try:
            node, queued = self._read(record.node, record.zone, record.project)
        except NotFoundError as error:
            raise UserError(error.what, error.why, error.next_step) from error  # asking again cannot help
        found = adoption.describe_unmanaged(node, queued, record.user)
        if found.problem is not None and found.intent != record.token:
            raise found.problem
        return {"made": created_at(queued) if queued is not None else ""}

    def add_marks(self, record: Record, step: Request) -> str:
        """Add our labels and our key to what the node has now. Return the name of the operation."""
        node, _ = self._read(record.node, record.zone, record.project)
        labels, metadata = adoption.with_ours(dict(node.labels), dict(node.metadata), *adoption.own_parts(step))
        return self.api.update(node.name, labels, metadata)

    def remove_marks(self, record: Record, node: Any) -> str:
        """Take our labels and our key off a node. Return the name of the operation."""
        labels, metadata = adoption.without_ours(dict(node.labels), dict(node.metadata), _line_of(record))
        return self.api.update(node.name, labels, metadata)

    def _read(self, name: str, zone: str, project: str) -> tuple[Any, Any | None]:
        """Return a node and the queued resource that it belongs to."""
        parent = f"projects/{project}/locations/{zone}"
        choices.check_name(name)
        node = self.api.node(f"{parent}/nodes/{name}")
        if node is None:
            listing = f"gcloud compute tpus tpu-vm list --zone={zone} --project={project}"
            raise NotFoundError(f"there is no TPU VM '{name}' in {zone}", f"project {project}", listing)
        queued = node.queued_resource.rpartition("/")[2]
        return node, self.api.queued(f"{parent}/queuedResources/{queued}") if queued else None


def _line_of(record: Record) -> str:
    """Return our line of ssh-keys; " " where the key is deleted: then no line is ours."""
    try:
        public = Path(record.identity_file).with_suffix(".pub").read_text(encoding="utf-8").strip()
    except OSError:
        return " "
    return f"{record.user or startup.USER}:{public}"
