"""A request to AWS as the words of the `aws` command line that sends the same. Pure.

The rule, seen with awscli 1.46 against a recording server (November 2026; tests/aws): an operation and its parameters
in kebab case; lists of words as several words, other structures as JSON, a switch as --name or --no-name. RunInstances
has one --count for its two counts. User-data comes from a file: it holds host keys, and command lines are no secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import cast

from orchestrator.providers.aws.parameters import as_json
from orchestrator.providers.aws.unknowns import USER_DATA_FILE
from orchestrator.values import Text, to_text

_COUNTS = ("MinCount", "MaxCount")


def command(
    service: str, operation: str, parameters: Mapping[str, object], *, region: str, profile: str = ""
) -> tuple[Text, ...]:
    """service: as boto3 calls it, "ec2". operation: as the API calls it, "RunInstances"."""
    words: list[str | Text] = ["aws", service, kebab(operation), "--region", region]
    if profile:
        words += ["--profile", profile]
    for name, value in parameters.items():
        if name == "UserData":
            words += ["--user-data", Text.of("file://", USER_DATA_FILE)]
        elif operation == "RunInstances" and name in _COUNTS:
            words += _count(parameters) if name == _COUNTS[0] else []
        else:
            words += _option(kebab(name), value)
    return tuple(to_text(word) for word in words)


def kebab(name: str) -> str:
    """`RunInstances` as `run-instances`."""
    return re.sub(r"([a-z0-9])([A-Z])", r"\1-\2", re.sub(r"(.)([A-Z][a-z]+)", r"\1-\2", name)).lower()


def _option(name: str, value: object) -> list[str | Text]:
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    if isinstance(value, str | Text):
        return [f"--{name}", value]
    if isinstance(value, int | float):
        return [f"--{name}", str(value)]
    if words := _words(value):
        return [f"--{name}", *words]
    return [f"--{name}", as_json(value)]


def _words(value: object) -> Sequence[str | Text]:
    """A list of nothing but words; () for any other value."""
    items: Sequence[object] = cast(Sequence[object], value) if isinstance(value, list) else ()
    return cast(Sequence[str | Text], items) if all(isinstance(item, str | Text) for item in items) else ()


def _count(parameters: Mapping[str, object]) -> list[str | Text]:
    least, most = (str(parameters[name]) for name in _COUNTS)
    return ["--count", least if least == most else f"{least}:{most}"]
