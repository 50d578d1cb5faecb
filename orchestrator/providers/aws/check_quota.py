"""Quotas of the region: vCPUs by family and market, Elastic IPs; and what of them is in use."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from orchestrator.catalog import ec2
from orchestrator.catalog.machines import Ec2Instance
from orchestrator.errors import UserError
from orchestrator.exits import Exit
from orchestrator.providers.aws.calls import Calls, Thing
from orchestrator.providers.aws.check_asked import Asked
from orchestrator.providers.aws.faults import explain
from orchestrator.providers.aws.quotas import ADDRESSES, SERVICE, Quota, quota_of
from orchestrator.providers.checks import Finding, Outcome, finding_from_error, fix, ok, unknown
from orchestrator.providers.core.faults import Kind, Refused
from orchestrator.slices import Market, OnDemand, Spot

_NOT_THERE = "NoSuchResourceException"  # of a quota that has its default value (Service Quotas API, GetServiceQuota)
_RUNNING = ("pending", "running", "stopping", "shutting-down")
_FAMILIES = ("p5.48xlarge", "p4d.24xlarge", "trn1.32xlarge")  # one type of each that has a quota of its own


def quota(asked: Asked) -> Outcome:
    """For the machines asked for, or what there is for P and Trn."""
    if asked.instance is None:
        return _asked_for(lambda: _all(asked), asked)
    if asked.ask.reservation:
        return ok("quota", f"not checked: the machines of {asked.ask.reservation} are reserved")
    instance = asked.instance
    return _asked_for(lambda: _one(asked, instance), asked)


def addresses(asked: Asked) -> Outcome:
    """Whether an Elastic IP can still be had. Without a launch that takes one, its lack is only told."""
    try:
        wanted = asked.elastic() if asked.instance is not None else 0
    except UserError:
        wanted = 0  # what cannot be launched is told as such, elsewhere
    return _asked_for(lambda: _addresses(asked, wanted), asked, "addresses")


def _asked_for(look: Callable[[], Outcome], asked: Asked, check: str = "quota") -> Outcome:
    """A question that only orch check asks: without an answer nothing is broken, but nothing is known either."""
    try:
        return look()
    except Refused as refused:
        if refused.answer.kind is Kind.PERMISSION:
            words = f"the quotas of {asked.region} may not be read: {refused.answer.words}"
            return unknown(check, words, f"ask the owner of account {asked.caller.account}", Exit.PERMISSION)
        if refused.answer.kind is Kind.NOT_FOUND or refused.answer.code == _NOT_THERE:
            words = f"AWS does not report this quota of {asked.region}"
            return unknown(check, words, "the console, Service Quotas, Amazon EC2, shows it", Exit.CAPACITY)
        return finding_from_error(check, explain("read", f"the quotas of {asked.region}", refused.answer))


def _one(asked: Asked, instance: Ec2Instance) -> Outcome:
    """Whether so many machines fit into what is left."""
    vcpus = instance.vcpus or _vcpus_of(asked.calls, instance.name)
    if not vcpus:
        return unknown("quota", f"it is not known how many vCPUs {instance.name} has", "orch accelerators")
    market: Market = Spot() if asked.ask.spot or not instance.on_demand else OnDemand()
    which, needed = quota_of(instance.name, market), vcpus * asked.ask.nodes
    limit, used = _value(asked.calls, which), _in_use(asked.calls, {which})[which]
    words = f"{asked.ask.nodes} {instance.name} need {needed:,} vCPUs; {asked.region}: {_words(which, limit, used)}"
    if used + needed <= limit:
        return ok("quota", words)
    return fix("quota", words, which.more(used + needed, asked.region, asked.options.profile), Exit.CAPACITY)


def _all(asked: Asked) -> Outcome:
    """One finding per quota that is not zero."""
    every = list(dict.fromkeys(quota_of(kind, market) for market in (OnDemand(), Spot()) for kind in _FAMILIES))
    with ThreadPoolExecutor(len(every)) as pool:
        limits = dict(zip(every, pool.map(partial(_value, asked.calls), every), strict=True))
    used = _in_use(asked.calls, set(every))
    having = [one for one in every if limits[one]]
    if not having:
        usual = ec2.load_instances()[_FAMILIES[0]]
        command = quota_of(usual.name, OnDemand()).more(usual.vcpus, asked.region, asked.options.profile)
        return fix("quota", f"{asked.region}: none for P and Trn machines", command, Exit.CAPACITY)
    findings: list[Finding] = []
    for one in having:
        findings += ok(f"quota {one.code}", f"{asked.region}: {_words(one, limits[one], used[one])}").findings
    without = [one.name for one in every if not limits[one]]
    findings += ok("quota", f"{asked.region}: 0 of {'; '.join(without)}").findings if without else ()
    return Outcome(tuple(findings))


def _addresses(asked: Asked, wanted: int) -> Outcome:
    """By DescribeAddresses: all of the account in the region count."""
    limit = _value(asked.calls, ADDRESSES)
    used = len(asked.calls.every("DescribeAddresses", "Addresses", {}))
    words = f"{asked.region}: {limit} Elastic IPs, {used} in use"
    if used + wanted <= limit or not wanted:
        return ok("addresses", words)
    command = ADDRESSES.more(used + wanted, asked.region, asked.options.profile)
    words = f"{words}, and the machines need {wanted}"
    return fix("addresses", words, f"{command}   or: orch config set aws.access ssm", Exit.CAPACITY)


def _words(which: Quota, limit: int, used: int) -> str:
    return f"{limit:,} of '{which.name}', {used:,} in use"


def _value(calls: Calls, which: Quota) -> int:
    """Raises Refused."""
    found = calls.read("service-quotas", "GetServiceQuota", {"ServiceCode": SERVICE, "QuotaCode": which.code})
    return int(found["Quota"]["Value"])


def _in_use(calls: Calls, counted: Collection[Quota]) -> dict[Quota, int]:
    """vCPUs of running instances by quota; those of reservations count like others. Raises Refused."""
    found = dict.fromkeys(counted, 0)
    for instance in calls.instances({"instance-state-name": _RUNNING}):
        markets: dict[str, Market] = {"": OnDemand(), "spot": Spot()}
        market = markets.get(str(instance.get("InstanceLifecycle", "")))
        which = quota_of(str(instance["InstanceType"]), market) if market is not None else None
        if which in found:
            found[which] += _vcpus(instance)
    return found


def _vcpus(instance: Thing) -> int:
    listed = ec2.load_instances().get(str(instance["InstanceType"]))
    options = instance.get("CpuOptions", {})
    return listed.vcpus if listed else int(options.get("CoreCount", 0)) * int(options.get("ThreadsPerCore", 1))


def _vcpus_of(calls: Calls, name: str) -> int:
    """Of a type that our table does not have. Raises Refused."""
    found = calls.read("ec2", "DescribeInstanceTypes", {"InstanceTypes": [name]}).get("InstanceTypes", ())
    return int(found[0]["VCpuInfo"]["DefaultVCpus"]) if found else 0
