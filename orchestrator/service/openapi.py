"""The OpenAPI 3.1 document, made from the table of routes and the JSON Schemas of the documents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from orchestrator.service.route import Medium, Parameter, Role, Route
from orchestrator.service.upload import MEDIUM as UPLOAD
from orchestrator.service_version import HEADER

_TYPES = {int: "integer", float: "number", str: "string"}


def describe_api(routes: Sequence[Route], version: str) -> dict[str, Any]:
    """Return the document."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _describe_route(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "orch", "version": version},
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {name: load_schema(name) for name in sorted({route.schema for route in routes if route.schema})},
        },
    }


def load_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a document."""
    text = files("orchestrator.documents").joinpath("data", f"{name}.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def _describe_route(route: Route) -> dict[str, Any]:
    content: dict[str, Any] = {route.medium.value: {"schema": {"type": "string"}}}
    if route.medium is Medium.OUTPUT:
        reference = f"#/components/schemas/{route.schema}"
        lines = {"x-first-line": {"$ref": reference}, "x-line-of-a-part": {"$ref": f"{reference}/$defs/part"}}
        content[route.medium.value] |= lines
    elif route.schema:
        content = {route.medium.value: {"schema": {"$ref": f"#/components/schemas/{route.schema}"}}}
    answers: dict[str, Any] = {"202" if route.keyed else "200": {"description": route.meaning, "content": content}}
    if route.role > Role.ANYONE:
        answers["401"] = {"description": "No session and no token."}
    if route.medium is not Medium.TEXT:
        answers["default"] = {"description": "A problem (RFC 9457) with `next_step` and `exit_status`."}
    if route.path.startswith("/v1/"):
        answers["426"] = {"description": f"`{HEADER}` names a client older than {route.oldest_client}."}
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    in_path: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
    ]
    described: dict[str, Any] = {}
    if route.request is not None:
        is_json = route.medium is Medium.JSON and not route.oauth
        medium = Medium.JSON.value if is_json else "application/x-www-form-urlencoded"
        schema = route.request.model_json_schema()
        described["requestBody"] = {"required": True, "content": {medium: {"schema": schema}}}
    if route.most_content:
        described["requestBody"] = {"required": True, "content": {UPLOAD: {"schema": {}}}}
    if route.keyed and route.medium is Medium.JSON:
        about = "The same request with the same key is done once."
        key = {"name": "Idempotency-Key", "in": "header", "required": True, "description": about}
        in_path.append(key | {"schema": {"type": "string", "minLength": 8, "maxLength": 100}})
    return described | {
        "operationId": route.name,
        "summary": route.meaning,
        "x-role": route.role.name.lower(),
        **({"x-audit": route.audit} if route.audit else {}),
        "security": [{"token": []}] if route.role > Role.ANYONE else [],
        "parameters": [*in_path, *map(_describe_parameter, route.parameters)],
        "responses": answers,
    }


def _describe_parameter(one: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": _TYPES[one.kind]}
    if one.choices:
        schema["enum"] = list(one.choices)
    elif one.kind is not str:
        schema |= {"minimum": one.least, "maximum": one.most}
    if one.default is not None:
        schema["default"] = one.default
    if one.most_values > 1:
        schema = {"type": "array", "items": schema, "maxItems": one.most_values}
    return {"name": one.name, "in": "query", "description": one.meaning, "schema": schema}
