"""The pure half of the provider "gcp": its requests, each with its command line, and what it knows of its hosts.

What goes to Compute Engine is planned in the folder compute/.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.catalog.image_pythons import name_ubuntu_python
from orchestrator.errors import CannotStopError, UserError
from orchestrator.providers.google import access, body, choices, commands, startup
from orchestrator.providers.google.choices import Kind
from orchestrator.providers.google.session import loopback_endpoint, variables_of_buckets
from orchestrator.providers.loopback import loopback_facts
from orchestrator.providers.protocol import Place
from orchestrator.slices import Candidate, HostFacts, Market, Request, SliceSpec, Spot
from orchestrator.values import Text, Unknown

if TYPE_CHECKING:
    from orchestrator.providers.google.compute.planner import ComputePlanner
    from orchestrator.task.model import Task
    from orchestrator.task.resources import Resources

SERVICE = "tpu.v2"  # of all requests but those creates that need another version
_REQUEST_IDS = uuid.UUID("5b2c0d0e-6a43-5a0b-9a51-2a8c5d1f7c11")  # namespace of ours, made once


class GooglePlanner:
    """Sends nothing and loads no SDK. Every method raises UserError for what Google cannot give."""

    name = "gcp"

    def list_places(self, task: Task, choice: Resources, market: Market) -> list[Place]:
        from orchestrator.providers.google import candidates

        return candidates.list_places(choice, market)

    def list_details(
        self, task: Task, choice: Resources, market: Market, place: Place, *, only: bool
    ) -> tuple[tuple[str, str], ...]:
        from orchestrator.providers.google import candidates

        return candidates.list_details(task, choice, market, only=only)

    def create_request(self, spec: SliceSpec) -> Request:
        """With the firewall rules that it needs before it."""
        candidate = spec.candidate
        network, project = choices.network_of(candidate), choices.project_of(candidate)
        rules = access.create_requests(access.read(candidate), spec, project, network)
        made = self._create_request(access.tagged(spec))
        return replace(made, before=(*rules, *made.before))

    def _create_request(self, spec: SliceSpec) -> Request:
        if (compute := _compute(spec.candidate)) is not None:
            return compute.create_request(spec)
        asked = choices.read(spec.candidate)
        choices.check_name(spec.name, asked.slices)
        alpha = asked.path.api == "v2alpha1"
        token = Text.of("&requestId=", request_id(spec.token))
        if asked.path.kind == "node":
            query = Text.of(f"/nodes?nodeId={spec.name}", *((token,) if alpha else ()))  # version 2 has no request id
            whole = body.node(spec, asked)
        else:
            query = Text.of(f"/queuedResources?queuedResourceId={spec.name}", token)
            whole = body.queued_resource(spec, asked)
        target = Text.of(body.parent(asked), query)
        command = commands.create(spec, asked, target, whole)
        return Request(
            service=f"tpu.{asked.path.api}",
            method="POST",
            target=target.preview(),
            body=whole,
            command=command,
            why=asked.path.reason,
        )

    def end_request(self, name: str, candidate: Candidate) -> Request:
        """With the firewall rules that go after it."""
        ended = self._end_request(name, candidate)
        network, project = choices.network_of(candidate), choices.project_of(candidate)
        rules = access.end_requests(access.read(candidate), name, project, network)
        return replace(ended, after=(*ended.after, *rules))

    def _end_request(self, name: str, candidate: Candidate) -> Request:
        if (compute := _compute(candidate)) is not None:
            return compute.end_request(name, candidate)
        asked = choices.read(candidate)
        if asked.path.kind == "node":
            command = commands.on_node("delete", asked, name)
        else:
            command = commands.delete_queued(asked, name)
        return Request(service=SERVICE, method="DELETE", target=body.resource(asked, name).preview(), command=command)

    def stop_request(self, name: str, candidate: Candidate) -> Request:
        compute = _compute(candidate)
        return _power(name, "stop", candidate) if compute is None else compute.stop_request(name, candidate)

    def start_request(self, name: str, candidate: Candidate) -> Request:
        compute = _compute(candidate)
        return _power(name, "start", candidate) if compute is None else compute.start_request(name, candidate)

    def needs_admission(self, candidate: Candidate) -> bool:
        """See protocol.PlansAdmission."""
        return access.needs_admission(candidate)

    def host_facts(self, candidate: Candidate) -> HostFacts:
        if (compute := _compute(candidate)) is not None:
            return compute.host_facts(candidate)
        asked = choices.read(candidate)
        refusal = stop_refusal(asked.tpu.name, asked.path.kind, candidate.hosts)
        stops = refusal is None and not isinstance(candidate.market, Spot)
        if loopback_endpoint():  # the hosts stand on this computer, and their buckets do
            verb = "stop" if stops else ""
            return loopback_facts(candidate, variables_of_buckets(), end_verb="delete", stop_verb=verb)
        return HostFacts(
            env=(("PJRT_DEVICE", "TPU"),),
            image_python=name_ubuntu_python(asked.runtime_version),
            end_command=startup.render_end(),
            stop_command=startup.render_stop() if stops else "",
        )


def _compute(candidate: Candidate) -> ComputePlanner | None:
    """Who plans it, when it goes to Compute Engine."""
    if choices.path_of(candidate).api != "compute":
        return None
    from orchestrator.providers.google.compute import planner

    return planner.PLANNER


def request_id(token: Text) -> Text:
    """The same for the same token: the API answers a repeated create with what the first one made."""
    if not token.is_known:
        return Text.of(Unknown("request id, made from the cluster id"))
    return Text.of(str(uuid.uuid5(_REQUEST_IDS, token.reveal())))


def stop_refusal(what: str, kind: Kind, hosts: int) -> UserError | None:
    """Why these machines cannot be stopped and kept; None when they can."""
    if hosts > 1:
        why = "Google stops only TPUs of one host (Cloud TPU documentation, 2025)"
    elif kind == "queued":
        why = "a TPU from a queued resource is deleted, not stopped"
    else:
        return None
    return CannotStopError(what, why)


def _power(name: str, verb: str, candidate: Candidate) -> Request:
    asked = choices.read(candidate)
    refusal = stop_refusal(asked.tpu.name, asked.path.kind, candidate.hosts)
    if refusal is not None:
        raise refusal
    target = f"{body.parent(asked).preview()}/nodes/{name}:{verb}"
    return Request(service=SERVICE, method="POST", target=target, command=commands.on_node(verb, asked, name))


PLANNER = GooglePlanner()
