"""From EC2's words on its instances to one state, and to the addresses of the hosts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.providers.aws import reservations, states
from orchestrator.providers.aws.reach import Login, addresses, primary
from orchestrator.providers.aws.record import Record
from orchestrator.providers.aws.reservations import Reserved
from orchestrator.providers.core.record import Phase
from orchestrator.slices import SliceState

NOW = 1_800_000_000.0
S = SliceState


def record(hosts: int = 2, **fields: Any) -> Record:
    public = tuple(f"ssh-ed25519 AAAA{rank} comment" for rank in range(hosts))
    made = Record(
        name="c-1", token="t-1", region="us-east-1", profile="", zone="us-east-1a", hosts=hosts, market="",
        reservation="", way="public", jump="", user="ubuntu", identity_file="/k/id", known_hosts="/k/known",
        host_public=public, asked=NOW, changed=NOW, phase=Phase.ACCEPTED,
    )  # fmt: skip
    return replace(made, **fields)


def instance(rank: int = 0, state: str = "running", code: str = "", **fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "InstanceId": f"i-{rank}",
        "AmiLaunchIndex": rank,
        "State": {"Name": state},
        "PrivateIpAddress": f"10.0.0.{rank}",
        "PublicIpAddress": f"198.51.100.{rank}",
    }
    if code:
        found["StateReason"] = {"Code": code, "Message": f"{code}: words"}
    return found | fields


def seen(*given: tuple[str, str], **fields: Any) -> SliceState:
    """Of a slice with instances in these states, for these reasons."""
    shown = [instance(rank, state, code) for rank, (state, code) in enumerate(given)]
    return states.together(record(len(given), **fields), shown, NOW).state


BY_AWS, BY_USER, ITSELF = (
    "Server.SpotInstanceTermination",
    "Client.UserInitiatedShutdown",
    "Client.InstanceInitiatedShutdown",
)


@pytest.mark.parametrize(
    ("given", "fields", "state"),
    [
        ((("running", ""), ("running", "")), {}, S.READY),
        ((("running", ""), ("pending", "")), {}, S.CREATING),
        ((("running", ""), ("pending", "")), {"power": "start"}, S.STARTING),
        ((("stopped", ""), ("stopped", "")), {}, S.STOPPED),
        ((("stopped", ""), ("stopping", "")), {}, S.STOPPING),
        ((("running", ""), ("stopping", "")), {"power": "stop"}, S.STOPPING),
        ((("pending", ""), ("stopped", "")), {"power": "start"}, S.STARTING),
        ((("running", ""), ("stopped", "Server.ScheduledStop")), {}, S.FAILED),
        ((("running", ""), ("shutting-down", BY_AWS)), {"market": "spot"}, S.PREEMPTED),
        ((("terminated", BY_AWS), ("terminated", BY_AWS)), {"market": "spot"}, S.PREEMPTED),
        ((("running", ""), ("terminated", BY_USER)), {"market": "spot"}, S.FAILED),
        ((("running", ""), ("terminated", ITSELF)), {}, S.FAILED),
        ((("terminated", BY_USER), ("terminated", BY_USER)), {}, S.FAILED),
        ((("terminated", "Server.X"), ("running", "")), {"market": "block", "ends": NOW + 1799}, S.PREEMPTED),
        ((("terminated", "Server.X"), ("running", "")), {"market": "block", "ends": NOW + 1801}, S.FAILED),
        ((("terminated", BY_USER), ("terminated", BY_USER)), {"phase": Phase.ENDING}, S.ABSENT),
        ((("shutting-down", BY_USER), ("terminated", BY_USER)), {"phase": Phase.ENDING}, S.ENDING),
        ((("running", ""), ("terminated", BY_USER)), {"phase": Phase.ENDING}, S.FAILED),
        ((("running", ""), ("hibernating", "")), {}, S.UNCLEAR),
    ],
)
def test_the_states_of_the_instances_are_one_state(
    given: tuple[tuple[str, str], ...], fields: dict[str, Any], state: SliceState
) -> None:
    assert seen(*given, **fields) is state


def test_the_reason_is_in_the_words_of_aws() -> None:
    view = states.together(record(), [instance(0), instance(1, "terminated", BY_AWS)], NOW)
    assert view.reason == f"1 of 2 instances ended: {BY_AWS}: words"


def test_hosts_are_in_the_order_of_their_launch_index() -> None:
    found = addresses(record(3), [instance(2), instance(0), instance(1)], Login())
    assert not isinstance(found, str)
    assert [(one.rank, one.host, one.internal_ip) for one in found] == [
        (rank, f"198.51.100.{rank}", f"10.0.0.{rank}") for rank in range(3)
    ]
    assert [one.host_key for one in found] == [f"ssh-ed25519 AAAA{rank}" for rank in range(3)]
    assert len({one.alias for one in found}) == 3
    assert {one.user for one in found} == {"ubuntu"}
    assert {one.jump for one in found} == {None}


def test_workers_are_reached_through_the_head_with_the_elastic_ip() -> None:
    shown = [instance(0), instance(1, PublicIpAddress=None)]
    found = addresses(record(way="eip"), shown, Login())
    assert not isinstance(found, str)
    assert (found[0].host, found[0].jump) == ("198.51.100.0", None)
    assert (found[1].host, found[1].jump) == ("10.0.0.1", found[0])


def test_session_manager_is_a_proxy_command() -> None:
    shown = [instance(0, PublicIpAddress=None)]
    found = addresses(record(1, way="ssm", profile="a%b"), shown, Login())
    assert not isinstance(found, str)
    assert found[0].host == "i-0"
    assert found[0].proxy == (
        "aws", "ssm", "start-session", "--target", "i-0", "--document-name", "AWS-StartSSHSession", "--parameters",
        "portNumber=%p", "--region", "us-east-1", "--profile", "a%%b",
    )  # fmt: skip


def test_private_hosts_are_reached_straight_or_through_the_users_jump_host() -> None:
    straight = addresses(record(1, way="private"), [instance(0)], Login())
    assert not isinstance(straight, str)
    assert (straight[0].host, straight[0].jump) == ("10.0.0.0", None)
    behind = addresses(record(1, way="jump", jump="me@gate.example:2222"), [instance(0)], Login())
    assert not isinstance(behind, str)
    jump = behind[0].jump
    assert behind[0].host == "10.0.0.0"
    assert jump is not None
    assert (jump.host, jump.port, jump.user) == ("gate.example", 2222, "me")


def test_hosts_on_this_computer_have_their_own_port_and_no_way() -> None:
    tag = {"Tags": [{"Key": "orch-ssh-port", "Value": "20022"}]}
    shown = [instance(0, **tag), instance(1, PublicIpAddress=None, **tag)]
    found = addresses(record(way="eip"), shown, Login("me"))
    assert not isinstance(found, str)
    assert [(one.host, one.port, one.user, one.jump) for one in found] == [
        ("198.51.100.0", 20022, "me", None),
        ("10.0.0.1", 20022, "me", None),
    ]


def test_the_tag_of_a_port_means_nothing_on_ec2_itself() -> None:
    shown = [instance(0, Tags=[{"Key": "orch-ssh-port", "Value": "20022"}])]
    found = addresses(record(1), shown, Login())
    assert not isinstance(found, str)
    assert found[0].port == 22


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        ([instance(0), instance(1, PublicIpAddress=None)], "worker1 has no public address yet"),
        ([instance(0), instance(2)], "launch indexes"),
    ],
)
def test_what_is_not_known_yet_is_said(shown: list[dict[str, Any]], words: str) -> None:
    assert words in addresses(record(), shown, Login())


def test_the_first_interface_is_that_of_card_0_and_device_0() -> None:
    """Under EFA each card has one with the device index 0."""
    places = [(1, 0), (0, 1), (0, 0), (2, 0)]
    shown = {
        "NetworkInterfaces": [
            {
                "NetworkInterfaceId": f"eni-{card}-{device}",
                "Attachment": {"NetworkCardIndex": card, "DeviceIndex": device},
            }
            for card, device in places
        ]
    }
    assert primary(shown)["NetworkInterfaceId"] == "eni-0-0"
    with pytest.raises(LookupError):
        primary({"NetworkInterfaces": shown["NetworkInterfaces"][:2]})


@pytest.mark.parametrize(
    ("away", "words"),
    [
        (3 * 3600 + 12 * 60, "begins at 11:30 UTC, in 3 h 12 min"),
        (20 * 60, "begins at 11:30 UTC, in 20 min"),
        (2 * 86400 + 60, "begins on 24 November at 11:30 UTC, in 2 d 1 min"),
    ],
)
def test_the_wait_for_a_capacity_block_is_said_in_words(away: float, words: str) -> None:
    begins = 1_795_519_800.0  # 2026-11-24T11:30Z
    block = Reserved(identity="cr-1", state="scheduled", zone="us-east-1a", begins=begins, ends=begins + 86400)
    assert words in reservations.waits(block, begins - away)


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    from orchestrator.providers.aws.record import Records

    records = Records(tmp_path)
    whole = records.put(record(instances=("i-0", "i-1")))
    assert records.read("c-1") == whole
    waiting = records.write(whole, request=json.dumps({"UserData": "#cloud-config"}))
    assert records.read_request(waiting) == {"UserData": "#cloud-config"}
    assert [one.name for one in records.all()] == ["c-1"]
