"""From a planned create to what is sent: the same requests with their unknowns filled in."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from orchestrator.providers.google import body
from orchestrator.providers.google.compute import bodies
from orchestrator.providers.google.compute.parts import read
from orchestrator.providers.google.compute.planner import ComputePlanner
from orchestrator.providers.google.startup import USER, entries, pack_keys
from orchestrator.slices import Request, SliceKeys, SliceSpec
from orchestrator.values import Unknown


def ready(planner: ComputePlanner, spec: SliceSpec, keys: SliceKeys) -> Request:
    """Nothing in it is unknown. The spec names its project. Raises ValueError without a key pair for each host."""
    known = known_of(spec, keys)
    request = planner.create_request(spec)
    return replace(_filled(request, known), before=tuple(_filled(one, known) for one in request.before))


def known_of(spec: SliceSpec, keys: SliceKeys) -> dict[Unknown, str]:
    """Each group gets the keys of its own hosts, counted from 0."""
    count = spec.candidate.hosts
    if not len(keys.host_private) == len(keys.host_public) == count:
        raise ValueError(f"{count} hosts need a key pair each, there are {len(keys.host_private)}")
    known = {body.USER_KEY: body.user_keys(USER, keys)}
    for part in read(spec.candidate).parts(spec.name):
        mine = keys.host_private[part.index * part.hosts : (part.index + 1) * part.hosts]
        for entry, packed in zip(entries(part.hosts), pack_keys(mine), strict=True):
            known[bodies.host_keys(part, entry)] = packed
    return known


def _filled(request: Request, known: dict[Unknown, str]) -> Request:
    return replace(request, body=cast(dict[str, object], body.filled(request.body, known)), command=())
