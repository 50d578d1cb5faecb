"""The check of bodies: the discovery document of compute v1 that google-api-python-client carries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, cast

from orch_fronts.google import status
from orch_fronts.google.compute.answers import ComputeRefusal, Reason

_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
    "object": (dict,),
}


@cache
def document() -> dict[str, Any]:
    path = files("googleapiclient") / "discovery_cache" / "documents" / "compute.v1.json"
    return cast(dict[str, Any], json.loads(path.read_text(encoding="utf-8")))


def read(schema: str, body: bytes) -> dict[str, Any]:
    """The message in a request's body. Raises ComputeRefusal (rule unknown_field_is_refused)."""
    try:
        value: object = json.loads(body) if body.strip() else {}
    except ValueError as error:
        raise _refusal(f"Parse Error: {error}") from error
    _check({"$ref": schema}, value, "resource")
    return cast(dict[str, Any], value)


def _check(spec: Mapping[str, Any], value: object, where: str) -> None:
    if "$ref" in spec:
        spec = {"type": "object", **document()["schemas"][spec["$ref"]]}
    kind = str(spec.get("type", "any"))
    if kind == "string" and spec.get("format") in ("int64", "uint64") and isinstance(value, int):
        value = str(value)  # both forms of a 64-bit number are taken
    if not isinstance(value, _KINDS.get(kind, (object,))) or (kind == "integer" and isinstance(value, bool)):
        raise _refusal(f"Invalid value at '{where}' ({kind}), {value!r}")
    if "enum" in spec and value not in spec["enum"]:
        raise _refusal(f"Invalid value for field '{where}': '{value}'. No enum constant")
    if isinstance(value, list):
        for at, each in enumerate(cast(list[object], value)):
            _check(spec["items"], each, f"{where}[{at}]")
    elif isinstance(value, dict):
        _check_fields(spec, cast(dict[str, object], value), where)


def _check_fields(spec: Mapping[str, Any], value: Mapping[str, object], where: str) -> None:
    known: Mapping[str, Any] = spec.get("properties", {})
    others: Mapping[str, Any] | None = spec.get("additionalProperties")
    for field, part in value.items():
        found = known.get(field, others)
        if found is None:
            raise _refusal(f"Invalid JSON payload received. Unknown name \"{field}\" at '{where}': Cannot find field.")
        _check(found, part, f"{where}.{field}")


def _refusal(words: str) -> ComputeRefusal:
    return ComputeRefusal(Reason(status.INVALID_ARGUMENT, "invalid"), words)
