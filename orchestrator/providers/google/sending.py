"""From a planned create to what is sent: the same request with its unknowns filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from orchestrator.errors import UserError
from orchestrator.providers.google import body
from orchestrator.providers.google.startup import USER, entries, pack_keys
from orchestrator.slices import Candidate, Request, SliceKeys, SliceSpec
from orchestrator.values import Unknown


def list_known(keys: SliceKeys) -> dict[Unknown, str]:
    """Return the keys that a create holds."""
    packed = zip(entries(len(keys.host_private)), pack_keys(keys.host_private), strict=True)
    return {body.USER_KEY: body.user_keys(USER, keys)} | {body.host_keys(entry): text for entry, text in packed}


def fill(request: Request, known: Mapping[Unknown, str]) -> Request:
    """Return the request with these values in it."""
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
