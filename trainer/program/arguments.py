"""What a program gives to orch_run, checked: a wrong value is a ConfigError that names the call."""

from __future__ import annotations

import math
import operator
from typing import Any

from ..checkpoint.manifest import LARGEST
from ..errors import ConfigError


def parse_whole(what: str, value: Any, least: int) -> int:
    """Return a whole number; those of numpy and torch are such numbers, too.

    Raises:
        ConfigError: It is something else, below `least`, or too large for files.
    """
    try:
        number = operator.index(value)
    except Exception:  # tensors raise various errors
        number = None
    if number is None or isinstance(value, bool) or not least <= number <= LARGEST:
        raise ConfigError(f"{what}={_show(value)}: a whole number from {least}")
    return number


def parse_numbers(metrics: Any) -> dict[str, float | None]:
    """Return the numbers of a step by their names; None for those that JSON does not have.

    Raises:
        ConfigError: They are no mapping of texts to numbers.
    """
    try:
        given: dict[Any, Any] = dict(metrics)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"heartbeat(metrics={_show(metrics)}): a dict of numbers, such as {{'loss': 0.5}}") from error
    return {_parse_name(name): _parse_number(name, value) for name, value in given.items()}


def _parse_name(name: Any) -> str:
    if not isinstance(name, str):
        raise ConfigError(f"heartbeat(metrics={{{_show(name)}: ...}}): the name of a number is a text")
    return name


def _parse_number(name: str, value: Any) -> float | None:
    try:
        number = None if isinstance(value, str | bytes) else float(value)
    except Exception:  # tensors raise various errors
        number = None
    if number is None:
        raise ConfigError(f"heartbeat(metrics={{{name!r}: {_show(value)}}}): a number")
    return number if math.isfinite(number) else None


def _show(value: Any) -> str:
    """Return a value as Python writes it, cut; some cannot be written."""
    try:
        text = repr(value)
    except ValueError:  # a whole number of thousands of digits
        return f"a huge {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:60]}..."
