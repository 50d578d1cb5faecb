"""The check of v2alpha1 bodies: the public discovery document that google-api-python-client carries.

Only this document has what v2alpha1 alone can do (flex-start, run duration, reservation names); no protobuf type does
(google-api-python-client 2.202, November 2026).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, cast

from orch_fronts.google.status import invalid

_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


@cache
def schemas(version: str) -> dict[str, Any]:
    """The messages of a version of the TPU API, by name."""
    path = files("googleapiclient") / "discovery_cache" / "documents" / f"tpu.{version}.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    return cast(dict[str, Any], document["schemas"])


def check(version: str, schema: str, value: object, where: str) -> dict[str, Any]:
    """The body, when it fits the message. Raises Refusal for an unknown field, a wrong kind or an unknown word."""
    _object(schemas(version), schema, value, where)
    return cast(dict[str, Any], value)


def _object(known: Mapping[str, Any], schema: str, value: object, where: str) -> None:
    if not isinstance(value, dict):
        raise invalid(where, f"Invalid value at {where!r}: an object of type {schema} is needed")
    properties = known[schema].get("properties", {})
    for field, part in cast(dict[str, object], value).items():
        if field not in properties:
            raise invalid(
                where, f"Invalid JSON payload received. Unknown name {field!r} at {where!r}: Cannot find field."
            )
        _value(known, properties[field], part, f"{where}.{field}")


def _value(known: Mapping[str, Any], spec: Mapping[str, Any], value: object, where: str) -> None:
    if "$ref" in spec:
        _object(known, spec["$ref"], value, where)
    elif spec.get("type") == "array":
        if not isinstance(value, list):
            raise invalid(where, f"Invalid value at {where!r}: a list is needed")
        for each in cast(list[object], value):
            _value(known, spec["items"], each, where)
    elif spec.get("type") == "object":
        if not isinstance(value, dict):
            raise invalid(where, f"Invalid value at {where!r}: an object is needed")
        for key, each in cast(dict[str, object], value).items():
            _value(known, spec.get("additionalProperties", {}), each, f"{where}.{key}")
    else:
        _plain(spec, value, where)


def _plain(spec: Mapping[str, Any], value: object, where: str) -> None:
    kind = str(spec.get("type", ""))
    allowed = _KINDS.get(kind, (object,))
    if not isinstance(value, allowed) or (kind in ("integer", "number") and isinstance(value, bool)):
        raise invalid(where, f"Invalid value at {where!r} ({kind}): {value!r}")
    if "enum" in spec and value not in spec["enum"]:
        raise invalid(where, f"Invalid value at {where!r}: {value!r} is not one of {', '.join(spec['enum'])}")
