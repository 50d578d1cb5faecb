"""Every request that can be planned against botocore's model: names, types, lengths, enumerations, nothing dropped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import parse_qsl, urlencode

import pytest
from aws_cases import KNOWN, every
from botocore.model import OperationModel, ServiceModel
from botocore.serialize import create_serializer
from botocore.session import get_session
from botocore.validate import ParamValidator

from orchestrator.catalog.ec2 import load_instances
from orchestrator.providers.aws.parameters import filled, revealed
from orchestrator.providers.aws.planner import PLANNER
from orchestrator.providers.aws.unknowns import USER_DATA
from orchestrator.slices import CapacityBlock, Request, Spot

UNKNOWN_TYPE = "p9.48xlarge"


@pytest.fixture(scope="module")
def models() -> dict[str, ServiceModel]:
    session = get_session()
    return {name: session.get_service_model(name) for name in ("ec2", "ssm", "service-quotas")}


@pytest.fixture(scope="module")
def planned() -> list[Request]:
    """Each different request once."""
    found: dict[str, Request] = {}
    for made in every().values():
        wholes = [PLANNER.create_request(made), PLANNER.end_request(made.name, made.candidate)]
        if not isinstance(made.candidate.market, Spot | CapacityBlock):
            wholes += [PLANNER.stop_request(made.name, made.candidate)]
            wholes += [PLANNER.start_request(made.name, made.candidate)]
        for whole in wholes:
            for request in whole.in_order:
                found.setdefault(repr((request.service, request.method, request.body)), request)
    return list(found.values())


def parameters(request: Request) -> dict[str, Any]:
    return cast(dict[str, Any], revealed(filled(request.body, KNOWN | {USER_DATA: "x"})))


def test_grid_is_wide(planned: list[Request]) -> None:
    assert len(planned) > 200
    assert len({request.method for request in planned}) == 23


def test_botocore_finds_nothing_wrong(planned: list[Request], models: dict[str, ServiceModel]) -> None:
    validator = ParamValidator()
    for request in planned:
        report = validator.validate(parameters(request), model(models, request).input_shape)
        assert not report.has_errors(), (request.method, report.generate_report())


def test_every_enumerated_value_is_one(planned: list[Request], models: dict[str, ServiceModel]) -> None:
    strange = {
        value
        for request in planned
        for value, allowed in enumerated(parameters(request), model(models, request).input_shape)
        if value not in allowed
    }
    newer = strange & set(load_instances())  # than this botocore: tests/catalog/test_ec2_rows.py judges their names
    assert strange - newer == {UNKNOWN_TYPE}, "a type that botocore does not know is planned all the same"


def test_nothing_is_dropped_on_the_way(planned: list[Request], models: dict[str, ServiceModel]) -> None:
    for request in planned:
        operation, given = model(models, request), parameters(request)
        sent = create_serializer(models[request.service].metadata["protocol"]).serialize_to_request(given, operation)
        if request.service != "ec2":
            assert json.loads(sent["body"]) == given
            continue
        fields = parse_qsl(urlencode(sent["body"]), keep_blank_values=True, strict_parsing=True)
        values = [value for name, value in fields if name not in ("Action", "Version")]
        assert sorted(values) == sorted(leaves(given)), request.method


def model(models: Mapping[str, ServiceModel], request: Request) -> OperationModel:
    return models[request.service].operation_model(request.method)


def enumerated(value: Any, shape: Any) -> Iterator[tuple[str, list[str]]]:
    if shape.type_name == "structure":
        for key, item in value.items():
            yield from enumerated(item, shape.members[key])
    elif shape.type_name == "list":
        for item in value:
            yield from enumerated(item, shape.member)
    elif getattr(shape, "enum", None):
        yield value, shape.enum


def leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for item in cast(dict[str, Any], value).values():
            yield from leaves(item)
    elif isinstance(value, list):
        for item in cast(list[Any], value):
            yield from leaves(item)
    else:
        yield str(value).lower() if isinstance(value, bool) else str(value)
