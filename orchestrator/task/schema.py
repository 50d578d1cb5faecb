"""The JSON Schema of a task file, and the error messages that are made from it.

Pydantic decides whether a value is valid; the schema at the same place says what would be, in words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from pydantic import ValidationError
from pydantic.json_schema import GenerateJsonSchema

from orchestrator.computing_limit import check_computing
from orchestrator.task.errors import InvalidValueError, Issue, Path, did_you_mean, shorten_value
from orchestrator.task.section import LARGEST, Json, Section
from orchestrator.task.yaml_reader import Value

_BLANK: tuple[object, ...] = (None, "", [], {})


class _Generator(GenerateJsonSchema):
    """Pydantic's generator without titles, which would only repeat the names of the fields."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def make_section_schema(section: type[Section]) -> Json:
    """Return the JSON Schema of a section, with the keys that are refused, and its short forms."""
    found = section.model_json_schema(schema_generator=_Generator)
    properties = {name: _tidy(node) for name, node in found.get("properties", {}).items()}
    properties |= {name: refused.json_schema() for name, refused in section.refused.items()}
    schema: Json = {"type": "object", "properties": properties, "additionalProperties": False}
    return {"anyOf": [*section.short_forms, schema]} if section.short_forms else schema


def _tidy(node: Json) -> Json:
    """Return the node without null, unset defaults and empty choices, which stand for an absent key."""
    made = {key: value for key, value in node.items() if key != "default" or value not in _BLANK}
    if isinstance(made.get("default"), dict):
        del made["default"]
    if "enum" in made:
        made["enum"] = [choice for choice in made["enum"] if choice]
    if "patternProperties" in made:
        ((pattern, value),) = made.pop("patternProperties").items()
        made["additionalProperties"] = value
        made["propertyNames"] = {"pattern": pattern, **made.get("propertyNames", {})}
    for inside in ("items", "additionalProperties"):
        if isinstance(made.get(inside), dict):
            made[inside] = _tidy(made[inside])
    if "anyOf" in made:
        members: list[Json] = []
        for member in made.pop("anyOf"):
            tidy = _tidy(member)
            members += tidy["anyOf"] if set(tidy) == {"anyOf"} else [tidy]
        members = [member for member in members if member.get("type") != "null"]
        made = {**members[0], **made} if len(members) == 1 else {**made, "anyOf": members}
    return made


def describe(node: Json) -> str:
    """Return what a value must be, for people, after "must be"."""
    if "x-form" in node:
        return str(node["x-form"])
    if "anyOf" in node:
        return ", or ".join(describe(member) for member in node["anyOf"])
    kind = node.get("type")
    if kind == "array":
        return f"a list, each item {describe(node['items'])}"
    if kind == "object":
        values = node.get("additionalProperties")
        return f"a map, each value {describe(cast('Json', values))}" if isinstance(values, dict) else "a map"
    if kind in ("integer", "number"):
        return _describe_number(node)
    return "true or false" if kind == "boolean" else "text"


def list_choices(node: Json) -> list[str]:
    """Return the words that a text must be one of, none when any text is allowed."""
    return [*node.get("enum", ()), *node.get("examples", ())]


_WRITE_A_VALUE = "remove it, or write a value"


def find_issues(error: ValidationError, data: Value, section: type[Section]) -> list[Issue]:
    """Return what is wrong with a document, each thing once.

    Args:
        error: What pydantic found.
        data: The document.
        section: The model that the document was validated by.
    """
    details = error.errors(include_url=False, include_input=False)
    found = (
        _explain(detail["type"], detail["loc"], detail.get("ctx", {}).get("error"), data, section.json_schema())
        for detail in details
    )
    issues = list(dict.fromkeys(issue for issue in found if issue is not None))
    if issues:
        return issues
    path, value, node = _locate(details[0]["loc"], data, section.json_schema())
    return [_explain_value(path, value, node, node)]


def _explain(kind: str, location: Path, cause: object, data: Value, schema: Json) -> Issue | None:
    check_computing()
    path, value, node = _locate(location, data, schema)
    if isinstance(cause, InvalidValueError):
        what = cause.what.replace("{path}", name_of(path))
        return Issue(path=path, what=what, why=cause.why, next_step=cause.next_step)
    if kind == "extra_forbidden":
        return _explain_unknown(path, _locate(location[:-1], data, schema)[2])
    if location[-1:] == ("[key]",):
        parent = _locate(location[:-2], data, schema)[2]
        what = f"`{shorten_value(str(location[-2]))}` cannot be a key of `{name_of(path[:-1])}`"
        why = f"a key must be {parent['propertyNames']['description']}"
        return Issue(path=path, what=what, why=why, next_step="rename the key")
    member = next((one for one in node.get("anyOf", [node]) if _accepts(one, value)), None)
    if member is None:
        subject = f"`{name_of(path)}`" if path else "a task"
        hidden = path == ("secrets",) and isinstance(value, str | int | float)
        here = "one value, which is not shown" if hidden else type_words(value)
        step = "write such a value, or remove the key" if path else "write `run:` or `train:` in the file"
        return Issue(path=path, what=f"{subject} must be {describe(node)}; here it is {here}", next_step=step)
    if (kind.endswith("_type") and kind != "model_type") or (kind == "too_short" and value):
        return None  # said by another member of a union, or by the items that are wrong
    return _explain_value(path, value, member, node)


def _explain_value(path: Path, value: Value, member: Json, node: Json) -> Issue:
    """Explain a value of the right type that is not allowed."""
    name = name_of(path)
    if isinstance(value, list | dict):
        return Issue(path=path, what=f"`{name}` is empty", why=f"it must be {describe(node)}", next_step=_WRITE_A_VALUE)
    if isinstance(value, str) and not value.strip():
        return Issue(path=path, what=f"`{name}` is empty", why=f"it must be {describe(node)}", next_step=_WRITE_A_VALUE)
    shown = shorten_value(str(value))
    choices = list_choices(member)
    if choices:
        near = did_you_mean(str(value), choices)
        hint = f", did you mean `{near}`?" if near else ""
        step = f"write {near}" if near else "write one of these, or remove the key"
        why = f"allowed: {', '.join(choices)}"
        return Issue(path=path, what=f"`{name}` cannot be `{shown}`{hint}", why=why, next_step=step)
    quoted = f"`{shown}`" if isinstance(value, str) else shown
    return Issue(
        path=path,
        what=f"`{name}` cannot be {quoted}",
        why=f"it must be {describe(member)}",
        next_step="write such a value, or remove the key",
    )


def _explain_unknown(path: Path, parent: Json) -> Issue:
    known = _properties(parent)
    name = str(path[-1])
    if name in known:
        refused = known[name]
        what = f"`{name_of(path)}` is not served by orch"
        return Issue(path=path, what=what, why=refused["description"], next_step=refused["x-instead"])
    served = [name for name, node in known.items() if "not" not in node]
    same = next((own for own in served if known[own].get("x-alias") == name), "")
    near = same or did_you_mean(name, served)
    where = f" in `{name_of(path[:-1])}`" if len(path) > 1 else ""
    hint = f", did you mean `{near}`?" if near else ""
    return Issue(
        path=path,
        what=f"unknown key `{shorten_value(name)}`{where}{hint}",
        why="" if near else f"allowed here: {', '.join(served)}",
        next_step=f"write `{near}`, or remove the key" if near else "remove the key",
    )


def _locate(location: Path, data: Value, schema: Json) -> tuple[Path, Value, Json]:
    """Follow a location of pydantic through the document, as far as it was written, and the schema beside it.

    A location also names members of unions and keys that a short form stands for; those are left out.
    """
    path: Path = ()
    value: Any = data
    node = schema
    for part in location:
        in_map = isinstance(value, dict) and part in value
        items = cast("Sequence[Any]", value if isinstance(value, list) else ())
        if not in_map and not (isinstance(part, int) and part < len(items)):
            continue
        value = cast("Any", value)[part]
        path, node = (*path, part), _below(node, part)
    return path, cast("Value", value), node


def _below(node: Json, part: str | int) -> Json:
    for member in node.get("anyOf", [node]):
        if isinstance(part, int) and "items" in member:
            return cast("Json", member["items"])
        if part in member.get("properties", {}):
            return cast("Json", member["properties"][part])
        if isinstance(part, str) and isinstance(member.get("additionalProperties"), dict):
            return cast("Json", member["additionalProperties"])
    return {}


def _properties(node: Json) -> Mapping[str, Json]:
    for one in node.get("anyOf", [node]):
        if "properties" in one:
            return cast("Mapping[str, Json]", one["properties"])
    return {}


_TYPES = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}


def _accepts(node: Json, value: Value) -> bool:
    """Return whether the value is of the node's JSON type."""
    kinds = node.get("type", ())
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        if value is None:
            if kind == "null":
                return True
        elif isinstance(value, bool):
            if kind == "boolean":
                return True
        elif isinstance(value, cast("Any", _TYPES.get(kind, ()))):
            return True
    return False


def name_of(path: Path) -> str:
    """Return a path as people write it: `resources.any_of[1].infra`."""
    out = ""
    for part in path:
        word = part if isinstance(part, int) else shorten_value(part)
        out += f"[{part}]" if isinstance(part, int) else f".{word}" if out else str(word)
    return out


def type_words(value: Value) -> str:
    """Return what a value is, for people."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the text `{shorten_value(value)}`"
    if isinstance(value, list):
        return "a list"
    return "a map" if isinstance(value, dict) else f"the number {shorten_value(str(value))}"


def find_nul_characters(value: Value, path: Path = ()) -> Iterator[Issue]:
    """Yield an issue for every text with a NUL character, which no program can be given."""
    if isinstance(value, str) and "\x00" in value:
        what = f"`{name_of(path)}` contains a NUL character"
        yield Issue(path=path, what=what, why="no program can be given one", next_step="remove it")
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        yield from find_nul_characters(item, (*path, key))


def _describe_number(node: Json) -> str:
    if node["type"] == "number":
        least = "above 0" if "exclusiveMinimum" in node else "0 or more"
        most = node.get("maximum", LARGEST)
        return f"a number, {least}" + (f" and at most {most:,g}" if most < LARGEST else "")
    most = node.get("maximum", LARGEST)
    return f"a whole number, {node['minimum']}" + (f" to {most:,}" if most < LARGEST else " or more")
