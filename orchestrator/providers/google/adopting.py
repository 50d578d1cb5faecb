"""Taking a TPU VM that was made without orch under management, and giving it back. See adoption.py for the requests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestrator.errors import NotFoundError, UserError
from orchestrator.providers.core.faults import Refused
from orchestrator.providers.google import adoption, body, choices, sending, startup
from orchestrator.providers.google.client import TpuApi
from orchestrator.providers.google.labels import ADOPTED, to_google
from orchestrator.providers.google.looking import Eyes, moment
from orchestrator.providers.google.record import Phase, Record, Records
from orchestrator.slices import Candidate, SliceKeys, SliceSpec, UnmanagedSlice
from orchestrator.values import Text


class Adopter:
    """What it changes of a node are labels and metadata, both in one request, which the record stands before."""

    def __init__(self, api: TpuApi, records: Records, eyes: Eyes, now: Callable[[], float]) -> None:
        self._api = api
        self._records = records
        self._eyes = eyes
        self._now = now

    def find(self, name: str, zone: str, project: str, user: str) -> UnmanagedSlice:
        """Raises Refused, NotFoundError, UserError."""
        node, queued = self._look(name, zone, project or self._api.project)
        return adoption.stranger(node, queued, user)

    def adopt(self, spec: SliceSpec, keys: SliceKeys) -> None:
        """Complete by one request; again, it is done already. Raises Refused, NotFoundError, UserError."""
        spec = sending.with_project(spec, self._api.project)
        candidate, token = spec.candidate, spec.token.reveal()
        try:
            node, queued = self._look(candidate.adopted, choices.zone_of(candidate), candidate.detail("project"))
        except NotFoundError as error:
            raise UserError(error.what, error.why, error.next_step) from error  # asking again cannot help
        found = adoption.stranger(node, queued, candidate.detail("user"))
        old = self._records.read(spec.name)
        if found.intent == token:
            if old is None or old.token != token:
                self._records.uncheck(spec.name)
                old = self._record(spec, keys, queued)
            self._records.write(old, Phase.ACCEPTED)
            return
        if found.problem is not None:
            raise found.problem
        if old is not None and old.token != token and self._eyes.own_nodes(old):
            raise UserError(f"'{spec.name}' is another TPU of yours", old.node_paths[0], "take another name: -c NAME")
        self._records.uncheck(spec.name)
        record = self._records.write(self._record(spec, keys, queued), Phase.ASKED)
        ours = body.labels_of(spec) | to_google([(ADOPTED, Text.of(spec.name))])
        revealed = {key: value.reveal() for key, value in ours.items()}
        line = _line(candidate, keys.user_public)
        labels, metadata = adoption.with_ours(dict(node.labels), dict(node.metadata), revealed, line)
        try:
            operation = self._api.update(record.node_paths[0], labels, metadata)
        except Refused as refused:
            if not refused.answer.kind.may_have_acted:
                self._records.write(record, Phase.REFUSED)
            raise
        self._records.write(record, Phase.ACCEPTED, operation)

    def release(self, record: Record) -> None:
        """Raises Refused, UserError for what orch made itself."""
        if not record.adopted:
            raise UserError(f"'{record.name}' was made by orch", "only what was adopted can be released", "orch down")
        operation = ""
        for node in self._eyes.own_nodes(record):
            labels, metadata = adoption.without_ours(dict(node.labels), dict(node.metadata), _line_of(record))
            operation = self._api.update(node.name, labels, metadata)
        if record.phase is not Phase.ENDING:
            self._records.write(record, Phase.ENDING, operation)

    def _look(self, name: str, zone: str, project: str) -> tuple[Any, Any | None]:
        """The node and the queued resource that it belongs to."""
        if not project:
            next_step = "--project PROJECT   or: gcloud config set project PROJECT"
            raise UserError("no Google project is named", "", next_step)
        parent = f"projects/{project}/locations/{zone}"
        choices.check_name(name)
        node = self._api.node(f"{parent}/nodes/{name}")
        if node is None:
            listing = f"gcloud compute tpus tpu-vm list --zone={zone} --project={project}"
            raise NotFoundError(f"there is no TPU VM '{name}' in {zone}", f"project {project}", listing)
        queued = node.queued_resource.rpartition("/")[2]
        return node, self._api.queued(f"{parent}/queuedResources/{queued}") if queued else None

    def _record(self, spec: SliceSpec, keys: SliceKeys, queued: Any | None) -> Record:
        asked, candidate = choices.read(spec.candidate), spec.candidate
        return Record(
            name=spec.name,
            token=spec.token.reveal(),
            project=asked.project.reveal(),
            zone=asked.zone,
            kind=asked.path.kind,
            slices=1,
            hosts_per_slice=asked.hosts_per_slice,
            internal_ips=asked.internal_ips,
            identity_file=keys.identity_file,
            known_hosts=keys.known_hosts,
            host_public=(),
            asked=self._now(),
            changed=self._now(),
            node=candidate.adopted,
            queued=candidate.detail("queued_resource"),
            made=moment(queued) if queued is not None else "",
            user=candidate.detail("user"),
        )


def _line(candidate: Candidate, public: str) -> str:
    return f"{candidate.detail('user', startup.USER)}:{public}"


def _line_of(record: Record) -> str:
    """Ours in ssh-keys. " " where the key is gone: then no line is ours."""
    try:
        public = Path(record.identity_file).with_suffix(".pub").read_text(encoding="utf-8").strip()
    except OSError:
        return " "
    return f"{record.user or startup.USER}:{public}"
