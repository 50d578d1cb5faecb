"""The codec against botocore: its serializer's requests are read, and its parser reads the answers."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest
from botocore.parsers import create_parser
from botocore.serialize import create_serializer

from orch_fronts.aws.calls import AwsRefusal
from orch_fronts.aws.codec import Codec, codec_of
from orch_fronts.aws.refusals import in_form

MOMENT = datetime(2026, 11, 20, 11, 30, 0, tzinfo=UTC)
SAMPLES: dict[str, Any] = {
    "string": "a <b> & \"c\" 'd' ü",
    "character": "x",
    "integer": 7,
    "long": 1 << 40,
    "float": 1.5,
    "double": 2.25,
    "boolean": True,
    "timestamp": MOMENT,
    "blob": b"\x00\xffbytes",
}


def _example(shape: Any, above: tuple[str, ...] = ()) -> Any:
    """A value with every member of the shape; a shape inside itself is left out."""
    if shape.type_name == "structure":
        inside = {name: _example(member, (*above, shape.name)) for name, member in shape.members.items()}
        return {name: value for name, value in inside.items() if value is not None} if shape.name not in above else None
    if shape.type_name == "list":
        one, other = _example(shape.member, above), _example(shape.member, above)
        return None if one in (None, {}) else [one, other]
    if shape.type_name == "map":
        return {"key": _example(shape.value, above)}
    return shape.enum[0] if getattr(shape, "enum", None) else SAMPLES[shape.type_name]


def _plain(value: Any) -> Any:
    """Times as seconds; what is empty is not sent."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items() if each not in ({}, [])}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.timestamp() if isinstance(value, datetime) else value


@pytest.mark.parametrize("service", ["ec2", "sts", "iam"])
def test_every_request_of_the_model_is_read_as_it_was_meant(service: str) -> None:
    codec = codec_of(service)
    serializer = create_serializer(codec.model.metadata["protocol"], include_validation=False)
    read = 0
    for name in codec.model.operation_names:
        operation = codec.model.operation_model(name)
        if operation.input_shape is None:
            continue
        given = _example(operation.input_shape)
        sent = dict(parse_qsl(urlencode(serializer.serialize_to_request(given, operation)["body"])))
        assert codec.decode(name, sent) == _plain(given), name
        read += 1
    assert read > (800 if service == "ec2" else 5)


@pytest.mark.parametrize("service", ["ec2", "sts", "iam"])
def test_every_answer_of_the_model_is_read_by_botocore_as_it_was_meant(service: str) -> None:
    codec = codec_of(service)
    parser = create_parser(codec.model.metadata["protocol"])
    read = 0
    for name in codec.model.operation_names:
        shape = codec.model.operation_model(name).output_shape
        if shape is None:
            continue
        given = _example(shape)
        raw = {"status_code": 200, "headers": {}, "body": codec.encode(name, _plain(given))}
        answer = parser.parse(raw, shape)
        assert answer.pop("ResponseMetadata")["RequestId"], name
        assert _plain(answer) == _plain(given), name
        read += 1
    assert read > (750 if service == "ec2" else 5)


@pytest.mark.parametrize("service", ["ec2", "iam"])
def test_a_refusal_is_read_by_botocore(service: str) -> None:
    codec = codec_of(service)
    answer = in_form(service, AwsRefusal("Some.Code", "a <word> & more", 403))
    raw = {"status_code": answer.status, "headers": {}, "body": answer.body}
    parsed = create_parser(codec.model.metadata["protocol"]).parse(raw, None)
    assert (parsed["Error"]["Code"], parsed["Error"]["Message"]) == ("Some.Code", "a <word> & more")
    assert parsed["ResponseMetadata"]["HTTPStatusCode"] == 403
    assert parsed["ResponseMetadata"]["RequestId"]


@pytest.mark.parametrize(
    ("operation", "flat", "code"),
    [
        ("NoSuchThing", {}, "InvalidAction"),
        ("RunInstances", {"MinCount": "1", "MaxCount": "1", "Nonsense": "1"}, "UnknownParameter"),
        ("RunInstances", {"MinCount": "1", "MaxCount": "1", "Placement.Nonsense": "1"}, "UnknownParameter"),
        ("RunInstances", {"MinCount": "one", "MaxCount": "1"}, "InvalidParameterValue"),
        ("RunInstances", {"MinCount": "1", "MaxCount": "1", "DryRun": "perhaps"}, "InvalidParameterValue"),
        ("RunInstances", {"MinCount": "1", "MaxCount": "1", "SecurityGroupId": "sg-1"}, "InvalidParameterValue"),
        ("RunInstances", {"MinCount": "1", "MaxCount": "1", "Placement": "here"}, "InvalidParameterValue"),
        ("RunInstances", {"MinCount": "1"}, "MissingParameter"),
        ("RunInstances", {"Placement": "x", "Placement.GroupName": "x"}, "InvalidParameter"),
    ],
)
def test_what_is_not_in_the_model_is_refused(operation: str, flat: dict[str, str], code: str) -> None:
    with pytest.raises(AwsRefusal) as caught:
        codec_of("ec2").decode(operation, flat)
    assert caught.value.code == code


def test_lists_are_read_by_their_numbers() -> None:
    flat = {f"InstanceId.{number}": f"i-{number}" for number in (10, 9, 2)}
    assert codec_of("ec2").decode("DescribeInstances", flat) == {"InstanceIds": ["i-2", "i-9", "i-10"]}


def test_an_answer_with_an_unknown_member_is_a_fault_of_the_simulator() -> None:
    with pytest.raises(KeyError, match="Nonsense"):
        codec_of("ec2").encode("AllocateAddress", {"Nonsense": 1})


def test_two_threads_may_ask_for_a_new_shape_together() -> None:
    codec, interval = Codec("ec2"), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            for name in sorted(codec.model.operation_names)[:200]:
                tuple(threads.map(codec.encode, [name] * 8, [{}] * 8))
    finally:
        sys.setswitchinterval(interval)
