"""Parameters of requests as values: JSON with a Text where a part is unknown or secret. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

from orchestrator.providers.aws.unknowns import LISTS
from orchestrator.slices import Request
from orchestrator.values import Text, Unknown


def as_json(value: object) -> Text:
    """Compact JSON in ASCII, fields in the order given. An Unknown stands inside its string: ids need no escape."""
    if isinstance(value, Text):
        parts = [json.dumps(part)[1:-1] if isinstance(part, str) else part for part in value.parts]
        return Text.of('"', *parts, '"')
    if isinstance(value, Mapping):
        fields = cast(Mapping[str, object], value).items()
        return Text.of("{", Text.join(",", [Text.of(json.dumps(key), ":", as_json(item)) for key, item in fields]), "}")
    if isinstance(value, list):
        return Text.of("[", Text.join(",", [as_json(item) for item in cast(list[object], value)]), "]")
    return Text.of(json.dumps(value))


def filled(value: object, known: Mapping[Unknown, str]) -> object:
    """The parameters with these unknowns replaced, as far as they go. A list of ids becomes a list."""
    if isinstance(value, Text):
        text = value.fill(known)
        whole_list = len(value.parts) == 1 and value.parts[0] in LISTS and text.is_known
        return json.loads(text.reveal()) if whole_list else text
    if isinstance(value, Mapping):
        return {key: filled(item, known) for key, item in cast(Mapping[str, object], value).items()}
    if isinstance(value, list):
        return [filled(item, known) for item in cast(list[object], value)]
    return value


def revealed(value: object) -> object:
    """Plain JSON values, as botocore takes them. Raises ValueError while a part is unknown."""
    if isinstance(value, Text):
        return value.reveal()
    if isinstance(value, Mapping):
        return {key: revealed(item) for key, item in cast(Mapping[str, object], value).items()}
    if isinstance(value, list):
        return [revealed(item) for item in cast(list[object], value)]
    return value


def fill_request(
    step: Request, known: Mapping[Unknown, str], found_out: Mapping[Unknown, Callable[[], str]]
) -> Request:
    """Return a request with plain JSON values. `found_out`: what is found out only for a request that has it.

    Raises:
        ValueError: A part is unknown.
    """
    more = {unknown: find() for unknown, find in found_out.items() if unknown not in known and _has(step.body, unknown)}
    body = cast(dict[str, object], revealed(filled(step.body, {**known, **more})))
    return replace(step, body=body, command=())


def _has(value: object, unknown: Unknown) -> bool:
    if isinstance(value, Text):
        return unknown in value.parts
    if isinstance(value, Mapping):
        return any(_has(one, unknown) for one in cast(Mapping[str, object], value).values())
    return isinstance(value, list) and any(_has(one, unknown) for one in cast(list[object], value))
