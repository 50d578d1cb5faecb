"""Adopting a TPU VM that was made without orch: what it is as a candidate, and the request that marks it as ours. Pure.

A node takes new labels and metadata while it runs; each field is sent whole, so what is there is sent back with it (TPU
API v2, projects.locations.nodes.patch, updateMask: description, tags, labels, metadata, 2026). Of a queued resource
nothing can be changed: it is known by the moment at which it was made, and its node carries the labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from orchestrator.catalog.machines import TpuSlice
from orchestrator.catalog.prices import price_per_hour
from orchestrator.catalog.tpu import find_by_topology, find_slice, list_generations
from orchestrator.errors import UserError
from orchestrator.providers.google import body, choices, startup, states
from orchestrator.providers.google.addresses import endpoints
from orchestrator.providers.google.choices import Choices
from orchestrator.providers.google.labels import ADOPTED, CLUSTER, INSTALLATION, INTENT, from_google, is_own, to_google
from orchestrator.providers.google.options import read_options
from orchestrator.slices import (
    Candidate,
    Market,
    OnDemand,
    Request,
    Reservation,
    SliceSpec,
    SliceState,
    Spot,
    UnmanagedSlice,
)
from orchestrator.values import Text, Unknown

SERVICE = "tpu.v2"
KEYS = "ssh-keys"
MASK = "labels,metadata"
_MARKS = (INSTALLATION, CLUSTER, INTENT, ADOPTED)
_FIT = frozenset({SliceState.READY, SliceState.STOPPED})
THEIR_LABELS = Unknown("its other labels, as they are")
THEIR_METADATA = Unknown("its other metadata, as they are")
THEIR_KEYS = Unknown("the lines that are there")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")  # useradd(8)
_WHY = "a node takes labels and metadata while it runs; nothing else of it is changed"


def describe_unmanaged(node: Any, queued: Any | None, user: str) -> UnmanagedSlice:
    """A node as a candidate. queued: the queued resource that it belongs to. Raises UserError for what cannot be."""
    name, place = _last(node.name), node.name.split("/")
    _check_user(user)
    if node.multislice_node:
        raise UserError(
            f"'{name}' is one of several slices of {_last(node.queued_resource)}",
            "they end together, so orch cannot adopt one of them",
            f"gcloud compute tpus queued-resources describe {_last(node.queued_resource)} --zone={place[3]}",
        )
    if str(node.metadata.get("enable-oslogin", "")).lower() == "true":
        raise UserError(
            f"'{name}' accepts SSH by OS Login only",
            "its metadata has enable-oslogin=TRUE, so it ignores the key of orch",
            f"gcloud compute tpus tpu-vm update {name} --zone={place[3]} --update-metadata=enable-oslogin=FALSE",
        )
    candidate = describe_node(node, queued, user)
    view, labels = states.node_view(node), dict(node.labels)
    installation, cluster, intent = (from_google(labels, key) for key in (INSTALLATION, CLUSTER, INTENT))
    problem = _managed(candidate, installation, cluster) if installation or intent else None
    if problem is None and view.state not in _FIT:
        why = f"only a TPU VM that is ready or stopped can be adopted{f'; {view.reason}' if view.reason else ''}"
        problem = UserError(f"'{name}' is {view.state}", why, "try again later")
    return UnmanagedSlice(
        candidate=candidate,
        state=view.state,
        installation=installation,
        cluster=cluster,
        intent=intent,
        problem=problem,
        notes=tuple(_notes(candidate)),
    )


def update_request(spec: SliceSpec) -> Request:
    """Raises UserError as choices.read does."""
    asked = choices.read(spec.candidate)
    login = read_options(spec.candidate).user or startup.USER
    labels = body.labels_of(spec) | to_google([(ADOPTED, Text.of(spec.name))])
    line = Text.of(f"{login}:", body.USER_KEY)
    whole: dict[str, object] = {
        "labels": {**labels, "...": Text.of(THEIR_LABELS)},
        "metadata": {KEYS: Text.of(THEIR_KEYS, "\n", line), "...": Text.of(THEIR_METADATA)},
    }
    words = Text.of("--update-labels=", Text.join(",", [Text.of(f"{key}=", value) for key, value in labels.items()]))
    keys = Text.of(f"--update-metadata=^::^{KEYS}=", THEIR_KEYS, "\n", line)
    return _patch(asked, spec.candidate, whole, words, keys)


def release_request(name: str, candidate: Candidate) -> Request:
    """Our labels and our line of ssh-keys go; `name` is that of the slice."""
    asked = choices.read(candidate)
    whole: dict[str, object] = {
        "labels": {"...": Text.of(THEIR_LABELS)},
        "metadata": {KEYS: Text.of(Unknown("the other lines")), "...": Text.of(THEIR_METADATA)},
    }
    keys = Text.of(f"--update-metadata=^::^{KEYS}=", Unknown("the other lines"))
    return _patch(asked, candidate, whole, Text.of(f"--remove-labels={','.join(_MARKS)}"), keys)


def fill_update(request: Request, known: Mapping[Unknown, str]) -> Request:
    """Return the request with our parts alone: what else the node has is read when it is sent."""
    whole = cast(Mapping[str, Mapping[str, object]], request.body)
    own = {field: {key: text for key, text in part.items() if key != "..."} for field, part in whole.items()}
    return replace(request, body=cast(dict[str, object], body.filled(own, {**known, THEIR_KEYS: ""})), command=())


def own_parts(request: Request) -> tuple[dict[str, str], str]:
    """Return our labels and our line of ssh-keys in a filled request."""
    own = cast(dict[str, dict[str, str]], body.revealed(request.body))
    return own["labels"], own["metadata"][KEYS].strip()


def with_ours(
    there: Mapping[str, str], metadata: Mapping[str, str], ours: Mapping[str, str], line: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Labels and metadata of a node with what is ours in them. ours: labels. line: of ssh-keys."""
    labels = {key: value for key, value in there.items() if not is_own(key)} | dict(ours)
    lines = [*_other_lines(metadata, line), line]
    return labels, {**metadata, KEYS: "\n".join(lines)}


def without_ours(
    there: Mapping[str, str], metadata: Mapping[str, str], line: str
) -> tuple[dict[str, str], dict[str, str]]:
    """The same without it. An item that held our line alone goes."""
    labels = {key: value for key, value in there.items() if not is_own(key)}
    kept = {key: value for key, value in metadata.items() if key != KEYS}
    lines = _other_lines(metadata, line)
    return labels, {**kept, KEYS: "\n".join(lines)} if lines else kept


def _notes(candidate: Candidate) -> Iterator[str]:
    if queued := read_options(candidate).queued_resource:
        yield f"it belongs to the queued resource '{queued}', which is ended with it"
    if read_options(candidate).internal_ips:
        yield "it has internal addresses only: orch reaches it from inside its network"


def _managed(candidate: Candidate, installation: str, cluster: str) -> UserError:
    name, zone = candidate.adopted, candidate.zone
    return UserError(
        f"'{name}' is managed already: by installation {installation or '?'}, cluster '{cluster or '?'}'",
        "its labels say so, and no record here knows it",
        f"there: orch release {cluster}   or, if that installation no longer exists:\n"
        f"gcloud compute tpus tpu-vm update {name} --zone={zone} --remove-labels={','.join(_MARKS)}",
    )


def _other_lines(metadata: Mapping[str, str], line: str) -> list[str]:
    """Ours is known by its account and its key; what stands behind them is a comment."""
    ours = line.split()[:2]
    return [one for one in metadata.get(KEYS, "").splitlines() if one.strip() and one.split()[:2] != ours]


def describe_node(node: Any, queued: Any | None, user: str = "") -> Candidate:
    """The candidate that describes the same machine. Raises UserError for a TPU that the catalogue does not have."""
    name, (_, project, _, zone, *_) = _last(node.name), node.name.split("/")
    tpu, workers = _machine(node), endpoints(node)
    if workers and len(workers) != tpu.hosts:
        raise UserError(
            f"'{name}' has {len(workers)} hosts",
            f"{tpu.name} has {tpu.hosts}, by Google's tables",
            f"gcloud compute tpus tpu-vm describe {name} --zone={zone}",
        )
    region, market = zone.rpartition("-")[0], _market(node, queued)
    price = price_per_hour(tpu, market, region)
    details = {
        "adopted": name,
        "queued_resource": _last(node.queued_resource),
        "project": project,
        "user": user,
        **dict(_network(node, workers)),
        "runtime_version": node.runtime_version,
        "topology": "" if node.accelerator_type else tpu.topology,
    }
    return Candidate(
        provider="gcp",
        accelerator=tpu.name,
        hosts=tpu.hosts,
        chips_per_host=tpu.chips_per_host,
        market=market,
        region=region,
        zone=zone,
        price_per_hour=price.high if price is not None else None,
        price_note=price.note if price is not None else "",
        details=tuple((key, value) for key, value in details.items() if value),
    )


def _machine(node: Any) -> TpuSlice:
    """Raises UserError for a TPU that the catalogue does not have."""
    if node.accelerator_type:
        found = find_slice(node.accelerator_type)
        if found is None:
            raise UserError(
                f"'{_last(node.name)}' is a {node.accelerator_type}",
                "orch does not know this machine",
                "orch accelerators --tpu   lists those that it knows",
            )
        return found
    config = node.accelerator_config
    named = [each.name for each in list_generations() if each.api_type == config.type_.name]
    return find_by_topology(named[0] if named else config.type_.name, config.topology)


def _market(node: Any, queued: Any | None) -> Market:
    scheduling = node.scheduling_config
    if scheduling.spot or scheduling.preemptible or (queued is not None and "spot" in queued):
        return Spot()
    if queued is not None and queued.reservation_name:
        return Reservation(queued.reservation_name)
    return Reservation(choices.ANY_RESERVATION) if scheduling.reserved else OnDemand()


def _network(node: Any, workers: list[Any]) -> Iterator[tuple[str, str]]:
    yield "network", _last(node.network_config.network)
    if workers and not any(worker.access_config.external_ip for worker in workers):
        yield "internal_ips", "yes"


def _patch(asked: Choices, candidate: Candidate, whole: Mapping[str, object], *flags: Text) -> Request:
    target = Text.of(body.parent(asked), f"/nodes/{candidate.adopted}?updateMask={MASK}").preview()
    words = ("gcloud", "compute", "tpus", "tpu-vm", "update", candidate.adopted, f"--zone={asked.zone}")
    project = (Text.of("--project=", asked.project),) if asked.project.is_known else ()
    command = (*(Text.of(word) for word in words), *project, *flags)
    return Request(service=SERVICE, method="PATCH", target=target, body=whole, command=command, why=_WHY)


def _check_user(user: str) -> None:
    if user and not _USER.fullmatch(user):
        raise UserError(
            f"'{user}' is not a user name", "lower-case letters, digits, _ and -, a letter first", "leave --user out"
        )


def _last(path: str) -> str:
    return str(path).rpartition("/")[2]
