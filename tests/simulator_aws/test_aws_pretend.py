"""The pretend AWS as a whole: what its environment leads to, with the rights that are documented and no others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from orch_fronts.aws.cloud import SimulatedAws, aws_scenario, without_aws
from orch_fronts.aws.tables import zones_by_region
from orchestrator.catalog.buckets import BucketPlace
from orchestrator.providers.aws.buckets import place_of
from orchestrator.providers.aws.planner import PLANNER
from orchestrator.simulator.scenario import Scenario, Zone
from orchestrator.slices import Candidate, OnDemand
from orchestrator.storage.bucket import Bucket


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedAws]:
    for name in os.environ.keys() - without_aws().keys():
        monkeypatch.delenv(name)
    with SimulatedAws(tmp_path / "aws") as made:
        for name, value in made.env.items():
            monkeypatch.setenv(name, value)
        yield made


def test_orchs_own_clients_are_led_to_it(aws: SimulatedAws, tmp_path: Path) -> None:
    bucket = Bucket.open("s3://mine/run")
    bucket.check_access(write=True)
    assert bucket.put_if_absent("lock", b"1") and not bucket.put_if_absent("lock", b"2")
    assert bucket.get("lock") == b"1"
    (tmp_path / "big").write_bytes(bytes(9 << 20))
    bucket.upload_file(tmp_path / "big", "big")
    assert place_of("mine") == BucketPlace("us-east-1"), "asked at the endpoint of all services"
    assert {"s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket"} == {
        one for one in aws.guard.asked if one.startswith("s3:")
    }


def test_programs_on_hosts_are_led_to_it_by_the_plan(aws: SimulatedAws) -> None:
    candidate = Candidate(
        provider="aws",
        accelerator="p5.48xlarge",
        hosts=1,
        chips_per_host=8,
        market=OnDemand(),
        region="us-east-1",
        zone="us-east-1a",
    )
    names = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    facts = dict(PLANNER.host_facts(candidate).env)
    assert {name: facts.get(name) for name in names} == {name: aws.env[name] for name in names}


def test_the_endpoint_of_all_services_has_the_buckets_as_well(aws: SimulatedAws) -> None:
    direct, through = boto3.client("s3"), boto3.client("s3", endpoint_url=aws.server.url)
    through.put_object(Bucket="mine", Key="a ü", Body=b"0123456789", Metadata={"m": "1"})
    seen: Any = direct.head_object(Bucket="mine", Key="a ü")
    assert seen["ContentLength"] == through.head_object(Bucket="mine", Key="a ü")["ContentLength"] == 10
    part = through.get_object(Bucket="mine", Key="a ü", Range="bytes=2-4")
    assert (part["Body"].read(), part["Metadata"]) == (b"234", {"m": "1"})
    upload = through.create_multipart_upload(Bucket="mine", Key="b")["UploadId"]
    through.abort_multipart_upload(Bucket="mine", Key="b", UploadId=upload)
    with pytest.raises(ClientError, match="NoSuchKey"):
        through.get_object(Bucket="mine", Key="no")
    with pytest.raises(ClientError, match="s3:CreateBucket"):
        through.create_bucket(Bucket="new")


def test_zones_are_those_of_ec2_where_the_scenario_names_none() -> None:
    zones = {(zone.name, zone.region) for zone in aws_scenario(Scenario()).zones}
    assert {name for name, _ in zones} == {name for names in zones_by_region().values() for name in names}
    assert ("us-east-1a", "us-east-1") in zones
    own = Scenario(zones=(Zone("us-east-1f", "us-east-1"),))
    assert aws_scenario(own) is own
