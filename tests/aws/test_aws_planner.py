"""What is asked for, in which order, and what is refused with which reason. Nothing is sent here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import jmespath
import pytest
from aws_cases import KNOWN, RESERVATION, TOKEN, candidate, every, hostile, spec

from orchestrator.errors import UserError
from orchestrator.providers.aws import choices, tags, userdata
from orchestrator.providers.aws.parameters import filled, revealed
from orchestrator.providers.aws.planner import PLANNER
from orchestrator.providers.aws.unknowns import INSTANCES, USER_DATA
from orchestrator.slices import Candidate, CapacityBlock, FlexStart, Owned, Request, Reservation, Spot
from orchestrator.values import Text, Unknown

SPOT = Spot()


@pytest.fixture(autouse=True)
def far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)


def methods(request: Request) -> list[str]:
    return [one.method for one in request.in_order]


def body(of: Candidate) -> dict[str, Any]:
    """Of RunInstances, with what will be known."""
    request = PLANNER.create_request(spec(of))
    return cast(dict[str, Any], revealed(filled(request.body, KNOWN | {USER_DATA: "user data"})))


def test_cluster_with_efa_is_made_in_the_order_that_its_parts_need() -> None:
    request = PLANNER.create_request(spec())
    assert methods(request) == [
        "DescribeInstanceTypeOfferings",
        "GetServiceQuota",
        "GetServiceQuota",
        "GetParameter",
        "DescribeImages",
        "DescribeSubnets",
        "CreateSecurityGroup",
        "AuthorizeSecurityGroupIngress",
        "AuthorizeSecurityGroupEgress",
        "CreatePlacementGroup",
        "AllocateAddress",
        "AllocateAddress",
        "RunInstances",
        "DescribeInstances",
        "AssociateAddress",
        "AssociateAddress",
    ]
    assert {one.service for one in request.in_order} == {"service-quotas", "ssm", "ec2"}
    assert request.target == "us-east-1/demo-1"
    for word in ("Elastic IP", "33 network interfaces", "image", "placement group"):
        assert word in request.why


@pytest.mark.parametrize(
    ("of", "gone"),
    [
        (candidate(image="ami-0123456789abcdef0"), {"GetParameter"}),
        (candidate(hosts=1), {"CreatePlacementGroup", "AllocateAddress", "AssociateAddress"}),
        (candidate(placement_group="mine"), {"CreatePlacementGroup"}),
        (candidate(market=CapacityBlock(RESERVATION)), {"CreatePlacementGroup"}),
        (candidate(market=Reservation(RESERVATION)), {"CreatePlacementGroup"}),
        (candidate("t3.micro"), {"CreatePlacementGroup", "AllocateAddress", "AssociateAddress"}),
        (candidate(access="ssm", instance_profile="p"), {"AllocateAddress", "AssociateAddress"}),
        (
            candidate(security_group="sg-0123456789abcdef0"),
            {"CreateSecurityGroup", "AuthorizeSecurityGroupIngress", "AuthorizeSecurityGroupEgress"},
        ),
    ],
)
def test_nothing_is_made_that_is_not_needed(of: Candidate, gone: set[str]) -> None:
    usual = set(methods(PLANNER.create_request(spec())))
    assert usual - set(methods(PLANNER.create_request(spec(of)))) - {"DescribeInstances"} == gone


@pytest.mark.parametrize("named", [{}, {"subnet": "subnet-0123456789abcdef0"}])
def test_every_unknown_is_given_by_an_earlier_answer_or_by_the_sender(named: dict[str, str]) -> None:
    made = spec(candidate(market=SPOT, **named))
    for whole in (PLANNER.create_request(made), PLANNER.end_request(made.name, made.candidate)):
        known = {USER_DATA} | {unknown for unknown in KNOWN if unknown.what == "your public address, as CIDR"}
        for request in whole.in_order:
            assert unknowns_of(request.body) <= known, request.method
            known |= {unknown for unknown, _ in request.gives}


def unknowns_of(value: object) -> set[Unknown]:
    if isinstance(value, Text):
        return {part for part in value.parts if isinstance(part, Unknown)}
    if isinstance(value, Mapping):
        return set().union(*map(unknowns_of, cast(Mapping[str, object], value).values()))
    return set().union(*map(unknowns_of, cast(list[object], value))) if isinstance(value, list) else set()


def test_run_instances_says_what_a_launch_needs() -> None:
    made = body(candidate(market=SPOT, instance_profile="hosts"))
    assert (made["MinCount"], made["MaxCount"], made["ClientToken"]) == (2, 2, TOKEN)
    (disk,) = made["BlockDeviceMappings"]
    assert disk["DeviceName"] == "/dev/sda1"
    assert disk["Ebs"] == {
        "VolumeType": "gp3",
        "VolumeSize": 200,
        "Iops": 6000,
        "Throughput": 500,
        "Encrypted": True,
        "DeleteOnTermination": True,
    }
    assert made["MetadataOptions"] == {
        "HttpTokens": "required",
        "HttpEndpoint": "enabled",
        "HttpPutResponseHopLimit": 1,
    }
    assert made["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert made["IamInstanceProfile"] == {"Name": "hosts"}
    assert made["Placement"] == {"GroupName": "orch-demo-1"}
    assert made["UserData"] == "user data"
    assert len(made["NetworkInterfaces"]) == 33
    assert not {"SubnetId", "SecurityGroupIds", "KeyName", "Monitoring"} & set(made), "they stand in the interfaces"


@pytest.mark.parametrize(
    ("of", "said", "target"),
    [
        (candidate(), None, None),
        (
            candidate(market=SPOT),
            {
                "MarketType": "spot",
                "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
            },
            None,
        ),
        (candidate(market=Reservation(RESERVATION)), None, RESERVATION),
        (candidate(market=CapacityBlock(RESERVATION)), {"MarketType": "capacity-block"}, RESERVATION),
    ],
)
def test_market_in_the_words_of_ec2(of: Candidate, said: object, target: str | None) -> None:
    made = body(of)
    assert made.get("InstanceMarketOptions") == said
    wanted = {"CapacityReservationTarget": {"CapacityReservationId": target}} if target else None
    assert made.get("CapacityReservationSpecification") == wanted


def test_everything_that_is_made_carries_the_tags_of_the_slice() -> None:
    whole = PLANNER.create_request(spec(candidate(market=SPOT, access="eip")))
    made = [request for request in whole.in_order if "TagSpecifications" in request.body]
    assert [request.method for request in made] == [
        "CreateSecurityGroup",
        "CreatePlacementGroup",
        "AllocateAddress",
        "RunInstances",
    ]
    kinds: list[str] = []
    for request in made:
        known = cast(dict[str, Any], revealed(filled(request.body, KNOWN | {USER_DATA: ""})))
        for one in known["TagSpecifications"]:
            kinds.append(one["ResourceType"])
            found = {tag["Key"]: tag["Value"] for tag in one["Tags"]}
            assert found["orch-intent"] == TOKEN
            assert (found["orch-slice"], found["Name"]) == ("demo-1", "demo-1")
            assert found["orch-cluster"] == "demo"
    wanted = ["security-group", "placement-group", "elastic-ip", "instance", "volume", "network-interface"]
    assert kinds == [*wanted, "spot-instances-request"]


def test_hosts_reach_each_other_and_only_the_caller_reaches_port_22() -> None:
    def rules(of: Candidate) -> dict[str, list[Any]]:
        whole = PLANNER.create_request(spec(of))
        return {
            one.method: cast(Any, revealed(filled(one.body, KNOWN)))["IpPermissions"]
            for one in whole.in_order
            if one.method.startswith("Authorize")
        }

    inside = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": "sg-0123456789abcdef0"}]}
    usual = rules(candidate())
    assert usual["AuthorizeSecurityGroupEgress"] == [inside]
    first, ssh = usual["AuthorizeSecurityGroupIngress"]
    assert first == inside
    assert (ssh["FromPort"], ssh["ToPort"], ssh["IpProtocol"]) == (22, 22, "tcp")
    assert [one["CidrIp"] for one in ssh["IpRanges"]] == ["203.0.113.7/32"]
    assert rules(candidate(access="ssm", instance_profile="p"))["AuthorizeSecurityGroupIngress"] == [inside]
    named = rules(candidate(ssh_cidr="198.51.100.0/24, 2001:db8::/48"))["AuthorizeSecurityGroupIngress"][1]
    assert [one["CidrIp"] for one in named["IpRanges"]] == ["198.51.100.0/24"]
    assert [one["CidrIpv6"] for one in named["Ipv6Ranges"]] == ["2001:db8::/48"]


def test_head_is_found_by_card_and_device() -> None:
    """Under the new scheme one interface of every card is device 0."""
    look = PLANNER.create_request(spec()).after[0]
    ((_, path), (_, other)) = look.gives
    assert PLANNER.create_request(spec()).after[1].body["AllowReassociation"] is False, "an address is never taken away"

    def interface(card: int, device: int, name: str) -> dict[str, object]:
        return {
            "NetworkInterfaceId": name,
            "Attachment": {"NetworkCardIndex": card, "DeviceIndex": device, "Status": "attached"},
        }

    def instance(rank: int) -> dict[str, object]:
        at = ((1, 0), (0, 1), (0, 0), (2, 0))
        return {
            "AmiLaunchIndex": rank,
            "NetworkInterfaces": [interface(card, device, f"eni-{rank}-{card}-{device}") for card, device in at],
        }

    answer = {"Reservations": [{"Instances": [instance(1), instance(0)]}]}
    assert jmespath.search(path, answer) == "eni-0-0-0"
    assert jmespath.search(other, answer) == "eni-1-0-0"


def test_ids_of_several_instances_become_a_list() -> None:
    request = PLANNER.end_request("demo-1", candidate())
    ((_, path),) = request.before[0].gives
    answer = {"Reservations": [{"Instances": [{"InstanceId": "i-1"}]}, {"Instances": [{"InstanceId": "i-2"}]}]}
    known = {INSTANCES: jmespath.search(path, answer)}
    assert revealed(filled(request.body, known)) == {"InstanceIds": ["i-1", "i-2"]}
    assert filled(request.body, {}) == request.body, "what is unknown stays so"


def test_end_cleans_what_was_made_and_nothing_else() -> None:
    usual = ["DescribeInstances", "TerminateInstances"]
    address = ["DescribeAddresses", "ReleaseAddress", "ReleaseAddress"]
    group = ["DescribeSecurityGroups", "DeleteSecurityGroup"]
    spot = ["DescribeSpotInstanceRequests", "CancelSpotInstanceRequests"]

    def ended(of: Candidate) -> list[str]:
        return methods(PLANNER.end_request("demo-1", of))

    assert ended(candidate()) == [*usual, *address, *group, "DeletePlacementGroup"]
    assert ended(candidate(market=SPOT)) == [*usual, *address, *spot, *group, "DeletePlacementGroup"]
    assert ended(candidate(access="eip")) == [*usual, *address[:2], *group, "DeletePlacementGroup"]
    assert ended(candidate(hosts=1)) == [*usual, *group]
    theirs = candidate(
        security_group="sg-0123456789abcdef0", placement_group="theirs", access="ssm", instance_profile="p"
    )
    assert ended(theirs) == usual


def test_every_look_is_by_our_own_tags() -> None:
    of = candidate(market=SPOT)
    for whole in (PLANNER.create_request(spec(of)), PLANNER.end_request("demo-1", of)):
        for request in whole.in_order:
            if request.optional or request.method in ("DescribeImages", "DescribeSubnets"):
                continue  # what the cloud has, not what is ours
            if request.method.startswith("Describe"):
                names = [one["Name"] for one in cast(list[Any], request.body["Filters"])]
                assert names[0] in ("tag:orch-slice", "tag:orch-intent"), request.method


@pytest.mark.parametrize("verb", ["stop_request", "start_request"])
def test_machines_are_stopped_and_kept_where_ec2_can(verb: str) -> None:
    ask = getattr(PLANNER, verb)
    assert methods(ask("demo-1", candidate()))[0] == "DescribeInstances"
    for market, word in ((SPOT, "one-time"), (CapacityBlock(RESERVATION), "Capacity Block")):
        with pytest.raises(UserError, match=word):
            ask("demo-1", candidate(market=market))


@pytest.mark.parametrize(
    ("of", "word"),
    [
        (candidate(colour="red"), "'colour'"),
        (candidate("p5"), "not an instance type"),
        (candidate("p5.48xlarge; id"), "not an instance type"),
        (candidate(zone="us-west-2a"), "not a zone of us-east-1"),
        (candidate(zone="us-east-1aa"), "not a zone of us-east-1"),
        (candidate(zone="a"), "not a zone of us-east-1"),
        (candidate(zone=""), "neither a zone nor a subnet"),
        (candidate(region="moon"), "not a region"),
        (candidate(hosts=0), "0 instances"),
        (candidate(hosts=userdata.MOST_HOSTS + 1), "145 instances"),
        (candidate(market=CapacityBlock(RESERVATION), hosts=65), "at most 64"),
        (candidate("p5e.48xlarge"), "sells it as spot and in Capacity Blocks"),
        (candidate("trn2.48xlarge"), "sells it as spot and in Capacity Blocks"),
        (candidate("trn1n.32xlarge", CapacityBlock(RESERVATION)), "no Capacity Blocks"),
        (candidate(market=FlexStart(1.0)), "flex start"),
        (candidate(market=Owned()), "your own"),
        (candidate(market=Reservation("my-reservation")), "not a reservation"),
        (candidate(market=CapacityBlock("cr-zzz")), "not a reservation"),
        (candidate(subnet="subnet-1"), "subnet"),
        (candidate(security_group="default"), "security_group is"),
        (candidate(instance_profile="a b"), "instance_profile is"),
        (candidate(user="Root User"), "user"),
        (candidate(profile="--debug"), "profile"),
        (candidate(placement_group="x\ny"), "placement_group is"),
        (candidate(network="fast"), "network is 'fast'"),
        (candidate(disk_gib=0), "disk of 0 GiB"),
        (candidate(max_hours="soon"), "max_hours is 'soon'"),
        (candidate(access="telnet"), "'telnet'"),
        (candidate(access="public"), "several network interfaces"),
        (candidate(access="jump"), "no jump host"),
        (candidate(access="eip", jump="me@there"), "a jump host is named"),
        (candidate(jump="me@there@", ssh_cidr="10.0.0.1/32"), "not the address"),
        (candidate(access="private"), "nothing would allow SSH"),
        (candidate(ssh_cidr="0.0.0.0/0"), "too many"),
        (candidate(ssh_cidr="203.0.113.7/24"), "beyond its length"),
        (candidate(ssh_cidr="everybody"), "everybody"),
        (candidate(ssh_cidr="::/0"), "too many"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(of: Candidate, word: str) -> None:
    with pytest.raises(UserError, match=word):
        PLANNER.create_request(spec(of))


@pytest.mark.parametrize(
    ("labels", "word"),
    [
        ({"aws:x": "1"}, "AWS's own"),
        ({"": "1"}, "1 to 128"),
        ({"k" * 129: "1"}, "1 to 128"),
        ({"k": "v" * 257}, "256"),
        ({"k": "a\nb"}, "cannot be printed"),
        ({f"k{at}": "1" for at in range(46)}, "labels are too many"),
    ],
)
def test_label_that_cannot_be_a_tag_is_refused_before_anything_is_sent(labels: dict[str, str], word: str) -> None:
    made = replace(spec(), labels=(*spec().labels, *((key, Text.of(value)) for key, value in labels.items())))
    with pytest.raises(UserError, match=word):
        PLANNER.create_request(made)


def test_token_is_a_tag_even_where_no_label_says_it() -> None:
    bare = replace(spec(), labels=())
    assert tags.tags_of(bare)["orch-intent"] == Text.of(TOKEN)


def test_labels_of_the_user_never_stand_in_for_ours() -> None:
    odd = hostile()
    odd = replace(odd, labels=(*odd.labels, ("orch-slice", Text.of("another")), ("Name", Text.of("another"))))
    found = tags.tags_of(odd)
    assert (found["orch-slice"], found["Name"]) == (Text.of("x-1"), Text.of("x-1"))


@pytest.mark.parametrize(
    ("of", "count", "word"),
    [
        (candidate(), 33, "on every card"),
        (candidate(hosts=1), 1, "single machine"),
        (candidate(hosts=1, network="best"), 33, "on every card"),
        (candidate(network="standard"), 1, "standard"),
        (candidate("trn1.2xlarge"), 1, "has no EFA"),
        (candidate("trn1.2xlarge", network="best"), 1, "has no EFA"),
        (candidate("p9.48xlarge"), 1, "not in orch's tables"),
    ],
)
def test_count_of_interfaces_has_its_reason(of: Candidate, count: int, word: str) -> None:
    assert len(body(of)["NetworkInterfaces"]) == count
    assert word in choices.read(of).why


def test_every_machine_has_an_elastic_ip_of_its_own_or_the_head_alone() -> None:
    def pairs(of: Candidate) -> tuple[list[object], list[object]]:
        """What is allocated, and what is led where, by the names of the unknowns."""
        whole = PLANNER.create_request(spec(of))
        allocated = [one.gives[0][0] for one in whole.before if one.method == "AllocateAddress"]
        return list(allocated), [one.body["AllocationId"] for one in whole.after if one.method == "AssociateAddress"]

    allocated, led = pairs(candidate(hosts=3))
    assert len(set(allocated)) == 3 and led == [Text.of(one) for one in allocated]  # type: ignore[arg-type]  # Unknowns
    assert [len(each) for each in pairs(candidate(hosts=3, access="eip"))] == [1, 1]
    assert [len(each) for each in pairs(candidate(hosts=1, network="best"))] == [1, 1]
    assert "reach packages and buckets" in choices.read(candidate(hosts=3)).why
    assert "room for 5" in choices.read(candidate(hosts=6)).why
    assert "room for 5" not in choices.read(candidate(hosts=5)).why


def test_usual_way_is_a_public_address_each_or_elastic_ips() -> None:
    (one,) = body(candidate(hosts=1))["NetworkInterfaces"]
    assert one["AssociatePublicIpAddress"] is True
    assert not any("AssociatePublicIpAddress" in one for one in body(candidate())["NetworkInterfaces"])
    for way in ("ssm", "eip"):
        (one,) = body(candidate(hosts=1, access=way, instance_profile="p"))["NetworkInterfaces"]
        assert one["AssociatePublicIpAddress"] is False, "a default subnet would give one"
    assert "jump host" in choices.read(candidate(jump="me@there", ssh_cidr="10.0.0.1/32")).why


def test_disk_is_larger_where_neuron_wants_it() -> None:
    sizes = [
        body(of)["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"]
        for of in (candidate("trn1.32xlarge"), candidate("trn1.32xlarge", disk_gib=100), candidate())
    ]
    assert sizes == [512, 100, 200]


def test_preview_shows_no_secret_and_sending_it_is_impossible() -> None:
    request = PLANNER.create_request(spec())
    with pytest.raises(ValueError, match="still unknown"):
        revealed(filled(request.body, KNOWN))
    words = [word.preview() for word in request.command]
    assert words[words.index("--user-data") + 1].startswith("file://(path of a file")


def test_hosts_know_their_efa_their_disk_and_how_to_end_themselves() -> None:
    facts = PLANNER.host_facts(candidate())
    network = {"ORCH_EFA_COUNT": "32", "ORCH_NETWORK_GBPS": "3200", "ORCH_NETWORK_EXPECTED": "209"}
    assert (dict(facts.env), facts.scratch) == (network, "/opt/dlami/nvme")
    assert PLANNER.host_facts(candidate(hosts=1)).env == ()
    assert PLANNER.host_facts(candidate("p9.48xlarge")).scratch == ""
    assert PLANNER.host_facts(candidate("trn1.32xlarge")).backend == "neuron"


@pytest.mark.parametrize("root", [True, False])
def test_end_command_switches_the_machine_off(root: bool, tmp_path: Any) -> None:
    for name, text in (
        ("id", f"echo {0 if root else 1000}"),
        ("sudo", 'echo "sudo $*"'),
        ("shutdown", 'echo "off $*"'),
    ):
        stand_in = tmp_path / name
        stand_in.write_text(f"#!/bin/sh\n{text}\n")
        stand_in.chmod(0o755)
    command = PLANNER.host_facts(candidate()).end_command
    done = subprocess.run(
        ["/bin/bash", "-c", command], capture_output=True, text=True, env={"PATH": str(tmp_path)}, check=True
    )
    assert done.stdout == ("off -h now\n" if root else "sudo -n shutdown -h now\n")


def test_on_the_loopback_programs_are_led_to_the_pretend_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:2",
        "AWS_ACCESS_KEY_ID": "pretend",
        "AWS_SECRET_ACCESS_KEY": "pretend-secret",
        "AWS_REGION": "us-east-1",
    }
    for key, value in given.items():
        monkeypatch.setenv(key, value)
    facts = PLANNER.host_facts(candidate())
    assert facts.backend == "cpu"
    del given["AWS_REGION"]  # real machines have none either
    assert given.items() <= dict(facts.env).items()
    assert "AWS_REGION" not in dict(facts.env)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    assert not [key for key, _ in PLANNER.host_facts(candidate()).env if "KEY" in key], "a real one stays here"


@pytest.mark.parametrize(
    "url", ["", "https://ec2.us-east-1.amazonaws.com", "http://127.0.0.1.example.com:80", "http://["]
)
def test_other_servers_are_no_loopback(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    assert PLANNER.host_facts(candidate()).backend == ""


def test_every_case_can_be_planned_ended_and_told_why() -> None:
    count = 0
    for word, made in every().items():
        request = PLANNER.create_request(made)
        assert request.why, word
        assert "\n" not in request.why
        assert all(one.command[0] == Text.of("aws") for one in request.in_order)
        assert PLANNER.end_request(made.name, made.candidate).method == "TerminateInstances"
        count += 1
    assert count > 200


def test_planning_loads_no_sdk() -> None:
    program = (
        "import sys; from orchestrator.providers.aws.planner import PLANNER; "
        "print(sorted({'boto3', 'botocore', 'jmespath', 'paramiko', 'cryptography'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


SINGLE = [
    "DescribeInstanceTypeOfferings",
    "GetServiceQuota",
    "GetParameter",
    "DescribeImages",
    "DescribeSubnets",
    "CreateSecurityGroup",
    "AuthorizeSecurityGroupIngress",
    "AuthorizeSecurityGroupEgress",
    "RunInstances",
]
# For one and two machines of each family: the image, the disk, and how many interfaces and Elastic IPs two take.
FAMILIES = [
    ("t3.medium", "ubuntu/server", 50, (1, 0), False),
    ("m7i.xlarge", "ubuntu/server", 50, (1, 0), True),
    ("m7i.48xlarge", "ubuntu/server", 50, (1, 0), True),
    ("c7i.4xlarge", "ubuntu/server", 50, (1, 0), True),
    ("g4dn.xlarge", "base-oss-nvidia-driver-gpu", 200, (1, 0), True),
    ("g5.48xlarge", "base-oss-nvidia-driver-gpu", 200, (2, 2), True),
    ("g6.xlarge", "base-oss-nvidia-driver-gpu", 200, (1, 0), True),
    ("g6e.48xlarge", "base-oss-nvidia-driver-gpu", 200, (5, 2), True),
]


@pytest.mark.parametrize(("name", "image", "disk", "of_two", "grouped"), FAMILIES, ids=[row[0] for row in FAMILIES])
def test_a_request_of_each_family_has_no_more_than_it_needs(
    name: str, image: str, disk: int, of_two: tuple[int, int], grouped: bool
) -> None:
    request = PLANNER.create_request(spec(candidate(name, hosts=1)))
    assert methods(request) == SINGLE
    assert image in next(one.target for one in request.in_order if one.method == "GetParameter")
    made = body(candidate(name, hosts=1))
    (interface,) = made["NetworkInterfaces"]
    assert interface["AssociatePublicIpAddress"] is True and interface["InterfaceType"] == "interface"
    ebs = made["BlockDeviceMappings"][0]["Ebs"]
    assert ebs["VolumeSize"] == disk
    assert ("Iops" in ebs, "Throughput" in ebs) == ((False, False) if disk == 50 else (True, True))
    assert "Placement" not in made
    both = methods(PLANNER.create_request(spec(candidate(name, hosts=2))))
    assert (len(body(candidate(name, hosts=2))["NetworkInterfaces"]), both.count("AllocateAddress")) == of_two
    assert ("CreatePlacementGroup" in both) is grouped
    facts = PLANNER.host_facts(candidate(name, hosts=1))
    assert facts.scratch == ("" if disk == 50 else "/opt/dlami/nvme")


def test_efa_of_a_machine_without_accelerators_is_for_those_who_ask() -> None:
    assert "has no EFA driver" in choices.read(candidate("c7i.48xlarge")).why
    assert len(body(candidate("c7i.48xlarge", network="best"))["NetworkInterfaces"]) == 2
