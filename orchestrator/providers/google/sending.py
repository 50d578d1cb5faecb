"""From a planned create to what is sent: the same request with its unknowns filled in."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from orchestrator.errors import UserError
from orchestrator.providers.google import body, requests
from orchestrator.providers.google.startup import USER, entries, pack_keys
from orchestrator.slices import Candidate, Request, SliceKeys, SliceSpec

if TYPE_CHECKING:
    from google.cloud import tpu_v2

    from orchestrator.providers.google.planner import GooglePlanner


def ready(planner: GooglePlanner, spec: SliceSpec, keys: SliceKeys, project: str) -> Request:
    """Nothing in it is unknown. project: used where the candidate names none. Raises UserError without any."""
    spec = with_project(spec, project)
    count = spec.candidate.hosts
    if not len(keys.host_private) == len(keys.host_public) == count:
        raise ValueError(f"{count} hosts need a key pair each, there are {len(keys.host_private)}")
    request = planner.create_request(spec)
    known = {body.USER_KEY: body.user_keys(USER, keys)}
    for entry, packed in zip(entries(count), pack_keys(keys.host_private), strict=True):
        known[body.host_keys(entry)] = packed
    return replace(request, body=cast(dict[str, object], body.filled(request.body, known)), command=())


def with_project(spec: SliceSpec, project: str) -> SliceSpec:
    """The spec with its candidate's project named."""
    candidate = spec.candidate
    if candidate.detail("project"):
        return spec
    named = named_project(candidate, project)
    return replace(spec, candidate=replace(candidate, details=(*candidate.details, ("project", named))))


def named_project(candidate: Candidate, project: str) -> str:
    """Return the project that the candidate names, else `project`. Raises UserError without any."""
    found = candidate.detail("project") or project
    if not found:
        raise UserError(
            "no Google project is named",
            "neither the task nor your gcloud configuration says one",
            "gcloud config set project PROJECT   or: export GOOGLE_CLOUD_PROJECT=PROJECT",
        )
    return found


def message_of(request: Request) -> tpu_v2.CreateNodeRequest | tpu_v2.CreateQueuedResourceRequest:
    """The library's message of a request to version 2.

    Raises ValueError while a part is unknown, or for a field that the API does not have.
    """
    return requests.create_node(request) if "/nodes?" in request.target else requests.create_queued_resource(request)
