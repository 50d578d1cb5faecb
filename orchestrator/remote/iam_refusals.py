"""What a cloud's own proxy program prints when IAM refuses the connection, and which role is missing.

The texts are in the module `login_refusals` of each driver's folder. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.drivers import has_part, list_driver_names, load_part


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginRefusal:
    """A text that means a missing permission, and the lines that say what is missing and what to type."""

    pattern: re.Pattern[str]
    missing: str
    command: str


def explain_iam_refusal(text: str) -> str:
    """Return which role is missing and the command that gives it, or "" for an error that is no refusal by IAM."""
    found = next((one for one in _list_refusals() if one.pattern.search(text)), None)
    return f"{found.missing}\n{found.command}" if found is not None else ""


def _list_refusals() -> Iterator[LoginRefusal]:
    for name in list_driver_names():
        if has_part(name, "login_refusals"):
            yield from load_part(name, "login_refusals").REFUSALS
