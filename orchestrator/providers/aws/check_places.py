"""Zones that have the machine, the subnets in them, and whether EC2 knows the machine as our table does."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.catalog.machines import Ec2Instance
from orchestrator.distribution import install_command
from orchestrator.exits import Exit
from orchestrator.providers.aws.calls import Calls, Thing
from orchestrator.providers.aws.check_asked import Asked
from orchestrator.providers.aws.faults import explain
from orchestrator.providers.checks import Outcome, finding_from_error, fix, ok, unknown
from orchestrator.providers.core.faults import Kind, Refused

_NEAR_ENOUGH = 0.02  # of the memory of a chip: tables and EC2 round differently
# DescribeInstanceTypes says 512 GiB of a Trainium2, whose data sheet says 96 (dump of May 2026).
_KNOWN_WRONG = ("trn2",)


def offering_zones(calls: Calls, instance_type: str) -> list[str]:
    """Names of the zones of the region that have it. Raises Refused."""
    found = calls.every(
        "DescribeInstanceTypeOfferings",
        "InstanceTypeOfferings",
        {"instance-type": [instance_type]},
        LocationType="availability-zone",
    )
    return sorted(str(one["Location"]) for one in found)


def zones(asked: Asked) -> Outcome:
    """Zones that have the machine, and a subnet with enough free addresses in one of them."""
    try:
        offering = offering_zones(asked.calls, asked.instance.name) if asked.instance else []
        if asked.instance is not None and not (offering and asked.ask.zone in ("", *offering)):
            return _not_offered(asked, asked.instance, offering)
        subnets = _subnets(asked)
    except Refused as refused:
        return finding_from_error("zones", explain("list", f"zones of {asked.region}", refused.answer))
    if not subnets:
        return _no_subnets(asked)
    wanted = [asked.ask.zone] if asked.ask.zone else offering or sorted({_zone(one) for one in subnets})
    inside = [one for one in subnets if _zone(one) in wanted]
    if not inside:
        return _no_subnet(asked, wanted, subnets)
    return _room(asked, wanted, inside)


def _not_offered(asked: Asked, instance: Ec2Instance, offering: Sequence[str]) -> Outcome:
    if offering:
        words = f"{instance.name} is not offered in {asked.ask.zone}"
        return fix("zones", words, f"take another: --zone {offering[0]}", Exit.CAPACITY)
    others = [region for region in instance.regions if region != asked.region]
    listed = (
        f"take another region (listed: {', '.join(others)}): --region {others[0]}" if others else "orch accelerators"
    )
    return fix("zones", f"{instance.name} is not offered in {asked.region}", listed, Exit.CAPACITY)


def _subnets(asked: Asked) -> list[Thing]:
    """Those that are named, else the default ones of the zones. Raises Refused."""
    named = asked.options.subnets
    filters = {"subnet-id": named} if named else {"default-for-az": ["true"]}
    return asked.calls.every("DescribeSubnets", "Subnets", filters)


def _no_subnets(asked: Asked) -> Outcome:
    if named := asked.options.subnets:
        words = f"{asked.region} has no subnet {' or '.join(named)}"
        mend = f"aws ec2 describe-subnets --region {asked.region}{asked.profile_option}"
        return fix("zones", words, f"{mend}   then name some of them: aws.subnets", Exit.USAGE)
    mend = f"aws ec2 create-default-vpc --region {asked.region}{asked.profile_option}"
    return fix("zones", f"{asked.region} has no default network", f"{mend}   or name subnets: aws.subnets", Exit.USAGE)


def _no_subnet(asked: Asked, wanted: Sequence[str], subnets: Sequence[Thing]) -> Outcome:
    what = asked.instance.name if asked.instance else "the requested zone"
    there = ", ".join(sorted({_zone(one) for one in subnets}))
    words = f"no subnet in {', '.join(wanted)}, where {what} is; there are subnets in {there}"
    if asked.options.subnets:
        return fix("zones", words, f"name one in {wanted[0]}: aws.subnets", Exit.USAGE)
    mend = f"aws ec2 create-default-subnet --availability-zone {wanted[0]} --region {asked.region}"
    return fix("zones", words, mend + asked.profile_option, Exit.USAGE)


def _room(asked: Asked, wanted: Sequence[str], subnets: Sequence[Thing]) -> Outcome:
    """A machine takes one address, whatever its number of EFA interfaces."""
    nodes = asked.ask.nodes
    room = [one for one in subnets if int(one["AvailableIpAddressCount"]) >= nodes]
    free = "; ".join(f"{_zone(one)}: {int(one['AvailableIpAddressCount']):,} free addresses" for one in room or subnets)
    if not room:
        words = f"{nodes} addresses are needed, and no subnet has them; {free}"
        return fix("zones", words, "name a larger subnet: aws.subnets", Exit.CAPACITY)
    without = [zone for zone in wanted if zone not in {_zone(one) for one in subnets}]
    lacking = f"; no subnet in {', '.join(without)}" if without else ""
    what = f"{asked.instance.name} is offered; " if asked.instance else ""
    return ok("zones", f"{what}{free}{lacking}")


def machine(asked: Asked, instance: Ec2Instance) -> Outcome:
    """What EC2 says of the type against our table, from which its interfaces and programs are planned."""
    try:
        found = asked.calls.read("ec2", "DescribeInstanceTypes", {"InstanceTypes": [instance.name]})["InstanceTypes"]
    except Refused as refused:
        if refused.answer.kind is not Kind.INVALID:
            return finding_from_error("machine", explain("describe", instance.name, refused.answer))
        found = ()
    if not found:
        return Outcome(())  # it is not to be had here, as the zones tell
    said = _said(found[0])
    if not instance.listed:
        return ok("machine", f"{instance.name} is not in orch's table; EC2 says: {_words(said)}")
    ours = _ours(instance)
    wrong = [f"{what} {ours[what]:g}, and EC2 says {said[what]:g}" for what in ours if _differ(ours[what], said[what])]
    known = instance.name.startswith(_KNOWN_WRONG)
    if wrong:
        words = f"orch's table has of {instance.name}: {'; '.join(wrong)}"
        return unknown("machine", words, f"a newer orch may know better: {install_command('aws', '--upgrade')}")
    note = "; EC2's own figure for the memory of a Trainium2 is known to be wrong" if known else ""
    return ok("machine", f"{instance.name}: {_words(ours)}, as EC2 says{note}")


_MEMORY = "GiB of memory on each"


def _ours(instance: Ec2Instance) -> dict[str, float]:
    """A figure that EC2 has wrong is left out."""
    found: dict[str, float] = {
        "vCPUs": instance.vcpus,
        "accelerators": instance.chips_per_host,
        "network cards": instance.network_cards,
        "EFA interfaces": instance.efa_max,
    }
    return found if instance.name.startswith(_KNOWN_WRONG) else found | {_MEMORY: instance.hbm_gib_per_chip}


def _said(data: Thing) -> dict[str, float]:
    """InstanceTypeInfo of EC2's API, 2016-11-15 (botocore 1.44.5)."""
    devices = [*data.get("GpuInfo", {}).get("Gpus", ()), *data.get("NeuronInfo", {}).get("NeuronDevices", ())]
    memory = max((int(one.get("MemoryInfo", {}).get("SizeInMiB", 0)) for one in devices), default=0)
    network = data.get("NetworkInfo", {})
    return {
        "vCPUs": int(data.get("VCpuInfo", {}).get("DefaultVCpus", 0)),
        "accelerators": sum(int(one.get("Count", 0)) for one in devices),
        "network cards": int(network.get("MaximumNetworkCards", 0)),
        "EFA interfaces": int(network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)),
        _MEMORY: memory / 1024,
    }


def _words(figures: dict[str, float]) -> str:
    return ", ".join(f"{value:,g} {what}" for what, value in figures.items())


def _differ(ours: float, said: float) -> bool:
    return abs(ours - said) > _NEAR_ENOUGH * max(ours, said)


def _zone(subnet: Thing) -> str:
    return str(subnet["AvailabilityZone"])
