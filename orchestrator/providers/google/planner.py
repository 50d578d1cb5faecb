"""The pure half of the provider "gcp": its requests, each with its command line, and what it knows of its hosts."""

from __future__ import annotations

import uuid

from orchestrator.errors import UserError
from orchestrator.providers.google import body, choices, commands, startup
from orchestrator.providers.google.choices import Kind
from orchestrator.slices import Candidate, HostFacts, Request, SliceSpec
from orchestrator.values import Text, Unknown

SERVICE = "tpu.v2"
_REQUEST_IDS = uuid.UUID("5b2c0d0e-6a43-5a0b-9a51-2a8c5d1f7c11")  # namespace of ours, made once


class GooglePlanner:
    """Sends nothing and loads no SDK. Every method raises UserError for what the TPU API cannot give."""

    name = "gcp"

    def create_request(self, spec: SliceSpec) -> Request:
        asked = choices.read(spec.candidate)
        choices.check_name(spec.name, asked.slices)
        if asked.path.kind == "node":
            target = Text.of(body.parent(asked), f"/nodes?nodeId={spec.name}")
            whole = body.node(spec, asked)
        else:
            query = f"queuedResourceId={spec.name}&requestId="
            target = Text.of(body.parent(asked), f"/queuedResources?{query}", request_id(spec.token))
            whole = body.queued_resource(spec, asked)
        command = commands.create(spec, asked, target, whole)
        return Request(SERVICE, "POST", target.preview(), whole, command)

    def end_request(self, name: str, candidate: Candidate) -> Request:
        asked = choices.read(candidate)
        if asked.path.kind == "node":
            command = commands.on_node("delete", asked, name)
        else:
            command = commands.delete_queued(asked, name)
        return Request(SERVICE, "DELETE", body.resource(asked, name).preview(), command=command)

    def stop_request(self, name: str, candidate: Candidate) -> Request:
        return _power(name, "stop", candidate)

    def start_request(self, name: str, candidate: Candidate) -> Request:
        return _power(name, "start", candidate)

    def host_facts(self, candidate: Candidate) -> HostFacts:
        choices.read(candidate)
        return HostFacts(env=(("PJRT_DEVICE", "TPU"),), end_command=startup.render_end())


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
    return UserError(f"{what} cannot be stopped and kept", why, "orch down   ends it; the bucket keeps the checkpoints")


def _power(name: str, verb: str, candidate: Candidate) -> Request:
    asked = choices.read(candidate)
    refusal = stop_refusal(asked.tpu.name, asked.path.kind, candidate.hosts)
    if refusal is not None:
        raise refusal
    target = f"{body.parent(asked).preview()}/nodes/{name}:{verb}"
    return Request(SERVICE, "POST", target, command=commands.on_node(verb, asked, name))


PLANNER = GooglePlanner()
