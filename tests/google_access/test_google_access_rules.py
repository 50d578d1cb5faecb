"""How hosts are reached: which firewall rules a way needs, and whom they never let in."""

from __future__ import annotations

import json
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any

import pytest
from access_support import INSTALLATION, PROJECT, TOKEN, candidate, spec
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import UserError
from orchestrator.providers.google import access
from orchestrator.providers.google.access import CALLER, IAP_RANGE, Way
from orchestrator.providers.google.body import revealed
from orchestrator.slices import Request
from orchestrator.values import Text, Unknown, fill_unknowns

KNOWN = Text.of(PROJECT)


def rules(network: str = "default", project: Text = KNOWN, name: str = "demo-1", **details: str) -> tuple[Request, ...]:
    of = spec(name, **details)
    return access.create_requests(access.read(of.candidate), of, project, network)


def bodies(**details: str) -> list[dict[str, Any]]:
    requests = rules(**details)  # type: ignore[arg-type]  # words only
    return [{key: fill_in(value) for key, value in one.body.items()} for one in requests]


def fill_in(value: Any) -> Any:
    if isinstance(value, list):
        return [fill_in(one) for one in value]
    return fill_unknowns(value, {CALLER: "203.0.113.9"}).reveal() if isinstance(value, Text) else value


def test_the_usual_rule_lets_in_one_address_to_one_port_of_these_hosts() -> None:
    (request,) = rules()
    (body,) = bodies()
    assert (request.service, request.method) == ("compute.v1", "POST")
    assert request.target == f"projects/{PROJECT}/global/firewalls"
    assert json.loads(body.pop("description")) == {
        "orch-cluster": "demo",
        "orch-installation": INSTALLATION,
        "orch-intent": TOKEN,
        "orch-slice": "demo-1",
    }
    assert body == {
        "allowed": [{"IPProtocol": "tcp", "ports": ["22"]}],
        "direction": "INGRESS",
        "name": "demo-1-ssh",
        "network": f"projects/{PROJECT}/global/networks/default",
        "sourceRanges": ["203.0.113.9/32"],
        "targetTags": ["demo-1"],
    }


def test_a_preview_asks_nobody_for_the_callers_address() -> None:
    (request,) = rules(project=Text.of(Unknown("project")))
    assert CALLER in request.body["sourceRanges"][0].parts  # type: ignore[index]  # a list of Texts
    assert any(CALLER in word.parts for word in request.command)
    assert not any("--project" in word.preview() for word in request.command)
    with pytest.raises(ValueError, match="still unknown"):
        revealed(request.body)


@pytest.mark.parametrize(
    ("details", "sources"),
    [
        ({"access": "iap"}, [IAP_RANGE]),
        ({"access": "iap", "ssh_cidr": "198.51.100.0/24"}, [IAP_RANGE]),
        ({"ssh_cidr": "198.51.100.0/24, 192.0.2.4"}, ["198.51.100.0/24", "192.0.2.4/32"]),
        ({"access": "internal", "ssh_cidr": "10.1.0.0/16"}, ["10.1.0.0/16"]),
        ({"jump": "me@bastion", "ssh_cidr": "10.0.0.5/32"}, ["10.0.0.5/32"]),
    ],
)
def test_port_22_is_open_to_those_alone_who_are_named(details: dict[str, str], sources: list[str]) -> None:
    assert [body["sourceRanges"] for body in bodies(**details)] == [sources]


@pytest.mark.parametrize(
    "details", [{"access": "internal"}, {"internal_ips": "yes"}, {"jump": "me@bastion"}, {"firewall": "none"}]
)
def test_no_rule_is_made_where_nobody_new_comes_in(details: dict[str, str]) -> None:
    assert rules(**details) == ()  # type: ignore[arg-type]  # words only


def test_in_another_network_the_hosts_may_reach_each_other_and_nobody_else_may() -> None:
    ssh, peers = bodies(network="net-1")
    assert (ssh["name"], peers["name"]) == ("demo-1-ssh", "demo-1-peers")
    assert peers["sourceTags"] == peers["targetTags"] == ["demo-1"]
    assert "sourceRanges" not in peers
    assert [one["IPProtocol"] for one in peers["allowed"]] == ["tcp", "udp", "icmp"]
    assert [one.target for one in rules("net-1", access="internal")] == [f"projects/{PROJECT}/global/firewalls"]
    assert rules("net-1", firewall="none") == ()


@pytest.mark.parametrize(
    ("network", "project", "path"),
    [
        ("net-1", PROJECT, f"projects/{PROJECT}/global/networks/net-1"),
        ("global/networks/net-1", PROJECT, f"projects/{PROJECT}/global/networks/net-1"),
        ("projects/host-1/global/networks/net-1", "host-1", "projects/host-1/global/networks/net-1"),
        (
            "https://www.googleapis.com/compute/v1/projects/host-1/global/networks/net-1",
            "host-1",
            "projects/host-1/global/networks/net-1",
        ),
    ],
)
def test_the_rule_is_made_where_the_network_is(network: str, project: str, path: str) -> None:
    first = rules(network)[0]
    assert first.target == f"projects/{project}/global/firewalls"
    assert first.body["network"] == Text.of(path)


def test_the_end_takes_away_what_the_create_made() -> None:
    for details in ({}, {"network": "net-1"}, {"access": "iap"}, {"firewall": "none"}):
        network = details.pop("network", "default")
        made = {f"{one.target}/{one.body['name']}" for one in rules(network, **details)}  # type: ignore[arg-type]  # by name
        way = access.read(candidate(**details))
        ended = access.end_requests(way, "demo-1", KNOWN, network)
        assert {one.target for one in ended} == made
        assert {one.method for one in ended} <= {"DELETE"}


def test_names_are_ones_that_google_takes_and_of_two_slices_never_the_same() -> None:
    long = ["a" * 62, "a" * 61 + "b", "a" * 48 + "-" * 12 + "b"]
    names = [str(one.body["name"]) for name in long for one in rules("net-1", name=name)]
    assert len(set(names)) == 6
    for name in names:
        assert len(name) <= 63
        assert name[0].isalpha()
        assert name.endswith(("-ssh", "-peers"))


@pytest.mark.parametrize(
    ("details", "way"),
    [
        ({}, Way.EXTERNAL),
        ({"internal_ips": "yes"}, Way.INTERNAL),
        ({"access": "iap", "internal_ips": "yes"}, Way.IAP),
        ({"jump": "me@bastion:2222,b@inner"}, Way.JUMP),
        ({"jump": "me@bastion", "internal_ips": "yes"}, Way.JUMP),
        ({"access": "jump", "jump": "me@bastion"}, Way.JUMP),
    ],
)
def test_the_way_follows_from_what_is_said(details: dict[str, str], way: Way) -> None:
    assert access.read(candidate(**details)).way is way


@pytest.mark.parametrize(
    ("details", "words"),
    [
        ({"access": "vpn"}, "access is .vpn.: there are external"),
        ({"access": "jump"}, "no jump host is named"),
        ({"access": "iap", "jump": "me@bastion"}, "a jump host is named"),
        ({"access": "external", "internal_ips": "yes"}, "no external address"),
        ({"firewall": "open"}, "firewall is"),
        ({"network": "a/b"}, "network is"),
        ({"ssh_cidr": "1.2.3.4/32,2001:db8::1"}, "mixes"),
        ({"ssh_cidr": ",".join(f"192.0.2.{at}" for at in range(65))}, "at most 64"),
    ],
)
def test_what_cannot_be_is_told(details: dict[str, str], words: str) -> None:
    network = details.pop("network", "default")
    with pytest.raises(UserError, match=words):
        rules(network, **details)  # type: ignore[arg-type]  # words only


WORLDS = (
    *("0.0.0.0/0", "::/0", "0.0.0.0/1", "128.0.0.0/1", "8.0.0.0/15", "10.0.0.0/7", "2600::/12", "1.2.3.4/16"),
    *(
        "0.0.0.0",
        "224.0.0.0/24",
        "::ffff:0:0/96",
        "::ffff:0.0.0.0/97",
        "64:ff9b::/96",
        "::",
        "0/0",
        "all",
        "100.64.0.0/10",
    ),
)


@pytest.mark.parametrize("word", WORLDS)
def test_a_range_that_lets_in_the_world_is_refused(word: str) -> None:
    with pytest.raises(UserError, match="ssh_cidr has"):
        access.ranges_of(word)


@pytest.mark.parametrize(
    ("words", "ranges"),
    [
        ("", ()),
        (" 192.0.2.4 ,192.0.2.4/32,", ("192.0.2.4/32",)),
        ("10.0.0.0/8,172.16.0.0/12", ("10.0.0.0/8", "172.16.0.0/12")),
        ("131.107.0.0/16", ("131.107.0.0/16",)),
        ("2607:F8B0::/32", ("2607:f8b0::/32",)),
        ("fd00::/8", ("fd00::/8",)),
    ],
)
def test_ranges_are_taken_as_people_write_them(words: str, ranges: tuple[str, ...]) -> None:
    assert access.ranges_of(words) == ranges


@settings(deadline=None)  # of a busy computer
@given(st.integers(0, 2**32 - 1), st.integers(0, 32), st.integers(0, 2**128 - 1), st.integers(0, 128))
def test_no_accepted_range_is_wide(v4: int, length4: int, v6: int, length6: int) -> None:
    networks = (IPv4Network((v4, length4), strict=False), 16), (IPv6Network((v6, length6), strict=False), 32)
    for network, public in networks:
        try:
            (taken,) = access.ranges_of(str(network))
        except UserError:
            continue
        assert ip_network(taken) == network
        assert network.is_private or network.prefixlen >= public


def test_only_what_says_that_it_is_ours_is_ours() -> None:
    (body,) = bodies()
    assert access.owner_of(body["description"])["orch-intent"] == TOKEN
    for other in ("", "my rule", "[]", "{}", '{"orch-intent": 5, "orch-slice": "a"}', '{"orch-intent": "x"}', "null"):
        assert not access.owner_of(other)
