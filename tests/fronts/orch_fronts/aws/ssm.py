"""Systems Manager: the public parameters that lead to images, and none of the user's own.

Source: Systems Manager API reference, GetParameter, GetParameters, GetParametersByPath (read November 2026).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

from orch_fronts.aws.asking import ask, page
from orch_fronts.aws.calls import AwsAnswer, AwsCall, AwsRefusal, Need
from orch_fronts.aws.images import by_parameter
from orchestrator.simulator.access import Access

_PAGE = 10  # of GetParametersByPath and GetParameters, at most


class SsmFront:
    """access: whose faults befall the calls; None for no cloud."""

    def __init__(self, access: Access | None = None) -> None:
        self._access = access

    def needs(self, call: AwsCall) -> Sequence[Need]:
        return [Need(action=f"ssm:{call.operation}", resource=_arn(call.region, name)) for name in _subjects(call)]

    def handle(self, call: AwsCall) -> AwsAnswer:
        subjects = _subjects(call)
        ask(self._access, call, subjects[0])
        match call.operation:
            case "GetParameter":
                if subjects[0] not in by_parameter():
                    raise AwsRefusal("ParameterNotFound", f"Parameter {subjects[0]} not found.")
                return AwsAnswer.of_json({"Parameter": _shown(subjects[0], call.region)})
            case "GetParameters":
                found = [name for name in subjects if name in by_parameter()]
                answer = {
                    "Parameters": [_shown(name, call.region) for name in found],
                    "InvalidParameters": [name for name in subjects if name not in found],
                }
                return AwsAnswer.of_json(answer)
            case _:
                return AwsAnswer.of_json(_by_path(call))


def _subjects(call: AwsCall) -> list[str]:
    """Names or the path that it asks for. Raises AwsRefusal."""
    name = {"GetParameter": "Name", "GetParameters": "Names", "GetParametersByPath": "Path"}.get(call.operation)
    if name is None:
        raise AwsRefusal("UnknownOperationException", f"{call.operation} is not served")
    value: Any = call.params.get(name)
    given = cast(Sequence[Any], value) if isinstance(value, list) else (value,)
    texts = [one for one in given if isinstance(one, str) and one]
    if not texts or len(texts) != len(given) or len(texts) > _PAGE:
        raise AwsRefusal("ValidationException", f"1 validation error detected: Value at '{name.lower()}' is not valid")
    return texts


def _by_path(call: AwsCall) -> dict[str, Any]:
    """What stands right below the path, or anywhere below it."""
    path = str(call.params["Path"]).rstrip("/") + "/"
    deep = call.params.get("Recursive") is True
    below = [name for name in by_parameter() if name.startswith(path) and (deep or "/" not in name[len(path) :])]
    names, token = page(sorted(below), call, _PAGE)
    return {"Parameters": [_shown(name, call.region) for name in names]} | ({"NextToken": token} if token else {})


def _shown(name: str, region: str) -> dict[str, Any]:
    """Public parameters belong to no account."""
    image = by_parameter()[name]
    return {
        "ARN": _arn(region, name),
        "DataType": "text",
        "LastModifiedDate": datetime.fromisoformat(image.created).timestamp(),
        "Name": name,
        "Type": "String",
        "Value": image.ami(region),
        "Version": 1,
    }


def _arn(region: str, name: str) -> str:
    return f"arn:aws:ssm:{region}::parameter/{name.removeprefix('/')}"
