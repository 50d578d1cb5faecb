"""Random histories of the real engine and the real provider of EC2, over sockets, with crashes anywhere."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import botocore.endpoint
import pytest
from ec2_machine import Ec2Machine
from engine_machine import Crash, run_histories
from support.aws_cloud import REGION
from support.ec2_front import Ec2Service, ec2_service
from support.lanes import by_lane, spread
from support.proof import report

from orchestrator.engine.operations import sweep


@pytest.fixture(autouse=True)
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ec2Service]:
    for name in ("ORCH_HOME", "ORCH_STORE"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(sweep, "RESEND_AFTER", 2 * sweep.PAUSE)
    # The library's pauses before it repeats a read are real time, which stands still.
    monkeypatch.setattr(botocore.endpoint, "time", SimpleNamespace(sleep=lambda _: None))
    with ec2_service(cut=True) as service:
        monkeypatch.setattr(Ec2Machine, "service", service, raising=False)
        yield service


@pytest.mark.slow
@pytest.mark.promise("P2")
@pytest.mark.promise("P3")
@pytest.mark.promise("P4")
@pytest.mark.promise("P5")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", spread(range(by_lane(1, 10))))
def test_in_random_histories_on_ec2_no_slice_is_orphaned_and_down_leaves_nothing(part: int) -> None:
    counts = run_histories(Ec2Machine, by_lane(4, 40), 10)
    report("random histories of the EC2 provider over sockets", counts)


@pytest.mark.slow
@pytest.mark.promise("P2")
def test_the_histories_find_a_second_slice_when_the_token_is_dropped(service: Ec2Service) -> None:
    machine = Ec2Machine()
    machine.begin(lag=0.0, page=50, exits=0, spot=False, way="ssm", theirs=("d", 1))
    events = service.client.session.client("ec2", REGION, once=True).meta.events
    events.register("provide-client-params.ec2.RunInstances", _with_another_token)

    def strike(**_: Any) -> None:
        events.unregister("response-received.ec2.RunInstances", strike)
        raise Crash("before its answer was read")

    events.register_first("response-received.ec2.RunInstances", strike)
    try:
        machine.command("launch", 0)
        machine.one_slice_for_an_intent()
        machine.command("launch", 0)
        with pytest.raises(AssertionError):
            machine.one_slice_for_an_intent()
    finally:
        shutil.rmtree(machine.root)


def _with_another_token(params: dict[str, Any], **_: Any) -> dict[str, Any]:
    return {**params, "ClientToken": uuid.uuid4().hex}
