"""Files made from the models of a task file: schema for editors, keys of the configuration, table of fields.

python -m orchestrator.task.export     writes all of them; a test fails when one is out of date
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import cast

from orchestrator.options import list_identity_options
from orchestrator.task.computer_settings import (
    FilesSettings,
    LocalSettings,
    NotifySettings,
    SshSettings,
    StoreSettings,
    TeamSettings,
)
from orchestrator.task.driver_sections import list_driver_options
from orchestrator.task.editor_names import add_names
from orchestrator.task.model import TaskSection
from orchestrator.task.schema import describe, list_choices
from orchestrator.task.section import Json, Section

DATA = FilePath(__file__).parent / "data"
SCHEMA_FILE = DATA / "task.schema.json"
CONFIG_FILE = DATA / "config.json"
TABLE_FILE = FilePath(__file__).parents[2] / "docs" / "task-files.md"
SCHEMA_ID = "urn:orch:task-file"
_MARKS = ("<!-- fields -->\n", "<!-- /fields -->")
_OF_THIS_COMPUTER: Mapping[str, type[Section]] = {
    "ssh": SshSettings, "local": LocalSettings, "store": StoreSettings, "files": FilesSettings,
    "notify": NotifySettings,
}  # fmt: skip
_KINDS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list"}


def make_task_schema(section: type[Section] = TaskSection) -> Json:
    """Return the JSON Schema (2020-12) of one task document. Rules about several fields are not in it: see rules.py."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "orch task",
        "description": "A task of orch: machines, what to install on them, and what to run. docs/task-files.md",
        **add_names(_with_nulls(section.json_schema())),
    }


def _with_nulls(node: Json) -> Json:
    """Allow null for every key of a section, and leave out what only orch reads."""
    made = {key: value for key, value in node.items() if not key.startswith("x-") and key != "properties"}
    if "x-form" in node:
        made["title"] = node["x-form"]
    if isinstance(made.get("additionalProperties"), dict):
        made["additionalProperties"] = _with_nulls(made["additionalProperties"])
    if "items" in made:
        made["items"] = _with_nulls(made["items"])
    if "anyOf" in made:
        made["anyOf"] = [_with_nulls(member) for member in made["anyOf"]]
    if "properties" in node:
        made["properties"] = {name: _or_null(_with_nulls(inner)) for name, inner in node["properties"].items()}
    return made


def _or_null(node: Json) -> Json:
    if "not" in node:
        return node
    about: Json = {key: node.pop(key) for key in ("description", "default") if key in node}
    return {**about, "anyOf": [*(node["anyOf"] if set(node) == {"anyOf"} else [node]), {"type": "null"}]}


def list_fields(node: Json, prefix: str = "") -> Iterator[tuple[str, Json]]:
    """Yield every field with its dotted path; `*` stands for the user's own word, `[]` for an item."""
    for name, field in node.get("properties", {}).items():
        path = f"{prefix}{name}"
        yield path, field
        if name not in ("any_of", "ordered"):
            yield from list_fields(field, f"{path}.")
    for member in node.get("anyOf", ()):
        yield from list_fields(member, prefix)
    stem = prefix.removesuffix(".")
    if "items" in node:
        yield from list_fields(node["items"], f"{stem}[].")
    if isinstance(node.get("additionalProperties"), dict):
        yield from list_fields(node["additionalProperties"], f"{stem}.*.")


def make_fields_table(section: type[Section] = TaskSection) -> str:
    """Return every field as a Markdown table: path, what it may be, what it means or why it is not served."""
    rows = ["| field | may be | meaning |", "| --- | --- | --- |"]
    for path, field in list_fields(section.json_schema()):
        if "not" in field:
            rows.append(f"| `{path}` | not served | {field['description']}: {field['x-instead']} |")
            continue
        whose = " (ours)" if field.get("x-own") else ""
        choices = " or ".join(f"`{choice}`" for choice in list_choices(field))
        default = f" (default {_format(field['default'])})" if "default" in field else ""
        rows.append(f"| `{path}`{whose} | {choices or describe(field)} | {field['description']}{default} |")
    return "\n".join(rows) + "\n"


def _format(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else json.dumps(value) if isinstance(value, bool) else f"{value}"


def make_config_keys(task: type[Section] = TaskSection) -> list[Json]:
    """Return the keys of the configuration, in the order of their sections."""
    of_tasks = [
        _config_key(path.removeprefix("config."), path, field)
        for path, field in list_fields(task.json_schema())
        if "x-config" in field
    ]
    of_this_computer = [
        _config_key(f"{section}.{name}", "", field)
        for section, settings in _OF_THIS_COMPUTER.items()
        for name, field in list_fields(settings.json_schema())
    ]
    of_teams = [
        {**_config_key(f"team.{name}", "", field), "own_variable": f"ORCH_{name.upper()}"}
        for name, field in list_fields(TeamSettings.json_schema())
    ]
    return [*of_tasks, *of_this_computer, *of_teams]


def _config_key(full_name: str, path: str, field: Json) -> Json:
    section, name = full_name.split(".")
    built_in = field.get("x-unset", field.get("default"))
    choices = list_choices(field)
    first = cast("Mapping[str, object]", field.get("anyOf", [field])[0])
    drivers = list_driver_options()
    identity = section in drivers and name in list_identity_options(drivers[section].kind)
    return {
        "section": section,
        "name": name,
        "kind": _KINDS[str(first["type"])],
        "meaning": field["description"] + (f": {', '.join(choices)}" if choices else ""),
        "task_path": path,
        "built_in": built_in,
        **({"identity": True} if identity else {}),
    }


def make_files() -> dict[FilePath, str]:
    """Return the text of every file that is made from the models."""
    page = TABLE_FILE.read_text(encoding="utf-8")
    before, _, rest = page.partition(_MARKS[0])
    after = rest.partition(_MARKS[1])[2]
    return {
        SCHEMA_FILE: json.dumps(make_task_schema(), indent=2) + "\n",
        CONFIG_FILE: json.dumps(make_config_keys(), indent=1) + "\n",
        TABLE_FILE: f"{before}{_MARKS[0]}{make_fields_table()}{_MARKS[1]}{after}",
    }


if __name__ == "__main__":
    for file, text in make_files().items():
        file.write_text(text, encoding="utf-8")
