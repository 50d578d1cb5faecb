"""Values out of a checked document, typed. What is absent or null is "", None, or empty."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.spec.yaml_reader import Value


def text(data: Mapping[str, Value], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""


def whole(data: Mapping[str, Value], name: str) -> int | None:
    value = data.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number(data: Mapping[str, Value], name: str) -> float | None:
    value = data.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def flag(data: Mapping[str, Value], name: str) -> bool:
    return data.get(name) is True


def section(data: Mapping[str, Value], name: str) -> Mapping[str, Value]:
    value = data.get(name)
    return value if isinstance(value, dict) else {}


def items(data: Mapping[str, Value], name: str) -> list[Value]:
    value = data.get(name)
    return value if isinstance(value, list) else []


def wholes(data: Mapping[str, Value], name: str) -> tuple[int, ...]:
    """A list of whole numbers, or a single one."""
    value = data.get(name)
    several = value if isinstance(value, list) else [value]
    return tuple(item for item in several if isinstance(item, int))
