"""What EC2 reports of hosts that do not answer SSH, in the notes and in the error of the engine."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.aws_cloud import ZONE, aws_zones
from support.driving import Listener
from support.ec2_front import Ec2Home, Ec2Service, ec2_service
from support.simulated import sim_launch, sim_task, use_home

from orchestrator.engine.loop.drive import drive_cluster
from orchestrator.exits import Exit
from orchestrator.providers.aws.status import describe
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.scenario import Deed, Durations, Happening, Scenario

EVEN = Durations(create=4.0, end=2.0, contact=0.01, jitter=0.0)


@pytest.fixture(scope="module")
def service() -> Iterator[Ec2Service]:
    with ec2_service() as served:
        yield served


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ORCH_HOME", "ORCH_STORE"):
        monkeypatch.setenv(name, "")
    use_home(tmp_path)


def launch(service: Ec2Service, *happenings: Happening) -> tuple[Listener, int, str]:
    access = InMemory(Scenario(zones=aws_zones(ZONE), durations=EVEN, happenings=happenings), ManualClock())
    service.account.current = access
    service.server.requests.clear()
    home, listener = Ec2Home(access, client=service.client), Listener()
    ending = drive_cluster(sim_launch(sim_task(), home.candidate()), listener, services=home.services())
    return listener, ending.status, str(ending.step)


def test_a_host_that_does_not_answer_is_explained_by_its_status_checks(service: Ec2Service) -> None:
    silent = Happening(do=Deed.SILENCE_HOST, after_ready=0.0, seconds=200.0, rank=1)
    listener, status, _ = launch(service, silent)
    assert status == Exit.OK, "it answers later"
    said = [note for note in listener.notes if "instance status is impaired since" in note]
    assert len(said) == 1 and said[0].startswith("host 1 of 'c' does not answer; EC2: instance status is impaired"), (
        said
    )
    sent = [call for call in service.server.requests if call.operation == "DescribeInstanceStatus"]
    assert 1 <= len(sent) <= 4, "at most once a minute"


def test_the_error_of_hosts_that_never_answer_has_the_words_of_ec2(service: Ec2Service) -> None:
    silent = [Happening(do=Deed.SILENCE_HOST, after_ready=0.0, seconds=9e6, rank=rank, times=0) for rank in range(2)]
    listener, status, _ = launch(service, *silent)
    assert status != Exit.OK
    assert any("instance status is impaired since" in note for note in listener.notes)


def test_a_host_that_answers_needs_no_status_check(service: Ec2Service) -> None:
    _, status, _ = launch(service)
    assert status == Exit.OK
    assert not [call for call in service.server.requests if call.operation == "DescribeInstanceStatus"]


# InstanceStatus, InstanceStatusDetails and InstanceStatusEvent of the EC2 API reference (read November 2026).
SINCE = datetime(2026, 11, 26, 6, 12, tzinfo=UTC)
OK = {"Status": "ok", "Details": [{"Name": "reachability", "Status": "passed"}]}
BROKEN = {"Status": "impaired", "Details": [{"Name": "reachability", "Status": "failed", "ImpairedSince": SINCE}]}
RETIRED = {
    "Code": "instance-retirement",
    "Description": "The instance runs on degraded hardware",
    "NotBefore": SINCE,
}


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"SystemStatus": OK, "InstanceStatus": OK}, "EC2: its status checks pass"),
        (
            {"SystemStatus": BROKEN, "InstanceStatus": OK},
            "EC2: system status is impaired since 2026-11-26 06:12 UTC (reachability failed)",
        ),
        (
            {"SystemStatus": OK, "InstanceStatus": OK, "Events": [RETIRED]},
            "EC2: scheduled instance-retirement from 2026-11-26 06:12 UTC: The instance runs on degraded hardware",
        ),
        (
            {"InstanceStatus": OK, "Events": [{**RETIRED, "Description": "[Completed] The instance …"}]},
            "EC2: its status checks pass",
        ),
        (
            {"SystemStatus": {"Status": "initializing"}, "InstanceStatus": OK},
            "EC2: system status is initializing",
        ),
    ],
)
def test_status_in_words(status: dict[str, object], words: str) -> None:
    assert describe(status) == words
