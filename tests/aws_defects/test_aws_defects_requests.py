"""Faults that others have in what they ask EC2 for, and orch has not. aws_defect_table.py says whose each one is."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from aws_cases import every, spec
from aws_defects_bench import Bench
from support.aws_cloud import aws_candidate

import orchestrator
from orchestrator.catalog import ec2
from orchestrator.catalog.accelerators import resolve
from orchestrator.catalog.prices import price_per_hour
from orchestrator.engine.preparation.candidates import list_candidates
from orchestrator.providers.aws.planner import PLANNER
from orchestrator.slices import OnDemand, SliceState
from orchestrator.task.parse import parse_task

IAM = Path(orchestrator.__file__).parents[1] / "docs" / "iam"
UNPRICED = [name for name, one in ec2.load_instances().items() if not one.on_demand]


@pytest.mark.parametrize(
    ("kind", "efa", "card0"),
    [("p4d.24xlarge", 4, True), ("p5.48xlarge", 32, True), ("p6-b300.48xlarge", 16, False), ("trn1.32xlarge", 8, True)],
)
def test_hosts_that_can_be_reached_have_an_efa_on_every_card(bench: Bench, kind: str, efa: int, card0: bool) -> None:
    """EC2 gives no public address to a machine with several interfaces; all of them are there all the same."""
    ec2_account = bench.ec2
    ec2_account.create(ec2_account.spec(aws_candidate(kind, hosts=2)))
    view = ec2_account.settled()
    assert view.state is SliceState.READY
    assert len({host.host for host in view.hosts} - {host.internal_ip for host in view.hosts}) == 2
    for instance in ec2_account.calls().instances({}):
        shown: list[dict[str, Any]] = list(instance["NetworkInterfaces"])
        cards = [one["Attachment"]["NetworkCardIndex"] for one in shown if one["InterfaceType"] == "efa-only"]
        assert len(cards) == len(set(cards)) == efa, "one on each card"
        assert (0 in cards) is card0
        assert len([one for one in shown if one.get("PrivateIpAddress")]) == 1, "they use up no address of the subnet"


@pytest.mark.parametrize("name", UNPRICED)
def test_types_without_a_price_can_be_asked_for_and_their_price_is_unknown(name: str) -> None:
    text = f"resources: {{instance_type: {name}, infra: aws, use_spot: true}}\nnum_nodes: 2\nrun: x\n"
    found = list_candidates(parse_task(text, file="t.yaml", env={}).only)
    assert found and {one.accelerator for one in found} == {name}
    assert {one.price_per_hour for one in found}.isdisjoint({0.0})
    assert price_per_hour(resolve(name), OnDemand(), "us-east-1") is None
    for one in found:
        assert PLANNER.create_request(spec(one)).method == "RunInstances"


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        ("Trainium2:16", "trn2.48xlarge"),
        ("Trainium:16", "trn1.32xlarge"),
        ("Trainium:1", "trn1.2xlarge"),
        ("trn2.48xlarge", "trn2.48xlarge"),
        ("H200:8", "p5en.48xlarge"),
    ],
)
def test_trainium_and_new_gpus_are_launched_by_their_names(asked: str, kind: str) -> None:
    text = f"resources: {{accelerators: '{asked}', infra: aws, use_spot: true}}\nrun: x\n"
    assert {one.accelerator for one in list_candidates(parse_task(text, file="t.yaml", env={}).only)} == {kind}


def test_no_request_makes_a_role_a_key_pair_or_a_way_in_for_everybody() -> None:
    for of in every().values():
        for request in (*PLANNER.create_request(of).in_order, *PLANNER.end_request(of.name, of.candidate).in_order):
            assert request.service in ("ec2", "ssm", "service-quotas")
            assert "Key" not in request.method
            said = json.dumps(request.body, default=str)
            assert "0.0.0.0/0" not in said and "::/0" not in said


def test_no_policy_of_ours_gives_a_whole_service() -> None:
    files = sorted(IAM.glob("aws-*policy.json"))
    assert [file.name for file in files] == ["aws-host-policy.json", "aws-policy.json", "aws-server-policy.json"]
    for statement in [one for file in files for one in json.loads(file.read_text())["Statement"]]:
        assert statement["Effect"] == "Allow"
        assert not [action for action in statement["Action"] if "*" in action]


def test_no_waiter_of_boto3s_is_used() -> None:
    """That for running instances gives up after ten minutes, and tells nothing while it waits."""
    package = Path(orchestrator.__file__).parent
    names = {
        node.attr
        for file in sorted((package / "providers" / "aws").glob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute)
    }
    assert "get_paginator" in names, "the provider was not read"
    assert not [name for name in names if "waiter" in name or name.startswith("wait_until")]
