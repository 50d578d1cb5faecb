"""What a new account is refused by EC2, in EC2's own words (orch_fronts/answers), and what a scenario may ask for."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError
from ec2_support import AMI, ZONE, Ec2, Make

from orch_fronts.answers import Entry, load_answers, say
from orch_fronts.aws.tables import instance_types, quotas
from orchestrator.simulator.scenario import Fault, FaultKind

SPOT = {"InstanceMarketOptions": {"MarketType": "spot"}}
REFUSALS = [one for one in load_answers() if one.form == "ec2" and one.call == "RunInstances" and one.http != 503]


def refused(ec2: Ec2, count: int = 1, **fields: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as caught:
        ec2.run(count, **fields)
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


def test_type_is_refused_in_a_zone_that_does_not_offer_it(ec2: Ec2) -> None:
    offered = instance_types()["trn1.32xlarge"].zones["us-east-1"]
    assert "a" not in offered
    mine = ", ".join(f"us-east-1{letter}" for letter in offered if f"us-east-1{letter}" in ("us-east-1a", "us-east-1b"))
    expected = say("ec2-unsupported-az-m5", type="trn1.32xlarge", zone=ZONE, others=mine)
    assert refused(ec2, InstanceType="trn1.32xlarge") == ("Unsupported", expected.text)


def test_offerings_by_zone_are_those_of_the_table(ec2: Ec2) -> None:
    found = ec2.api.describe_instance_type_offerings(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": ["trn1.32xlarge"]}]
    )["InstanceTypeOfferings"]
    assert [one["Location"] for one in found] == ["us-east-1b"]


def test_quotas_count_vcpus(make_ec2: Make) -> None:
    ec2 = make_ec2(new_account=True)
    assert quotas()["L-1216C47A"].default == 5
    ec2.run(2, InstanceType="t3.large")
    assert refused(ec2, InstanceType="t3.large") == ("VcpuLimitExceeded", say("ec2-vcpu-0", limit=5).text)
    assert refused(ec2) == ("VcpuLimitExceeded", say("ec2-vcpu-0").text)
    assert refused(ec2, **SPOT) == ("MaxSpotInstanceCountExceeded", say("ec2-max-spot").text)
    ec2.run(2, InstanceType="t3.large", **SPOT)


def test_an_account_that_asked_for_more_has_no_such_limit(ec2: Ec2) -> None:
    assert len(ec2.run(4)) == 4


@pytest.mark.parametrize("entry", REFUSALS, ids=lambda entry: entry.id)
def test_scenario_may_ask_for_any_refusal(make_ec2: Make, entry: Entry) -> None:
    ec2 = make_ec2(faults=(Fault(call="create", kind=FaultKind.ANSWER, nth=(1,), answer=entry.id),))
    assert refused(ec2, ImageId=AMI) == (entry.code, entry.text)
    assert ec2.run()
