"""Only requests that the caller's secret signed are served, unchanged, by each service of the simulated AWS."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from orch_fronts.aws.cloud import KEY, SimulatedAws

CALLS = {
    "ec2": ("describe_instances", {}, "AuthFailure"),
    "iam": ("get_role", {"RoleName": "r"}, "SignatureDoesNotMatch"),
    "sts": ("get_caller_identity", {}, "SignatureDoesNotMatch"),
    "ssm": ("get_parameter", {"Name": "/aws/p"}, "InvalidSignatureException"),
    "service-quotas": ("list_service_quotas", {"ServiceCode": "ec2"}, "InvalidSignatureException"),
    "s3": ("put_object", {"Bucket": "b", "Key": "k", "Body": b"1"}, "SignatureDoesNotMatch"),
}


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedAws]:
    with SimulatedAws(Path(tmp_path_factory.mktemp("aws"))) as made:
        yield made


@pytest.mark.parametrize("service", CALLS)
@pytest.mark.parametrize("port", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_a_wrong_secret_is_refused_as_aws_refuses_it(aws: SimulatedAws, service: str, port: str) -> None:
    if port.endswith("S3") and service != "s3":
        pytest.skip("this port serves only buckets")
    options = {"region_name": "us-east-1", "endpoint_url": aws.env[port], "aws_access_key_id": KEY}
    client: Any = boto3.client(service, aws_secret_access_key="another", **options)  # type: ignore[call-overload]  # any service
    operation, given, code = CALLS[service]
    with pytest.raises(ClientError) as refused:
        getattr(client, operation)(**given)
    assert refused.value.response["Error"]["Code"] == code


@pytest.mark.parametrize("port", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
@pytest.mark.parametrize("changed", ["nothing", "path", "query", "header", "body", "method"])
def test_a_signed_request_is_served_only_as_it_was_signed(aws: SimulatedAws, port: str, changed: str) -> None:
    url = f"{aws.env[port]}/mine/a%20%C3%BC"
    signed = AWSRequest("PUT", url, data=b"body", headers={"x-amz-meta-m": "a  b"})
    S3SigV4Auth(Credentials(KEY, aws.env["AWS_SECRET_ACCESS_KEY"]), "s3", "us-east-1").add_auth(signed)
    method, path, body, headers = "PUT", "/mine/a%20%C3%BC", b"body", dict(signed.headers.items())
    match changed:
        case "path":
            path = "/mine/other"
        case "query":
            path += "?uploads="
        case "header":
            headers["x-amz-meta-m"] = "c"
        case "body":
            body = b"evil"
        case "method":
            method, body = "GET", b""
        case _:
            pass
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
    connection.request(method, path, body or None, headers)
    answer = connection.getresponse()
    said = answer.read().decode()
    wanted = {"nothing": (200, ""), "body": (400, "XAmzContentSHA256Mismatch")}.get(
        changed, (403, "SignatureDoesNotMatch")
    )
    assert answer.status == wanted[0] and wanted[1] in said, said
