"""Lives of slices on moto, a third party's EC2, with real sshd hosts: the provider of the product, over sockets."""

from __future__ import annotations

import pytest
from moto_account import CPU, MotoAccount, S
from support.aws_cloud import EFA, aws_candidate

from orchestrator.slices import Candidate, Spot

PAIR = aws_candidate(CPU, hosts=2)  # in a placement group, each host at its public address
EFA_PAIR = aws_candidate(EFA, hosts=2)  # with several interfaces, and so with Elastic IPs


@pytest.mark.parametrize(
    ("candidate", "made"),
    [
        (aws_candidate(CPU), {"instances": 1, "groups": 1, "volumes": 1}),
        (PAIR, {"instances": 2, "groups": 1, "volumes": 2, "placements": 1}),
        (EFA_PAIR, {"instances": 2, "groups": 1, "volumes": 2, "placements": 1, "addresses": 2}),
        (aws_candidate(CPU, Spot()), {"instances": 1, "groups": 1, "volumes": 1}),
    ],
    ids=["one host", "two hosts", "two hosts with EFA", "spot"],
)
def test_a_slice_lives_from_its_create_to_its_end(
    account: MotoAccount, candidate: Candidate, made: dict[str, int]
) -> None:
    keys = account.create(account.spec(candidate))
    view = account.settled()
    assert view.state is S.READY, view
    assert [host.rank for host in view.hosts] == list(range(candidate.hosts))
    assert [host.host_key for host in view.hosts] == list(keys.host_public), "pinned before it answers"
    homes = account.run(view, "pwd")
    assert len(set(homes)) == candidate.hosts
    assert {kind: len(names) for kind, names in account.left().items()} == made
    account.provider().end("c-1")
    assert account.settled().state is S.ABSENT
    assert account.left() == {}


def test_a_slice_stops_and_starts_with_all_its_hosts(account: MotoAccount) -> None:
    account.create(account.spec(PAIR))
    before = account.settled()
    account.run(before, "echo kept > file")
    provider = account.provider()
    provider.stop("c-1")
    assert account.settled().state is S.STOPPED
    provider.start("c-1")
    after = account.settled()
    assert after.state is S.READY
    assert [host.alias for host in after.hosts] == [host.alias for host in before.hosts]
    assert account.run(after, "cat file") == ["kept", "kept"]
    provider.end("c-1")
    assert account.settled().state is S.ABSENT
    assert account.left() == {}


def test_a_machine_that_ends_alone_fails_the_slice(account: MotoAccount) -> None:
    account.create(account.spec(PAIR))
    account.settled()
    ended = account.left()["instances"][1]
    account.proxy.client(account.key, "us-east-1").terminate_instances(InstanceIds=[ended])
    view = account.settled()
    assert view.state is S.FAILED
    assert "1 of 2 instances ended: Client.UserInitiatedShutdown" in view.reason
    account.provider().end("c-1")
    assert account.settled().state is S.ABSENT
    assert account.left() == {}


def test_the_proxy_answers_no_more_than_what_moto_lacks(account: MotoAccount) -> None:
    account.create(account.spec(PAIR))
    account.settled()
    account.provider().end("c-1")
    assert account.settled().state is S.ABSENT
    assert set(account.proxy.own) == {
        ("GetParameter", "moto has no public parameters of images"),
        ("CreatePlacementGroup", "moto has no placement groups"),
        ("DescribePlacementGroups", "moto has no placement groups"),
        ("DeletePlacementGroup", "moto has no placement groups"),
        ("DescribeInstances", "moto has no filter client-token"),
        ("DescribeInstances", "the hosts listen on this computer"),
    }
