"""What editors complete and check beyond the fields: names of machines and settings of the trainer, as JSON Schema.

A machine's name may be written in many ways, so the known ones are offered and any other text stays valid. Settings of
the trainer are a closed list, as in the reader.
"""

from __future__ import annotations

from typing import Any, cast

from orchestrator.catalog.accelerators import list_common_names
from orchestrator.catalog.rented import load_tables
from orchestrator.task.section import Json
from orchestrator.task.trainer_settings import MODEL, TrainerSetting, load_settings

_TYPES: dict[str, tuple[str, ...]] = {
    "bool": ("boolean", "string"),
    "int": ("integer", "string"),
    "float": ("number", "string"),
    "str": ("string",),
}


def add_names(schema: Json) -> Json:
    """Return the schema of a task with the names of machines, the trainer's settings and the alias `gpus`."""
    resources = _map_of(schema["properties"]["resources"])
    places = [resources, *(_map_of(_member(resources["properties"][name], "items")["items"]) for name in _LISTS)]
    for place in places:
        properties = place["properties"]
        for name in ("accelerators", "instance_type"):
            properties[name]["anyOf"] = [{"$ref": f"#/$defs/{name}"}, *properties[name]["anyOf"]]
        properties["gpus"] = {**properties["accelerators"], "description": "the dialect's other name of accelerators"}
    args = _member(_map_of(schema["properties"]["train"])["properties"]["args"], "additionalProperties")
    args.pop("propertyNames", None)
    args |= _describe_settings()
    names = {"accelerators": {"enum": _list_accelerators()}, "instance_type": {"enum": _list_instance_types()}}
    return {**schema, "$defs": names}


_LISTS = ("any_of", "ordered")


def _member(node: Json, key: str) -> Json:
    """Return the member of a union that has a key."""
    return next(member for member in cast("list[Json]", node["anyOf"]) if key in member)


def _map_of(node: Json) -> Json:
    return node if "properties" in node else _member(node, "properties")


def _list_accelerators() -> list[str]:
    types = set(_list_instance_types())
    return [name for name in dict.fromkeys(list_common_names()) if name not in types]


def _list_instance_types() -> list[str]:
    return sorted({machine.name for table in load_tables() for machine in table.list_machines()})


def _describe_settings() -> Json:
    """Return the settings, dotted and nested, with their help."""
    known = load_settings()
    properties: Json = {}
    nested: dict[str, Json] = {}
    for name, setting in known.keys.items():
        properties[name] = _describe_setting(setting)
        section, dot, inner = name.partition(".")
        if dot:
            nested.setdefault(section, {})[inner] = properties[name]
    for alias, name in known.aliases.items():
        properties[alias] = properties[name]
    for section, inside in nested.items():
        members: list[Json] = [{"type": "object", "properties": inside, "additionalProperties": False}]
        if section == MODEL:
            members.append({"enum": list(known.presets)})
        elif section in properties:
            members.append(properties[section])
        properties[section] = {"description": f"settings {section}.*", "anyOf": [*members, {"type": "null"}]}
    return {"properties": properties, "additionalProperties": False}


def _describe_setting(setting: TrainerSetting) -> Json:
    about: Json = {"description": setting.doc, **({"default": setting.default} if setting.default else {})}
    if setting.kind == "choice":
        flags = [True, False] if "true" in setting.choices else []  # YAML reads true without quotes as one
        words: list[Any] = [*setting.choices, *(["auto"] if setting.auto else []), *flags, None]
        return {**about, "enum": list(dict.fromkeys(words))}
    limits = {"minimum": setting.least, "maximum": setting.most}
    return {
        **about,
        "type": [*_TYPES[setting.kind], "null"],
        **{name: limit for name, limit in limits.items() if limit is not None},
    }
