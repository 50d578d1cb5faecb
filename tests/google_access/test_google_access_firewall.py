"""Firewall rules at Google: made once, looked for when an answer is lost, and taken away only when they are ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from access_support import INSTALLATION, PROJECT, TOKEN, Answer, Compute, Fault, compute_api, spec

from orchestrator.errors import AccessError, CloudError, ConflictError, NotFoundError, OrchError, UserError
from orchestrator.providers.google import access
from orchestrator.providers.google.firewall import Firewall, with_caller
from orchestrator.slices import Request
from orchestrator.values import Text

PATH = f"projects/{PROJECT}/global/firewalls/demo-1-ssh"
KNOWN = Text.of(PROJECT)


@pytest.fixture
def compute() -> Iterator[Compute]:
    with compute_api() as compute:
        yield compute


def planned(token: str = TOKEN, address: str = "203.0.113.9", network: str = "default", **details: str) -> Request:
    of = spec(token=token, **details)
    (request, *_) = with_caller(access.create_requests(access.read(of.candidate), of, KNOWN, network), lambda: address)
    return request


def end(name: str = "demo-1-ssh") -> Request:
    (request,) = access.end_requests(access.read(spec().candidate), name.removesuffix("-ssh"), KNOWN, "default")
    return request


def test_a_rule_is_made_and_taken_away(compute: Compute) -> None:
    wall = Firewall(compute.session)
    wall.ensure(planned())
    assert compute.rules[PATH]["sourceRanges"] == ["203.0.113.9/32"]
    assert not wall.is_gone(end(), TOKEN)
    assert wall.remove(end(), TOKEN)
    assert not compute.rules
    assert wall.is_gone(end(), TOKEN)
    assert wall.remove(end(), TOKEN)
    assert len(compute.calls("DELETE")) == 1


def test_asked_again_it_makes_no_second_one_and_changes_nothing(compute: Compute) -> None:
    for _ in range(2):
        Firewall(compute.session).ensure(planned())
    assert [one.method for one in compute.seen if one.method != "GET"] == ["POST"]


def test_addresses_join_and_leave_the_rule_of_their_slice_alone(compute: Compute) -> None:
    wall = Firewall(compute.session)
    wall.ensure(planned())
    wall.change_sources(end().target, TOKEN, ["203.0.113.77/32"], [])
    wall.change_sources(end().target, TOKEN, ["203.0.113.77/32"], ["198.51.100.1/32"])
    assert compute.rules[PATH]["sourceRanges"] == ["203.0.113.9/32", "203.0.113.77/32"]
    assert len(compute.calls("PATCH")) == 1, "what is so already was requested again"
    wall.change_sources(end().target, "t-2", ["198.51.100.1/32"], ["203.0.113.77/32"])
    wall.change_sources(end("other-1-ssh").target, TOKEN, ["198.51.100.1/32"], [])
    assert compute.rules[PATH]["sourceRanges"] == ["203.0.113.9/32", "203.0.113.77/32"]
    wall.change_sources(end().target, TOKEN, ["203.0.113.77/32"], ["203.0.113.9/32", "203.0.113.77/32"])
    assert compute.rules[PATH]["sourceRanges"] == ["203.0.113.77/32"]
    with pytest.raises(ValueError, match="would admit everyone"):
        wall.change_sources(end().target, TOKEN, [], ["203.0.113.77/32"])


@pytest.mark.parametrize(
    ("details", "needed"),
    [
        ({}, True),
        ({"ssh_cidr": "203.0.113.0/24"}, False),
        ({"firewall": "none"}, False),
        ({"access": "iap"}, False),
        ({"access": "internal"}, False),
        ({"jump": "ann@gate.example.org"}, False),
        ({"oslogin": "true"}, True),
    ],
)
def test_only_a_rule_of_ours_that_admits_the_caller_needs_addresses(details: dict[str, str], needed: bool) -> None:
    assert access.needs_admission(spec(**details).candidate) is needed


def test_a_computer_that_has_moved_is_let_in_and_its_old_address_is_not(compute: Compute) -> None:
    wall = Firewall(compute.session)
    wall.ensure(planned())
    wall.ensure(planned(address="203.0.113.77"))
    assert compute.rules[PATH]["sourceRanges"] == ["203.0.113.77/32"]
    assert [one.body for one in compute.calls("PATCH")] == [{"sourceRanges": ["203.0.113.77/32"]}]


@pytest.mark.parametrize("acts", [True, False])
def test_a_create_whose_answer_is_lost_is_settled_by_looking(compute: Compute, acts: bool) -> None:
    lost = Fault("POST", Answer(503, "backend error"), acts=acts)
    compute.faults = [lost]
    wall = Firewall(compute.session)
    if acts:
        wall.ensure(planned())
    else:
        with pytest.raises(CloudError, match="not available"):
            wall.ensure(planned())
        assert PATH not in compute.rules
        wall.ensure(planned())
    assert PATH in compute.rules
    assert len(compute.rules) == 1


def test_a_connection_that_breaks_after_the_create_leaves_one_rule(compute: Compute) -> None:
    """httplib2 sends it again by itself, and is told that there is one: our own."""
    compute.faults = [Fault("POST", acts=True)]
    Firewall(compute.session).ensure(planned())
    assert list(compute.rules) == [PATH]


def test_a_rule_of_that_name_that_is_not_ours_is_left_alone(compute: Compute) -> None:
    theirs = {"name": "demo-1-ssh", "description": "made by hand", "sourceRanges": ["198.51.100.1/32"]}
    for description in ("made by hand", planned(token="another-1").body["description"].reveal()):  # type: ignore[attr-defined]  # a Text
        compute.rules[PATH] = theirs | {"description": description}
        wall = Firewall(compute.session)
        with pytest.raises(ConflictError, match="exists already"):
            wall.ensure(planned())
        assert wall.remove(end(), TOKEN)
        assert compute.rules[PATH]["sourceRanges"] == ["198.51.100.1/32"]
    assert not compute.calls("DELETE")
    assert not compute.calls("PATCH")


def test_it_waits_until_the_rule_is_in_force(compute: Compute) -> None:
    compute.slow = 1
    Firewall(compute.session).ensure(planned())
    assert len([one for one in compute.seen if "/operations/" in one.path]) == 2


def test_a_rule_that_does_not_come_into_force_has_a_deadline(compute: Compute) -> None:
    compute.slow = 1000
    with pytest.raises(CloudError, match="not in force"):
        Firewall(compute.session, wait_seconds=0.1).ensure(planned())


def test_an_operation_that_fails_is_told_in_googles_words(compute: Compute) -> None:
    compute.fails = {
        "error": {"errors": [{"code": "RESOURCE_NOT_FOUND", "message": "The network 'net-9' was not found"}]},
        "httpErrorStatusCode": 404,
    }
    with pytest.raises(UserError, match="'net-9' was not found") as told:
        Firewall(compute.session).ensure(planned())
    assert "network" in told.value.next_step


@pytest.mark.parametrize(
    ("answer", "kind", "step"),
    [
        (Answer(403, "Required 'compute.firewalls.create' permission"), AccessError, "roles/compute.securityAdmin"),
        (Answer(403, "Compute Engine API has not been used in project 1"), AccessError, "services enable compute"),
        (Answer(400, "Invalid value for field 'resource.network'", "invalid"), UserError, "network"),
        (Answer(401, "no"), AccessError, "application-default login"),
        (Answer(404, "no such network", "notFound"), UserError, "network"),
    ],
)
def test_a_refusal_says_what_to_do(compute: Compute, answer: Answer, kind: type[OrchError], step: str) -> None:
    compute.faults = [Fault("POST", answer)]
    with pytest.raises(kind) as told:
        Firewall(compute.session).ensure(planned())
    assert step in told.value.next_step
    assert PATH not in compute.rules


def test_a_rule_that_is_gone_in_between_counts_as_gone(compute: Compute) -> None:
    wall = Firewall(compute.session)
    wall.ensure(planned())
    compute.faults = [Fault("DELETE", Answer(404, "gone"), acts=True)]
    assert wall.remove(end(), TOKEN)


def test_a_rule_that_google_does_not_delete_now_is_still_there(compute: Compute) -> None:
    wall = Firewall(compute.session)
    wall.ensure(planned())
    words = "The resource is not ready"
    compute.faults = [Fault("DELETE", Answer(412, words, "resourceNotReady"))]
    assert not wall.remove(end(), TOKEN)
    compute.faults = [Fault("DELETE", Answer(403, "not allowed"))]
    with pytest.raises(AccessError):
        wall.remove(end(), TOKEN)
    assert wall.remove(end(), TOKEN)


def test_reads_are_repeated(compute: Compute) -> None:
    compute.faults = [Fault("GET", Answer(503)), Fault("GET", Answer(500))]
    assert Firewall(compute.session).is_gone(end(), TOKEN)
    compute.faults = [Fault("GET", Answer(503)) for _ in range(9)]
    with pytest.raises(CloudError):
        Firewall(compute.session).is_gone(end(), TOKEN)


def test_the_listing_has_all_pages_and_only_ours(compute: Compute) -> None:
    wall = Firewall(compute.session)
    for number in range(5):
        of = replace(spec(token=f"t-{number}"), name=f"demo-{number}")
        for request in access.create_requests(access.Access(way=access.Way.IAP), of, KNOWN, "default"):
            wall.ensure(request)
    compute.rules[f"projects/{PROJECT}/global/firewalls/default-allow-ssh"] = {"name": "default-allow-ssh"}
    other = json.dumps({"orch-installation": "other", "orch-intent": "x", "orch-slice": "other-1"})
    compute.rules[f"projects/{PROJECT}/global/firewalls/o"] = {"name": "o", "description": other}
    found = wall.owned(PROJECT, INSTALLATION)
    assert [(rule.name, rule.slice, rule.intent) for rule in found] == [
        (f"demo-{number}-ssh", f"demo-{number}", f"t-{number}") for number in range(5)
    ]
    assert {rule.cluster for rule in found} == {"demo"}
    assert found[0].created == 1795168800.0
    assert len(wall.owned(PROJECT)) == 6
    assert wall.remove(found[2].request, found[2].intent)
    assert len(wall.owned(PROJECT, INSTALLATION)) == 4


def test_a_listing_that_is_not_whole_is_no_listing(compute: Compute) -> None:
    compute.warning = {"code": "UNREACHABLE", "message": "a part did not answer"}
    with pytest.raises(CloudError, match="a part did not answer"):
        Firewall(compute.session).owned(PROJECT, INSTALLATION)
    compute.warning = {"code": "NO_RESULTS_ON_PAGE"}
    assert Firewall(compute.session).owned(PROJECT, INSTALLATION) == ()


def test_a_listing_is_of_a_project_that_is_there(compute: Compute) -> None:
    compute.faults = [Fault("GET", Answer(404, "no such project"))]
    with pytest.raises((UserError, NotFoundError), match="no such project"):
        Firewall(compute.session).owned("nobodys")


def test_nothing_unknown_is_sent(compute: Compute) -> None:
    of = spec()
    (request,) = access.create_requests(access.read(of.candidate), of, KNOWN, "default")
    with pytest.raises(ValueError, match="still unknown"):
        Firewall(compute.session).ensure(request)
    for target in ("projects/(your project)/global/firewalls/a", "projects/p/global/networks/n", "firewalls/a"):
        with pytest.raises(ValueError, match="not the path"):
            Firewall(compute.session).remove(replace(end(), target=target), TOKEN)
    assert not compute.seen


def test_the_callers_address_is_asked_for_only_where_it_is_used() -> None:
    def asked() -> str:
        raise AssertionError("nobody needs it")

    for details in ({"access": "iap"}, {"ssh_cidr": "192.0.2.1/32"}):
        of = spec(**details)
        requests = access.create_requests(access.read(of.candidate), of, KNOWN, "net-1")
        assert with_caller(requests, asked) == requests
