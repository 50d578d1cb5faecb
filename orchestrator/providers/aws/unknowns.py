"""What the requests of EC2 take from the answers of earlier ones, and what is made or asked for only at launch.

One request fills an unknown by `Request.gives`; those that no request fills are filled by who sends them, and a person
who pastes the commands sets them.
"""

from __future__ import annotations

from orchestrator.values import Unknown

# Filled by answers.
IMAGE = Unknown("image id")
ROOT_DEVICE = Unknown("root device of the image")
SUBNET = Unknown("subnet id")
VPC = Unknown("id of the subnet's VPC")
GROUP = Unknown("security group id")
ALLOCATION = Unknown("id of the Elastic IP")
HEAD_INTERFACE = Unknown("first network interface of the head")
INSTANCES = Unknown("instance ids, as a JSON list")
SPOT_REQUESTS = Unknown("spot request ids, as a JSON list")


def allocation(rank: int) -> Unknown:
    """The Elastic IP of this host."""
    return ALLOCATION if rank == 0 else Unknown(f"id of the Elastic IP of host {rank}")


def first_interface(rank: int) -> Unknown:
    return HEAD_INTERFACE if rank == 0 else Unknown(f"first network interface of host {rank}")


# Their values are whole lists: the text of a JSON list, which the `aws` command takes as such, too.
LISTS = frozenset({INSTANCES, SPOT_REQUESTS})

# Filled by who sends the request.
CALLER = Unknown("your public address, as CIDR")
USER_DATA = Unknown("user-data with the host keys, made at create")
USER_DATA_FILE = Unknown("path of a file with the user-data, whose host keys are made at create")  # in commands only
