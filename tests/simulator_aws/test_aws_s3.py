"""The pretend S3 keeps the documented rules itself; asked with boto3 and the `aws` command, not with our client."""

from __future__ import annotations

import http.client
import io
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from orch_fronts.aws import checksums
from orch_fronts.aws.s3 import S3Server, s3_server
from orch_fronts.buckets import MIN_PART, Refusal

KEY = "AKIATEST"


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server(KEY) as made:
        yield made


@pytest.fixture(scope="module")
def client(server: S3Server) -> Any:
    return _client(server)


@pytest.fixture
def bucket(server: S3Server, request: pytest.FixtureRequest) -> str:
    name = f"b-{abs(hash(request.node.name)):x}"
    server.create_bucket(name)
    return name


def _client(server: S3Server, region: str = "us-east-1", key: str = KEY) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=server.url,
        region_name=region,
        aws_access_key_id=key,
        aws_secret_access_key="secret",
        config=Config(retries={"total_max_attempts": 1}, proxies={}),
    )


def _refused(call: Any, **params: Any) -> tuple[str, int]:
    with pytest.raises(ClientError) as caught:
        call(**params)
    response = caught.value.response
    return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]


def test_a_write_can_ask_that_nothing_is_there_or_that_nothing_changed(client: Any, bucket: str) -> None:
    at = {"Bucket": bucket, "Key": "k"}
    first = client.put_object(**at, Body=b"1", IfNoneMatch="*")["ETag"]
    assert _refused(client.put_object, **at, Body=b"2", IfNoneMatch="*") == ("PreconditionFailed", 412)
    assert _refused(client.put_object, **at, Body=b"2", IfNoneMatch=first) == ("NotImplemented", 501)
    second = client.put_object(**at, Body=b"2", IfMatch=first)["ETag"]
    assert _refused(client.put_object, **at, Body=b"3", IfMatch=first) == ("PreconditionFailed", 412)
    assert _refused(client.put_object, Bucket=bucket, Key="no", Body=b"", IfMatch=first) == ("NoSuchKey", 404)
    assert _refused(client.get_object, **at, IfMatch=first) == ("PreconditionFailed", 412)
    assert _refused(client.get_object, **at, IfNoneMatch=second)[1] == 304
    assert _refused(client.delete_object, **at, IfMatch=first) == ("PreconditionFailed", 412)
    assert client.get_object(**at)["Body"].read() == b"2"
    client.delete_object(**at, IfMatch=second)
    client.delete_object(**at)
    assert _refused(client.head_object, **at)[1] == 404


def test_a_completed_upload_keeps_the_same_conditions_and_the_rules_of_parts(client: Any, bucket: str) -> None:
    at = {"Bucket": bucket, "Key": "big"}
    upload = client.create_multipart_upload(**at, Metadata={"a": "ü".encode().hex()}, ContentType="text/x")["UploadId"]
    sizes = {1: 5, 2: MIN_PART, 3: 7}
    tags = {
        n: client.upload_part(**at, UploadId=upload, PartNumber=n, Body=b"x" * size)["ETag"]
        for n, size in sizes.items()
    }

    def complete(*numbers: int, **more: str) -> Any:
        parts = {"Parts": [{"PartNumber": n, "ETag": tags[n]} for n in numbers]}
        return {**at, "UploadId": upload, "MultipartUpload": parts, **more}

    finish = client.complete_multipart_upload
    assert _refused(finish, **complete(1, 2)) == ("EntityTooSmall", 400)
    assert _refused(finish, **complete(3, 2)) == ("InvalidPartOrder", 400)
    assert [one["Size"] for one in client.list_parts(**at, UploadId=upload)["Parts"]] == [5, MIN_PART, 7]
    assert [one["Key"] for one in client.list_multipart_uploads(Bucket=bucket)["Uploads"]] == ["big"]
    client.put_object(**at, Body=b"there")
    assert _refused(finish, **complete(2, 3), IfNoneMatch="*") == ("PreconditionFailed", 412)
    client.delete_object(**at)
    made = finish(**complete(2, 3), IfNoneMatch="*")["ETag"]
    seen = client.head_object(**at)
    assert (seen["ContentLength"], seen["ETag"], seen["ContentType"]) == (MIN_PART + 7, made, "text/x")
    assert made.endswith('-2"') and seen["Metadata"] == {"a": "c3bc"}
    assert _refused(finish, **complete(2, 3)) == ("NoSuchUpload", 404)
    other = client.create_multipart_upload(**at)["UploadId"]
    client.abort_multipart_upload(**at, UploadId=other)
    assert "Uploads" not in client.list_multipart_uploads(Bucket=bucket)


def test_bytes_that_are_not_those_that_were_sent_are_refused(client: Any, bucket: str) -> None:
    at = {"Bucket": bucket, "Key": "k"}
    for said in ({"ChecksumCRC32": "AAAAAA=="}, {"ChecksumSHA256": "A" * 43 + "="}, {"ContentMD5": "AAAA"}):
        assert _refused(client.put_object, **at, Body=b"data", **said)[0] == "BadDigest"
    client.put_object(**at, Body=b"data")
    seen = client.get_object(**at, ChecksumMode="ENABLED")
    assert (seen["ChecksumCRC32"], seen["ChecksumType"], seen["Body"].read()) == ("rfPzYw==", "FULL_OBJECT", b"data")
    assert "ChecksumCRC32" not in client.head_object(**at), "it is told when it is asked for"
    with pytest.raises(Refusal, match="XAmzContentSHA256Mismatch"):
        checksums.check_payload("0" * 64, b"data")


def test_a_transfer_in_parts_comes_back_with_its_checksum(client: Any, bucket: str) -> None:
    data = os.urandom(9 << 20)
    client.upload_fileobj(io.BytesIO(data), bucket, "big")
    back = io.BytesIO()
    client.download_fileobj(bucket, "big", back)
    assert back.getvalue() == data
    seen = client.head_object(Bucket=bucket, Key="big", ChecksumMode="ENABLED")
    assert seen["ChecksumType"] == "COMPOSITE" and seen["ChecksumCRC32"].endswith("-2")
    at = {"Bucket": bucket, "Key": "other"}
    upload = client.create_multipart_upload(**at, ChecksumAlgorithm="CRC32")["UploadId"]
    part = client.upload_part(**at, UploadId=upload, PartNumber=1, Body=b"x")
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    wrong = {"UploadId": upload, "MultipartUpload": parts, "ChecksumCRC32": "AAAAAA==-1"}
    assert _refused(client.complete_multipart_upload, **at, **wrong) == ("BadDigest", 400)


def test_a_body_in_signed_chunks_is_what_the_chunks_hold() -> None:
    body = b"4;chunk-signature=a\r\nWi\r\n\r\n2\r\nki\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n"
    assert checksums.unchunk(body) == (b"Wi\r\nki", {"x-amz-checksum-crc32": "AAAAAA=="})
    with pytest.raises(ValueError, match="chunk"):
        checksums.unchunk(b"3\r\nWiki\r\n0\r\n\r\n")


def test_listings_go_on_where_they_stopped_with_folders_and_strange_names(client: Any, bucket: str) -> None:
    names = ["a/1", "a/ü +&%", "b", "c/d/e", "<x>"]
    for name in names:
        client.put_object(Bucket=bucket, Key=name, Body=b"")
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, PaginationConfig={"PageSize": 2})
    assert [one["Key"] for page in pages for one in page["Contents"]] == sorted(names, key=str.encode)
    level = client.list_objects_v2(Bucket=bucket, Delimiter="/")
    assert [one["Prefix"] for one in level["CommonPrefixes"]] == ["a/", "c/"]
    assert [one["Key"] for one in level["Contents"]] == ["<x>", "b"]
    after = client.list_objects_v2(Bucket=bucket, StartAfter="a/1", Prefix="a/")
    assert [one["Key"] for one in after["Contents"]] == ["a/ü +&%"]


def test_copies_and_deletions_of_several(client: Any, bucket: str) -> None:
    client.put_object(Bucket=bucket, Key="a b/ü", Body=b"x" * 10, Metadata={"m": "1"})
    source = {"Bucket": bucket, "Key": "a b/ü"}
    client.copy_object(Bucket=bucket, Key="copy", CopySource=source)
    assert client.head_object(Bucket=bucket, Key="copy")["Metadata"] == {"m": "1"}
    assert _refused(client.copy_object, CopySource=source, **source) == ("InvalidRequest", 400)
    assert _refused(client.copy_object, Bucket=bucket, Key="c", CopySource=f"{bucket}/no") == ("NoSuchKey", 404)
    at = {"Bucket": bucket, "Key": "part"}
    upload = client.create_multipart_upload(**at)["UploadId"]
    part = client.upload_part_copy(**at, UploadId=upload, PartNumber=1, CopySource=source, CopySourceRange="bytes=2-5")[
        "CopyPartResult"
    ]
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    client.complete_multipart_upload(**at, UploadId=upload, MultipartUpload=parts)
    assert client.get_object(**at)["Body"].read() == b"x" * 4
    gone = client.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in ("a b/ü", "no", "part")]})
    assert sorted(one["Key"] for one in gone["Deleted"]) == ["a b/ü", "no", "part"]
    assert [one["Key"] for one in client.list_objects_v2(Bucket=bucket)["Contents"]] == ["copy"]


def test_a_bucket_has_a_home_and_another_region_is_sent_there(server: S3Server, client: Any) -> None:
    west = _client(server, "us-west-2")
    west.create_bucket(Bucket="in-the-west", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    assert west.head_bucket(Bucket="in-the-west")["BucketRegion"] == "us-west-2"
    assert client.get_bucket_location(Bucket="in-the-west")["LocationConstraint"] == "us-west-2"
    server.create_bucket("in-the-east")
    assert west.get_bucket_location(Bucket="in-the-east")["LocationConstraint"] is None
    client.put_object(Bucket="in-the-west", Key="k", Body=b"found after one redirection")
    asked = [one.headers["authorization"] for one in server.seen if one.method == "PUT" and one.key == "k"][-2:]
    assert "/us-east-1/s3/" in asked[0] and "/us-west-2/s3/" in asked[1]
    assert _refused(west.create_bucket, Bucket="nowhere") == ("IllegalLocationConstraintException", 400)
    assert _refused(
        west.create_bucket, Bucket="in-the-west", CreateBucketConfiguration={"LocationConstraint": "us-west-2"}
    ) == ("BucketAlreadyOwnedByYou", 409)
    assert _refused(west.delete_bucket, Bucket="in-the-west") == ("BucketNotEmpty", 409)
    assert "in-the-west" in [one["Name"] for one in client.list_buckets()["Buckets"]]


def test_strangers_and_what_is_not_served_are_refused(server: S3Server, client: Any, bucket: str) -> None:
    assert _refused(_client(server, key="AKIAOTHER").list_buckets) == ("InvalidAccessKeyId", 403)
    assert _refused(client.get_object, Bucket="no-such", Key="k") == ("NoSuchBucket", 404)
    assert _refused(client.put_object_tagging, Bucket=bucket, Key="k", Tagging={"TagSet": []}) == (
        "NotImplemented",
        501,
    )
    assert _refused(client.create_bucket, Bucket="10.0.0.1") == ("InvalidBucketName", 400)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{server.url}/{bucket}/k")
    assert caught.value.code == 403


def test_a_bucket_of_somebody_elses_tells_its_region_all_the_same(server: S3Server, client: Any, bucket: str) -> None:
    server.forbidden.add(bucket)
    with pytest.raises(ClientError) as caught:
        client.head_bucket(Bucket=bucket)
    answer = caught.value.response["ResponseMetadata"]
    assert answer["HTTPStatusCode"] == 403 and answer["HTTPHeaders"]["x-amz-bucket-region"] == "us-east-1"


def test_an_object_that_is_still_the_same_is_told_without_a_body(server: S3Server, client: Any, bucket: str) -> None:
    e_tag = client.put_object(Bucket=bucket, Key="k", Body=b"1")["ETag"]
    signed = {"Authorization": f"AWS4-HMAC-SHA256 Credential={KEY}/20261101/us-east-1/s3/aws4_request"}
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    for headers, status, body in (({"If-None-Match": e_tag}, 304, b""), ({}, 200, b"1")):
        connection.request("GET", f"/{bucket}/k", headers=signed | headers)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (status, body)
    connection.close()


def test_planted_faults_reach_the_client(server: S3Server, client: Any, bucket: str) -> None:
    server.fail_next(1, 409, "PUT", "ConditionalRequestConflict")
    assert _refused(client.put_object, Bucket=bucket, Key="k", Body=b"") == ("ConditionalRequestConflict", 409)
    client.put_object(Bucket=bucket, Key="k", Body=b"")


def test_the_aws_command_copies_syncs_and_lists(
    server: S3Server, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from awscli.clidriver import create_clidriver

    names = {"AWS_ENDPOINT_URL_S3": server.url, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": "s"}
    for name, value in {**names, "AWS_DEFAULT_REGION": "us-east-1", "HOME": str(tmp_path / "home")}.items():
        monkeypatch.setenv(name, value)

    def aws(*words: str) -> str:
        assert create_clidriver().main(["s3", *words]) == 0, capsys.readouterr()
        return capsys.readouterr().out

    (tmp_path / "up/sub").mkdir(parents=True)
    content = {"a ü": b"1", "sub/big": os.urandom(9 << 20), "empty": b""}
    for name, data in content.items():
        (tmp_path / "up" / name).write_bytes(data)
    aws("sync", str(tmp_path / "up"), f"s3://{bucket}/run")
    assert "sub/big" in aws("ls", f"s3://{bucket}/run/", "--recursive")
    aws("cp", f"s3://{bucket}/run/sub/big", f"s3://{bucket}/again")
    aws("sync", f"s3://{bucket}", str(tmp_path / "down"))
    assert (tmp_path / "down/again").read_bytes() == content["sub/big"]
    assert {name: (tmp_path / "down/run" / name).read_bytes() for name in content} == content
    aws("rm", f"s3://{bucket}", "--recursive")
    assert aws("ls", f"s3://{bucket}/", "--recursive") == ""
