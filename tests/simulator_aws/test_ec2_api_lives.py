"""What becomes of instances, by boto3: ends, stops, spot, failures, and what a listing shows of it."""

from __future__ import annotations

import pytest
from ec2_support import OTHER, P4D, ZONE, Ec2, Make, efa, refusal, tags

from orch_fronts.aws.ec2.lives import power_off
from orchestrator.simulator.scenario import Deed, Durations, Fault, FaultKind, Pool

SPOT = {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": "one-time"}}}
NAMED = {"TagSpecifications": tags("instance", Name="c-1")}


def reasons(ec2: Ec2) -> list[str]:
    return [one.get("StateReason", {}).get("Code", "") for one in ec2.look()]


def test_terminate_can_be_asked_again(ec2: Ec2) -> None:
    first, second = (one["InstanceId"] for one in ec2.running(2))
    unknown = "i-0fffffffffff0000f"
    assert refusal(ec2.api.terminate_instances, InstanceIds=[first, second, unknown]) == (
        "InvalidInstanceID.NotFound",
        400,
    )
    assert ec2.states() == ["running", "running"]
    change = ec2.api.terminate_instances(InstanceIds=[first, second])["TerminatingInstances"][0]
    assert (change["PreviousState"]["Name"], change["CurrentState"]["Name"]) == ("running", "shutting-down")
    ec2.clock.advance(21)
    again = ec2.api.terminate_instances(InstanceIds=[second])["TerminatingInstances"][0]
    assert (again["PreviousState"]["Name"], again["CurrentState"]["Name"]) == ("terminated", "terminated")
    assert reasons(ec2) == ["Client.UserInitiatedShutdown"] * 2
    assert ec2.cloud.live() == ()


def test_each_instance_ends_alone(ec2: Ec2) -> None:
    ids = [one["InstanceId"] for one in ec2.running(3)]
    ec2.terminate(ids[1])
    assert ec2.states() == ["running", "shutting-down", "running"]
    ec2.clock.advance(21)
    assert ec2.states() == ["running", "terminated", "running"]
    ec2.terminate(ids[0], ids[2])
    ec2.clock.advance(21)
    assert ec2.states() == ["terminated"] * 3
    assert ec2.cloud.live() == ()


def test_terminated_instance_is_shown_for_a_while(ec2: Ec2) -> None:
    only = ec2.running(NetworkInterfaces=efa(4))[0]["InstanceId"]
    ec2.terminate(only)
    ec2.clock.advance(1800)
    shown = ec2.look()[0]
    assert shown["State"] == {"Code": 48, "Name": "terminated"}
    assert shown["NetworkInterfaces"] == []
    assert "PrivateIpAddress" not in shown
    assert ec2.api.describe_network_interfaces()["NetworkInterfaces"] == []
    ec2.clock.advance(2000)
    assert ec2.look() == []
    assert refusal(ec2.api.describe_instances, InstanceIds=[only]) == ("InvalidInstanceID.NotFound", 400)


def test_unknown_instance_is_told_from_a_malformed_id(ec2: Ec2) -> None:
    for call in (ec2.api.describe_instances, ec2.api.terminate_instances, ec2.api.stop_instances):
        assert refusal(call, InstanceIds=["i-0fffffffffff0000f"]) == ("InvalidInstanceID.NotFound", 400)
        assert refusal(call, InstanceIds=["c-1"]) == ("InvalidInstanceID.Malformed", 400)


def test_new_instance_may_not_be_found_yet(make_ec2: Make) -> None:
    ec2 = make_ec2(lag=5.0)
    only = ec2.run()[0]["InstanceId"]
    seen = [len(ec2.look()) for _ in range(20)]
    assert 0 in seen
    assert refusal(ec2.api.describe_instances, InstanceIds=[only]) == ("InvalidInstanceID.NotFound", 400)
    ec2.clock.advance(6)
    assert len(ec2.look(only)) == 1


def test_what_was_launched_together_stops_together(ec2: Ec2) -> None:
    ids = [one["InstanceId"] for one in ec2.running(2)]
    assert refusal(ec2.api.stop_instances, InstanceIds=ids[:1]) == ("UnsupportedOperation", 400)
    ec2.api.stop_instances(InstanceIds=ids)
    assert ec2.states() == ["stopping"] * 2
    assert refusal(ec2.api.start_instances, InstanceIds=ids) == ("IncorrectInstanceState", 400)
    ec2.clock.advance(21)
    assert ec2.states() == ["stopped"] * 2
    assert reasons(ec2) == ["Client.UserInitiatedShutdown"] * 2
    ec2.api.start_instances(InstanceIds=ids)
    assert ec2.states() == ["pending"] * 2
    ec2.clock.advance(31)
    assert ec2.states() == ["running"] * 2
    assert reasons(ec2) == ["", ""]


def test_a_start_may_find_no_machines(make_ec2: Make) -> None:
    ec2 = make_ec2(pools=(Pool(zone=ZONE, accelerator=P4D, amount=1),))
    first = ec2.running()[0]["InstanceId"]
    ec2.api.stop_instances(InstanceIds=[first])
    ec2.clock.advance(21)
    ec2.run()
    assert refusal(ec2.api.start_instances, InstanceIds=[first]) == ("InsufficientInstanceCapacity", 500)


def test_one_time_spot_cannot_be_stopped(ec2: Ec2) -> None:
    only = ec2.running(**SPOT)[0]["InstanceId"]
    assert refusal(ec2.api.stop_instances, InstanceIds=[only]) == ("UnsupportedOperation", 400)


def test_pending_cannot_be_stopped(ec2: Ec2) -> None:
    only = ec2.run()[0]["InstanceId"]
    assert refusal(ec2.api.stop_instances, InstanceIds=[only]) == ("IncorrectInstanceState", 400)


@pytest.mark.parametrize(("behaviour", "state"), [("terminate", "terminated"), ("stop", "stopped")])
def test_shutdown_from_inside_does_what_the_launch_said(ec2: Ec2, behaviour: str, state: str) -> None:
    ec2.running(2, InstanceInitiatedShutdownBehavior=behaviour)
    resource = next(iter(ec2.cloud.state.resources.values()))
    power_off(ec2.cloud, resource, 1)
    ec2.clock.advance(21)
    assert ec2.states() == ["running", state]
    assert reasons(ec2) == ["", "Client.InstanceInitiatedShutdown"]
    power_off(ec2.cloud, resource, 0)
    ec2.clock.advance(21)
    assert ec2.states() == [state, state]
    assert bool(ec2.cloud.live()) == (state == "stopped")


def test_spot_request_tells_why_its_instance_ended(ec2: Ec2) -> None:
    market = {**SPOT, "TagSpecifications": [*NAMED["TagSpecifications"], *tags("spot-instances-request", a="b")]}
    only = ec2.running(**market)[0]
    assert only["InstanceLifecycle"] == "spot"
    request = ec2.api.describe_spot_instance_requests()["SpotInstanceRequests"][0]
    assert request["SpotInstanceRequestId"] == only["SpotInstanceRequestId"]
    assert (request["State"], request["Status"]["Code"], request["Tags"]) == (
        "active",
        "fulfilled",
        [{"Key": "a", "Value": "b"}],
    )
    ec2.cloud.preempt("c-1", notice=120.0)
    request = ec2.api.describe_spot_instance_requests()["SpotInstanceRequests"][0]
    assert (request["State"], request["Status"]["Code"]) == ("active", "marked-for-termination")
    ec2.clock.advance(121)
    assert ec2.states() == ["shutting-down"]
    ec2.clock.advance(21)
    assert ec2.states() == ["terminated"]
    assert reasons(ec2) == ["Server.SpotInstanceTermination"]
    request = ec2.api.describe_spot_instance_requests()["SpotInstanceRequests"][0]
    assert (request["State"], request["Status"]["Code"]) == ("closed", "instance-terminated-no-capacity")
    assert ec2.cloud.live() == ()  # nobody had to end it


def test_spot_may_take_one_of_several(ec2: Ec2) -> None:
    ids = [one["InstanceId"] for one in ec2.running(3, **SPOT, **NAMED)]
    ec2.cloud.preempt("c-1", rank=1)
    ec2.clock.advance(25)
    assert ec2.states() == ["running", "shutting-down", "running"]
    ec2.clock.advance(25)
    assert ec2.states() == ["running", "terminated", "running"]
    assert reasons(ec2) == ["", "Server.SpotInstanceTermination", ""]
    ec2.terminate(*ids)
    ec2.clock.advance(21)
    assert ec2.cloud.live() == ()
    assert ec2.states() == ["terminated"] * 3


def test_cancelled_spot_request_leaves_the_instance(ec2: Ec2) -> None:
    request = ec2.running(**SPOT)[0]["SpotInstanceRequestId"]
    ec2.api.cancel_spot_instance_requests(SpotInstanceRequestIds=[request])
    assert ec2.states() == ["running"]
    shown = ec2.api.describe_spot_instance_requests(SpotInstanceRequestIds=[request])["SpotInstanceRequests"][0]
    assert shown["State"] == "cancelled"
    assert refusal(ec2.api.cancel_spot_instance_requests, SpotInstanceRequestIds=["sir-00000000"]) == (
        "InvalidSpotInstanceRequestID.NotFound",
        400,
    )
    assert (
        ec2.api.describe_spot_instance_requests(Filters=[{"Name": "state", "Values": ["active"]}])[
            "SpotInstanceRequests"
        ]
        == []
    )


def test_late_failure_ends_the_instance(make_ec2: Make) -> None:
    ec2 = make_ec2(faults=(Fault(call="create", kind=FaultKind.LATE_STOCKOUT, nth=(1,)),))
    ec2.run(2)
    ec2.clock.advance(41)
    assert set(ec2.states()) == {"shutting-down"}
    ec2.clock.advance(21)
    assert reasons(ec2) == ["Server.InsufficientInstanceCapacity"] * 2
    assert ec2.cloud.live() == ()
    ec2.running(**NAMED)
    ec2.cloud.do("c-1", Deed.FAIL)
    ec2.clock.advance(21)
    assert reasons(ec2)[-1] == "Server.InternalError"


def test_dead_host_is_stopped(make_ec2: Make) -> None:
    ec2 = make_ec2(durations=Durations(jitter=0.0, detect=60.0))
    ids = [one["InstanceId"] for one in ec2.running(2, **NAMED)]
    ec2.cloud.do("c-1", Deed.FAIL_HOST, 1)
    assert ec2.states() == ["running", "running"]
    ec2.clock.advance(61)
    assert ec2.states() == ["running", "stopped"]
    assert reasons(ec2) == ["", "Server.ScheduledStop"]
    ec2.terminate(*ids)
    ec2.clock.advance(21)
    assert ec2.states() == ["terminated", "terminated"]


def test_some_of_a_launch_may_never_come_up(make_ec2: Make) -> None:
    ec2 = make_ec2(faults=(Fault(call="create", kind=FaultKind.HALF_MADE, nth=(1,), rank=1),))
    ec2.running(3)
    ec2.clock.advance(600)
    assert ec2.states() == ["running", "pending", "running"]


def test_a_look_may_be_behind(make_ec2: Make) -> None:
    ec2 = make_ec2(faults=(Fault(call="list", kind=FaultKind.STALE, nth=(1,), seconds=30.0),))
    ec2.run()
    ec2.clock.advance(50)
    assert [ec2.states(), ec2.states()] == [["pending"], ["running"]]


def test_maintenance_changes_no_address(ec2: Ec2) -> None:
    before = ec2.running(2, **NAMED)
    ec2.running(1)
    ec2.cloud.do("c-1", Deed.MAINTENANCE)
    ec2.clock.advance(121)
    ids = [one["InstanceId"] for one in before]
    assert [one["PrivateIpAddress"] for one in ec2.look(*ids)] == [one["PrivateIpAddress"] for one in before]


def test_what_is_somebody_elses_is_seen_and_told_apart(ec2: Ec2) -> None:
    ec2.cloud.seed_foreign("theirs", {"team": "x"}, zone=OTHER)
    shown = ec2.look()[0]
    assert shown["Placement"]["AvailabilityZone"] == OTHER
    assert shown["Tags"] == [{"Key": "team", "Value": "x"}]
    ec2.terminate(shown["InstanceId"])
    assert len(ec2.cloud.trespasses()) == 1
