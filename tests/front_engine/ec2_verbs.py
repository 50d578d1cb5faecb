"""The commands of the crash matrix on EC2."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from crash_verbs import READY, VERBS, Verb, down, launch, nothing_yet, preempted, recover, task, up
from front_matrix import Broken, FrontMatrix
from support.aws_cloud import EFA, REGION, aws_candidate
from support.ec2_front import EC2, Ec2Home
from support.simulated import SimHome, sim_launch

from orchestrator.engine.operations import sweep
from orchestrator.providers.aws.auxiliary_resources import AuxiliaryResources
from orchestrator.providers.aws.calls import Calls
from orchestrator.slices import CapacityBlock

BEFORE = 30.0  # seconds until the capacity block begins

BY_NAME = {verb.name: verb for verb in VERBS}
VERBS_OF_EC2 = tuple(BY_NAME[name] for name in ("launch", "recover", "stop", "start", "down", "reap"))


def _block_bought(home: SimHome) -> None:
    """And paid for; it begins soon."""
    nothing_yet(home)
    assert isinstance(home, Ec2Home)
    calls = Calls(home.client.session, REGION)
    block = {"InstanceType": EFA, "InstanceCount": 2, "CapacityDurationHours": 24}
    offered = calls.read("ec2", "DescribeCapacityBlockOfferings", block)["CapacityBlockOfferings"][0]
    given = {"CapacityBlockOfferingId": offered["CapacityBlockOfferingId"], "InstancePlatform": "Linux/UNIX"}
    made = calls.change("PurchaseCapacityBlock", given)["CapacityReservation"]
    _note().write_text(f"{made['CapacityReservationId']} {offered['AvailabilityZone']}")
    home.pass_time(offered["StartDate"].timestamp() - home.clock.now() - BEFORE)


def _launch_in_block(home: SimHome) -> None:
    name, zone = _note().read_text().split()
    home.drive(sim_launch(task(), aws_candidate(EFA, CapacityBlock(name), hosts=2, zone=zone)))


def _note() -> Path:
    return Path(os.environ["ORCH_HOME"]).parent / "block"


# Their requests are those of the others, in another order.
MORE_VERBS = (
    BY_NAME["resume"],
    Verb("launch spot", nothing_yet, partial(launch, spot=True), READY, 1),
    Verb("launch in a capacity block", _block_bought, _launch_in_block, READY, 1),
    Verb("recover what was no spot", partial(preempted, spot=False), partial(recover, spot=False), {"c-2": "ready"}, 2),
    Verb("down spot", partial(up, spot=True), down, {}, 1),
)


MATRIX = FrontMatrix(
    front=EC2,
    proof="SIGKILL around every request to EC2's API, over sockets, with boto3",
    proof_on_server="SIGKILL around every request to EC2's API, on PostgreSQL",
    verbs=VERBS_OF_EC2,
    in_full=MORE_VERBS,
    doubles=0.03,
    requests=(
        "CreateSecurityGroup",
        "AuthorizeSecurityGroupIngress",
        "AuthorizeSecurityGroupEgress",
        "CreatePlacementGroup",
        "AllocateAddress",
        "RunInstances",
        "AssociateAddress",
        "StopInstances",
        "StartInstances",
        "TerminateInstances",
        "ReleaseAddress",
        "DeleteSecurityGroup",
        "DeletePlacementGroup",
    ),
    patches=((sweep, "RESEND_AFTER", 2 * sweep.PAUSE),),  # until then each observation asks every region, with 4 calls
)
BROKEN = (
    Broken(
        name="leaves groups and an address",
        matrix=MATRIX,
        verb=BY_NAME["down"],
        finds=("groups/orch-{slice} is left", "placement/orch-{slice} is left", "addresses/.* is left"),
        patches=((AuxiliaryResources, "remove", lambda _: []),),
    ),
)
