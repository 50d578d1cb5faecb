"""Candidates and specs for the tests of EC2: every family, market, network, way and option."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.catalog import ec2
from orchestrator.catalog.machines import Ec2Instance
from orchestrator.errors import UserError
from orchestrator.providers.aws import choices, unknowns
from orchestrator.providers.aws.interfaces import efa_places
from orchestrator.slices import Candidate, CapacityBlock, Market, OnDemand, Reservation, SliceSpec, Spot
from orchestrator.values import Text, Unknown

INSTALLATION = "inst-0123456789abcdef"
TOKEN = "5f0c91aa7be24d10a7b0c3d2e1f00001-1"
RESERVATION = "cr-0123456789abcdef0"
LABELS = (
    ("orch-installation", Text.of(INSTALLATION)),
    ("orch-cluster", Text.of("demo")),
    ("orch-intent", Text.of(TOKEN)),
)
MARKETS: dict[str, Market] = {
    "on demand": OnDemand(),
    "spot": Spot(),
    "reservation": Reservation(RESERVATION),
    "block": CapacityBlock(RESERVATION),
}
# What answers and the sender make known, one plausible value each.
KNOWN: dict[Unknown, str] = {
    unknowns.IMAGE: "ami-0123456789abcdef0",
    unknowns.ROOT_DEVICE: "/dev/sda1",
    unknowns.SUBNET: "subnet-0123456789abcdef0",
    unknowns.VPC: "vpc-0123456789abcdef0",
    unknowns.GROUP: "sg-0123456789abcdef0",
    unknowns.ALLOCATION: "eipalloc-0123456789abcdef0",
    unknowns.HEAD_INTERFACE: "eni-0123456789abcdef0",
    unknowns.INSTANCES: '["i-0123456789abcdef0","i-0123456789abcdef1"]',
    unknowns.SPOT_REQUESTS: '["sir-abcdefg1"]',
    unknowns.CALLER: "203.0.113.7/32",
    **{unknowns.allocation(rank): f"eipalloc-0123456789abcde{rank:02x}" for rank in range(1, 144)},
    **{unknowns.first_interface(rank): f"eni-0123456789abcde{rank:02x}" for rank in range(1, 144)},
}


def candidate(
    instance_type: str = "p5.48xlarge",
    market: Market | None = None,
    hosts: int = 2,
    zone: str = "us-east-1a",
    disk_gib: int | None = None,
    region: str = "us-east-1",
    **details: str,
) -> Candidate:
    return Candidate(
        provider="aws",
        accelerator=instance_type,
        hosts=hosts,
        chips_per_host=8,
        market=market or OnDemand(),
        region=region,
        zone=zone,
        disk_gib=disk_gib,
        details=tuple(details.items()),
    )


def spec(of: Candidate | None = None, name: str = "demo-1", token: Text | None = None) -> SliceSpec:
    token = token or Text.of(TOKEN)
    return SliceSpec(
        cluster="demo",
        name=name,
        token=token,
        candidate=of or candidate(),
        labels=(*LABELS[:2], ("orch-intent", token)),
    )


def hostile() -> SliceSpec:
    """Labels that a shell, a JSON reader and the aws command could all misread."""
    labels = {
        'it\'s "quoted"': "$HOME `id` $(id) \\ 'x' \"y\"",
        "file://key": "file:///etc/passwd",
        "Team, äöü": "日本語, x=y;z",
        "[1]": '{"Key":"a"}',
        "--dry-run": "-v",
        "empty": "",
    }
    plain = spec(candidate("p4d.24xlarge", instance_profile="a=b,c+d@e"), name="x-1")
    return replace(plain, labels=(*plain.labels, *((key, Text.of(value)) for key, value in labels.items())))


def families(counts: Sequence[int] = (1, 2)) -> dict[str, SliceSpec]:
    """Each kind of request in each market and network that it can be had with. counts: of hosts.

    Types whose requests differ in the name alone are one kind, but for those that train on several machines.
    """
    found: dict[str, SliceSpec] = {}
    kinds = {_kind(one): name for name, one in reversed(ec2.load_instances().items())}
    for name in reversed(kinds.values()):
        networks = ("", "standard", "best") if ec2.load_instances()[name].efa_max else ("",)
        for word, market in MARKETS.items():
            for network in networks:
                for hosts in counts:
                    of = candidate(name, market, hosts, network=network)
                    try:
                        choices.read(of)
                    except UserError:
                        continue
                    found[f"{name}, {word}, {network or 'usual'} network, {hosts}"] = spec(of)
    return found


def _kind(one: Ec2Instance) -> tuple[object, ...]:
    large = one.name if one.name.startswith(("p", "trn")) else one.name.startswith("t3.")
    return (large, bool(one.chips), bool(one.local_nvme), efa_places(one), one.on_demand, one.capacity_block)


def options() -> dict[str, SliceSpec]:
    named = {"security_group": "sg-0123456789abcdef0", "subnet": "subnet-0123456789abcdef1"}
    cases: dict[str, Candidate] = {
        "a type that no table has": candidate("p9.48xlarge", hosts=3),
        "a type without accelerators": candidate("m7i.large", hosts=2),
        "a burstable type": candidate("t3.micro", hosts=2),
        "a subnet and a group": candidate(**named),
        "a subnet and no zone": candidate(zone="", subnet="subnet-0123456789abcdef1"),
        "a placement group": candidate(placement_group="my group, the 1st"),
        "a profile": candidate(profile="dev profile"),
        "an instance profile": candidate(instance_profile="orch-hosts"),
        "an image": candidate(image="ami-0fedcba9876543210", user="ec2-user"),
        "an image's parameter": candidate(image="/aws/service/ami-amazon-linux-latest/al2023"),
        "JAX on Trainium": candidate("trn1.32xlarge", framework="jax"),
        "JAX on a GPU": candidate(framework="jax"),
        "public addresses": candidate("p5.48xlarge", hosts=2, network="standard", access="public"),
        "an address of one host": candidate(hosts=1, access="eip"),
        "an address of the head": candidate(hosts=3, access="eip"),
        "Session Manager": candidate(access="ssm", instance_profile="ssm"),
        "private": candidate(access="private", ssh_cidr="10.0.0.0/8,fd00::/8"),
        "a jump host": candidate(access="jump", jump="me@bastion.example:2222", ssh_cidr="10.0.0.5/32"),
        "ranges": candidate(ssh_cidr="198.51.100.0/24,2001:db8:1::/64"),
        "a local zone": candidate("p5.4xlarge", hosts=1, zone="us-west-2-lax-1a", region="us-west-2"),
        "another region": candidate("trn2.48xlarge", Spot(), zone="us-east-2b", region="us-east-2"),
        "a small disk": candidate(disk_gib=5),
        "a large disk": candidate(disk_gib=16384),
        "many hosts": candidate("trn1.32xlarge", hosts=144, access="eip"),
    }
    return {word: spec(of) for word, of in cases.items()} | {"hostile labels": hostile()}


def every() -> dict[str, SliceSpec]:
    return families() | options()
