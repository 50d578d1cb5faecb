"""Bodies in and out. v2 goes through the library's own protobuf types, v2alpha1 through its discovery document.

Inside the front a message is its JSON form with names of enum values, as MessageToDict makes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from orch_fronts.google import documents
from orch_fronts.google.status import INVALID_ARGUMENT, Refusal, invalid

V2 = "v2"
V2ALPHA1 = "v2alpha1"
_SCHEMAS = {
    "Node": "Node",
    "QueuedResource": "QueuedResource",
    "GetGuestAttributesRequest": "GetGuestAttributesRequest",
}
_FIELDS = {"Node": "node", "QueuedResource": "queued_resource", "GetGuestAttributesRequest": "request"}


def read(version: str, kind: str, body: bytes) -> dict[str, Any]:
    """The message in a request's body. Raises Refusal for what does not fit (rule unknown_field_is_refused)."""
    try:
        value: object = json.loads(body) if body.strip() else {}
    except ValueError as error:
        raise Refusal(INVALID_ARGUMENT, f"Invalid JSON payload received. {error}") from error
    if version == V2ALPHA1:
        return documents.check(version, _SCHEMAS[kind], value, _FIELDS[kind])
    return _through_protobuf(kind, value, numbers=False, strict=True)


def write(version: str, kind: str, message: Mapping[str, Any], *, numbers: bool) -> dict[str, Any]:
    """The message as this version shows it. numbers: enum values as numbers, as the REST client asks for."""
    if version == V2ALPHA1:
        properties = documents.schemas(version)[kind]["properties"]
        return {key: value for key, value in message.items() if key in properties}
    return _through_protobuf(kind, message, numbers=numbers, strict=False)


def type_url(version: str, kind: str) -> str:
    return f"type.googleapis.com/google.cloud.tpu.{version}.{kind}"


def _through_protobuf(kind: str, value: object, *, numbers: bool, strict: bool) -> dict[str, Any]:
    from google.cloud import tpu_v2
    from google.protobuf import json_format  # type: ignore[import-untyped]  # the library ships no types

    plus: Any = getattr(tpu_v2, kind)
    message = plus.pb(plus())
    try:
        json_format.ParseDict(cast(Any, value), message, ignore_unknown_fields=not strict)
    except json_format.ParseError as error:
        raise invalid(_FIELDS.get(kind, kind), f"Invalid JSON payload received. {error}") from error
    except (AttributeError, TypeError) as error:  # not an object where one is needed
        raise invalid(_FIELDS.get(kind, kind), f"Invalid JSON payload received. {error}") from error
    found: dict[str, Any] = json_format.MessageToDict(message, use_integers_for_enums=numbers)
    return found
