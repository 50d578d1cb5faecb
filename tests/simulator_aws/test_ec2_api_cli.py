"""The real `aws` command against the pretend EC2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ec2_support import AMI, P5, REGION, Ec2, efa, tags

pytestmark = [pytest.mark.slow]  # each start of the command takes a second


def bash(script: str, ec2: Ec2) -> subprocess.CompletedProcess[str]:
    env = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": "/nonexistent",
        "AWS_ENDPOINT_URL": ec2.server.url,
        "AWS_ACCESS_KEY_ID": "AKIATEST",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_PAGER": "",
        "AWS_MAX_ATTEMPTS": "1",
    }
    return subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, timeout=60, check=False)


def test_a_cluster_is_launched_found_and_ended(ec2: Ec2) -> None:
    given = [
        f"--image-id {AMI} --instance-type {P5} --count 2 --client-token t-1",
        f"--network-interfaces '{json.dumps(efa(32, SubnetId=ec2.subnet()))}'",
        f"--tag-specifications '{json.dumps(tags('instance', orch_slice='c-1'))}'",
    ]
    launch = f"aws ec2 run-instances {' '.join(given)} --query 'Instances[].InstanceId' --output text"
    dry = f"aws ec2 run-instances {' '.join(given)} --dry-run"
    found = bash(f"{launch}; {dry}", ec2)
    ids = found.stdout.split()
    assert len(ids) == 2, found.stderr
    assert found.returncode == 255
    assert "DryRunOperation" in found.stderr
    ec2.clock.advance(41)
    read = "aws ec2 describe-instances --filters Name=tag:orch-slice,Values=c-1 Name=instance-state-name,Values=running"
    query = "--query 'Reservations[].Instances[].[InstanceId, length(NetworkInterfaces)]' --output text"
    ended = bash(f"{read} {query} && aws ec2 terminate-instances --instance-ids {' '.join(ids)}", ec2)
    assert ended.stdout.split()[:4] == [ids[0], "33", ids[1], "33"], ended.stderr
    assert ec2.states() == ["shutting-down"] * 2


def test_a_refusal_is_told_with_its_code(ec2: Ec2) -> None:
    told = bash("aws ec2 delete-placement-group --group-name none", ec2)
    assert told.returncode in (254, 255)
    assert "(InvalidPlacementGroup.Unknown)" in told.stderr
