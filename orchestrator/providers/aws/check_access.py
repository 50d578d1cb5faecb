"""Whether the caller may do what a launch does, and all that comes after it."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import replace

from orchestrator.errors import UserError
from orchestrator.exits import Exit
from orchestrator.messages import join_some
from orchestrator.providers.aws.check_asked import Asked
from orchestrator.providers.aws.check_places import offering_zones
from orchestrator.providers.aws.check_policy import ORCH, PRICES, PURPOSES, Purpose
from orchestrator.providers.aws.check_probes import Probed, Simulation, reads, rehearsed, simulated, simulation_of
from orchestrator.providers.aws.faults import explain
from orchestrator.providers.aws.options import AwsOptions
from orchestrator.providers.aws.planner import PLANNER
from orchestrator.providers.aws.tags import INSTALLATION
from orchestrator.providers.checks import Finding, Outcome, finding_from_error, fix, ok, unknown
from orchestrator.providers.core.faults import Answer, Kind, Refused
from orchestrator.slices import Candidate, Request, SliceSpec
from orchestrator.values import to_text

_NAME = "orch-check"
_OFTEN_DONE_WITHOUT = ("ec2:PurchaseCapacityBlock", "ec2:StartInstances", "ec2:StopInstances")


def permissions(asked: Asked) -> Outcome:
    """Each action of the policy that orch documents: by a read, a dry run of the launch, or IAM's own simulation.

    What this launch has no use for may be missing: an Elastic IP, a placement group, spot requests, capacity blocks.
    """
    try:
        candidate = asked.candidate(_zone(asked))
        plan = _plan(candidate)
    except UserError as error:
        bare = AwsOptions(profile=asked.options.profile)
        whole = permissions(replace(asked, instance=None, ask=replace(asked.ask, options=bare, reservation="")))
        request = finding_from_error("request", error).findings if asked.instance is not None else ()
        return Outcome((*whole.findings, *request))
    except Refused as refused:
        return _no_answer(refused)
    try:
        found = reads(asked.calls, asked.options.instance_profile) | rehearsed(asked.calls, plan)
        found, why = _rest(asked, found)
    except Refused as refused:
        return _no_answer(refused)
    used = _used(asked, plan, candidate)
    outcome = _of_missing(asked, found.missing & used) or _of_untold(asked, found, used, why) or _allowed(found)
    return Outcome((*outcome.findings, *_request(asked, found.said)))


def _no_answer(refused: Refused) -> Outcome:
    return finding_from_error("permissions", explain("ask for", "the permissions", refused.answer))


def attach(asked: Asked) -> str:
    """The command that gives the caller what the documented policy has."""
    caller, option = asked.caller, asked.profile_option
    given = f" --bucket {asked.ask.bucket}" if asked.ask.bucket.startswith("s3://") else ""
    printed = f"orch check aws --print-policy user{given} > orch-policy.json"
    document = "--policy-document file://orch-policy.json"
    if caller.kind == "user":
        arn = f"arn:{caller.partition}:iam::{caller.account}:policy/orch"
        return (
            f"{printed} && aws iam create-policy --policy-name orch {document}{option}"
            f" && aws iam attach-user-policy --user-name {caller.name} --policy-arn {arn}{option}"
        )
    if caller.kind == "assumed-role" and not caller.name.startswith("AWSReservedSSO_"):
        return f"{printed} && aws iam put-role-policy --role-name {caller.name} --policy-name orch {document}{option}"
    return f"{printed}   then ask the owner of account {caller.account} to put that into your permission set"


def _zone(asked: Asked) -> str:
    """One that has the machine, so that the dry run is refused for nothing else. Raises Refused without an answer."""
    if asked.ask.zone or asked.options.subnets or asked.instance is None:
        return asked.ask.zone
    try:
        return next(iter(offering_zones(asked.calls, asked.instance.name)), "")
    except Refused as refused:
        if refused.answer.kind is not Kind.PERMISSION:
            raise
        return ""


def _plan(candidate: Candidate) -> Request:
    """Raises UserError for what cannot be launched."""
    token = to_text(str(uuid.uuid4()))
    return PLANNER.create_request(
        SliceSpec(
            cluster="check", name=_NAME, token=token, candidate=candidate, labels=((INSTALLATION, to_text(_NAME)),)
        )
    )


def _rest(asked: Asked, found: Probed) -> tuple[Probed, str]:
    """What is still open, as IAM's simulation has it; why that could not be asked, "" when it could. Raises Refused."""
    simulation = simulation_of(asked.calls, asked.caller)
    open_ = _every() - found.allowed - found.missing - {Simulation.ACTION}
    try:
        weighed = simulated(simulation, asked.caller, asked.region, sorted(open_))
    except Refused as refused:
        if refused.answer.kind is Kind.PERMISSION:
            return found | Probed(missing=frozenset({Simulation.ACTION})), f"{Simulation.ACTION} is not allowed"
        if refused.answer.kind not in (Kind.NOT_FOUND, Kind.INVALID):
            raise
        return found, f"IAM does not simulate the permissions of {asked.caller.arn}"
    return found | weighed | Probed(frozenset({Simulation.ACTION})), ""


def _every() -> frozenset[str]:
    """Those on a bucket are another check's."""
    return frozenset(action for one in ORCH for action in one.actions if not action.startswith("s3:"))


def _used(asked: Asked, plan: Request, candidate: Candidate) -> frozenset[str]:
    """Actions that this launch and its end come to, and all that only look. Without a machine named: almost all."""
    if asked.instance is None:
        unused = {*_OFTEN_DONE_WITHOUT, "ec2:CancelSpotInstanceRequests", "iam:CreateServiceLinkedRole", "iam:PassRole"}
        return _every() - unused - {*PRICES.actions, Simulation.ACTION}
    end = PLANNER.end_request(_NAME, candidate)
    sent = {f"{one.service}:{one.method}" for request in (plan, end) for one in request.in_order}
    looks = {action for action in _every() if action.partition(":")[2].startswith(("Describe", "Get"))}
    role = {"iam:PassRole"} if asked.options.instance_profile else set[str]()
    spot = {"iam:CreateServiceLinkedRole"} if asked.ask.spot else set[str]()
    return frozenset({*sent, *looks, *role, *spot, "ec2:CreateTags"}) - {*PRICES.actions}


def _of_missing(asked: Asked, missing: Collection[str]) -> Outcome | None:
    if not missing:
        return None
    needed = [one for purpose in PURPOSES for one in purpose.actions if one in missing]
    words = f"missing: {join_some(needed)}; without them no way to {_stopped(missing)[0].words}"
    return fix("permissions", words, attach(asked), Exit.PERMISSION)


def _of_untold(asked: Asked, found: Probed, used: Collection[str], why: str) -> Outcome | None:
    untold = [one for purpose in PURPOSES for one in purpose.actions if one in used and one not in found.allowed]
    if not untold:
        return None
    if not why:
        words = f"not checked as long as there is no network: {join_some(untold)}"
        return unknown("permissions", words, "fix the findings on zones below, then run it again", Exit.PERMISSION)
    words = f"not known before they are needed: {join_some(untold)} ({why})"
    return unknown("permissions", words, attach(asked), Exit.PERMISSION)


def _allowed(found: Probed) -> Outcome:
    every = _every()
    lacking = every - found.allowed
    if not lacking:
        return ok("permissions", f"all {len(every)} of the policy that orch needs")
    stopped = "; ".join(purpose.words for purpose in _stopped(lacking))
    return ok("permissions", f"enough for this; not granted: to {stopped}")


def _stopped(actions: Collection[str]) -> Sequence[Purpose]:
    return [purpose for purpose in PURPOSES if set(actions) & set(purpose.actions)]


def _request(asked: Asked, said: Answer | None) -> tuple[Finding, ...]:
    """What EC2 has against the launch, where no other check tells of it: none is about the parameters themselves."""
    if said is None or asked.instance is None or asked.ask.reservation or "IAM Instance Profile" in said.words:
        return ()
    if said.kind in (Kind.QUOTA, Kind.CAPACITY, Kind.NOT_FOUND):
        return ()
    return finding_from_error("request", explain("create", asked.instance.name, said)).findings
