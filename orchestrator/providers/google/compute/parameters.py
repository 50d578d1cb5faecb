"""What a create makes known for its planned requests: the keys of the user and of the hosts."""

from __future__ import annotations

from orchestrator.providers.google import body
from orchestrator.providers.google.compute import bodies
from orchestrator.providers.google.compute.parts import read
from orchestrator.providers.google.startup import USER, entries, pack_keys
from orchestrator.slices import SliceKeys, SliceSpec
from orchestrator.values import Unknown


def known_values(spec: SliceSpec, keys: SliceKeys) -> dict[Unknown, str]:
    """Return the keys of the user and of the hosts. Each group gets the keys of the hosts in it, by their index.

    Raises:
        ValueError: The hosts need a key pair each.
    """
    count = spec.candidate.hosts
    if not len(keys.host_private) == len(keys.host_public) == count:
        raise ValueError(f"{count} hosts need a key pair each, there are {len(keys.host_private)}")
    known = {body.USER_KEY: body.user_keys(USER, keys)}
    for part in read(spec.candidate).parts(spec.name):
        mine = keys.host_private[part.index * part.hosts : (part.index + 1) * part.hosts]
        for entry, packed in zip(entries(part.hosts), pack_keys(mine), strict=True):
            known[bodies.host_keys(part, entry)] = packed
    return known
