"""A planned request as the library's own message: what is previewed is what is sent, because it is made from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs, urlsplit

from orchestrator.providers.google.body import revealed
from orchestrator.slices import Request

if TYPE_CHECKING:
    from google.cloud import tpu_v2


COLLECTIONS = ("nodes", "queuedResources")


def create_node(request: Request) -> tpu_v2.CreateNodeRequest:
    """Raises ValueError while a part is unknown, or for a field that the API does not have."""
    from google.cloud import tpu_v2

    parent, _, query = split(request)
    return tpu_v2.CreateNodeRequest(parent=parent, node_id=query["nodeId"], node=_message(tpu_v2.Node, request))


def create_queued_resource(request: Request) -> tpu_v2.CreateQueuedResourceRequest:
    """Raises as create_node does."""
    from google.cloud import tpu_v2

    parent, _, query = split(request)
    return tpu_v2.CreateQueuedResourceRequest(
        parent=parent,
        queued_resource_id=query["queuedResourceId"],
        request_id=query["requestId"],
        queued_resource=_message(tpu_v2.QueuedResource, request),
    )


def split(request: Request) -> tuple[str, str, dict[str, str]]:
    """Parent, collection and query of a create's target. Raises ValueError while a part is unknown."""
    if "(" in request.target:
        raise ValueError(f"still unknown: {request.target}")
    parts = urlsplit(request.target)
    parent, slash, collection = parts.path.rpartition("/")
    if not slash or collection not in COLLECTIONS:
        raise ValueError(f"{request.target} does not end in {' or '.join(COLLECTIONS)}")
    return parent, collection, {key: values[0] for key, values in parse_qs(parts.query).items()}


def _message(kind: Any, request: Request) -> Any:
    from google.protobuf import json_format  # type: ignore[import-untyped]  # the library ships no types

    message = kind()
    try:
        json_format.ParseDict(cast(dict[str, Any], revealed(request.body)), message._pb)
    except json_format.ParseError as error:
        raise ValueError(f"the request does not fit the API: {error}") from error
    return message
