"""The table of fields for people and for editors. Both files are checked by a test against what this makes:

python -m orchestrator.spec.export schema > orchestrator/spec/data/task.schema.json
python -m orchestrator.spec.export table            (to be pasted between the marks in docs/task-files.md)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from orchestrator.spec.dialect import TASK
from orchestrator.spec.schema import Field, Json, Kind, ListOf, MapOf, OneOf, Refused, Section


def task_schema() -> Json:
    """JSON Schema (2020-12) of one task document. Combinations that cannot be are not in it: see rules.py."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "orch task",
        **TASK.json_schema(),
    }


def schema_text() -> str:
    return json.dumps(task_schema(), indent=2) + "\n"


def fields_table() -> str:
    """Every field as a Markdown table: path, what it may be, what it means or why it is not served."""
    rows = ["| field | may be | meaning |", "| --- | --- | --- |"]
    for path, field in all_fields(TASK):
        if isinstance(field, Refused):
            instead = f": {field.instead}" if field.instead else ""
            rows.append(f"| `{path}` | not served | {field.reason}{instead} |")
        else:
            whose = " (ours)" if field.ours else ""
            rows.append(f"| `{path}`{whose} | {_may_be(field.kind)} | {field.meaning} |")
    return "\n".join(rows) + "\n"


def all_fields(section: Section, prefix: str = "") -> Iterator[tuple[str, Field | Refused]]:
    """Every field with its dotted path; `*` stands for the user's own word, `[]` for an item."""
    for field in section.fields:
        path = f"{prefix}{field.name}"
        yield path, field
        if isinstance(field, Field) and field.name not in ("any_of", "ordered"):
            for inner, suffix in _sections(field.kind):
                yield from all_fields(inner, f"{path}{suffix}.")


def _sections(kind: Kind) -> Iterator[tuple[Section, str]]:
    if isinstance(kind, Section):
        yield kind, ""
    elif isinstance(kind, OneOf):
        for one in kind.kinds:
            yield from _sections(one)
    elif isinstance(kind, ListOf):
        yield from ((inner, f"[]{suffix}") for inner, suffix in _sections(kind.item))
    elif isinstance(kind, MapOf):
        yield from ((inner, f".*{suffix}") for inner, suffix in _sections(kind.value))


def _may_be(kind: Kind) -> str:
    choices = getattr(kind, "choices", ())
    return " or ".join(f"`{choice}`" for choice in choices) if choices else kind.words


def main(words: list[str]) -> int:
    if words == ["schema"]:
        sys.stdout.write(schema_text())
    elif words == ["table"]:
        sys.stdout.write(fields_table())
    else:
        sys.stderr.write("say schema or table\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
