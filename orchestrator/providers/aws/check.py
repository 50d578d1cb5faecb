"""`orch check aws`: credentials first, then the region, then all the rest at once. Nothing is made or changed."""

from __future__ import annotations

from difflib import get_close_matches
from functools import partial

from orchestrator.catalog.ec2_regions import load_zones_by_region
from orchestrator.errors import AccessError, OrchError, UserError
from orchestrator.exits import Exit
from orchestrator.providers.aws import (
    check_access,
    check_bucket,
    check_hosts,
    check_left,
    check_places,
    check_quota,
    check_ssh,
)
from orchestrator.providers.aws.calls import Calls
from orchestrator.providers.aws.check_asked import Asked, Caller, instance_of, region_of
from orchestrator.providers.aws.faults import explain
from orchestrator.providers.aws.principal import Principal
from orchestrator.providers.aws.session import AwsSession, open_session
from orchestrator.providers.checks import Ask, Check, Finding, Outcome, Verdict, finding_from_error, fix, ok, unknown
from orchestrator.providers.core.faults import Kind, Refused

_OPEN = ("opt-in-not-required", "opted-in")
_EXPIRED = ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "")


def checks(ask: Ask) -> tuple[Check, ...]:
    return (Check("credentials", partial(_credentials, ask)),)


def _credentials(ask: Ask) -> Outcome:
    """The library, the credentials, and that AWS takes them. Raises AccessError, UserError.

    Somebody who does not use AWS, and did not ask for it by name, has nothing to mend.
    """
    try:
        session = open_session(ask.options.profile)
    except (AccessError, UserError) as error:
        if ask.named:
            raise
        return Outcome((Finding(check="credentials", verdict=Verdict.UNUSED, words=error.what, fix=error.next_step),))
    try:
        found = Calls(session, session.region).read("sts", "GetCallerIdentity", {})
    except Refused as refused:
        return _not_taken(ask, refused)
    caller = Caller(str(found["Account"]), str(found["Arn"]))
    stands_in = f"; {session.endpoint} is used instead of AWS" if session.loopback else ""
    outcome = ok("credentials", f"{caller.arn}{stands_in}")
    asked_as = Principal.of_options(ask.options)
    following = partial(_role, ask, session, asked_as) if asked_as.role_arn else partial(region, ask, session, caller)
    return Outcome(outcome.findings, (Check("role" if asked_as.role_arn else "region", following),))


def _role(ask: Ask, session: AwsSession, principal: Principal) -> Outcome:
    """Whether these credentials may assume the role as which everything else is asked. Nothing is changed by it."""
    assumed = session.assume(principal)
    try:
        found = Calls(assumed, assumed.region).read("sts", "GetCallerIdentity", {})
    except OrchError as error:  # with the statement that its trust policy lacks
        return finding_from_error("role", error)
    except Refused as refused:
        return finding_from_error("role", explain("assume", principal.role_arn, refused.answer))
    caller = Caller(str(found["Account"]), str(found["Arn"]))
    outcome = ok("role", f"{caller.arn}; all that follows is asked as it")
    return Outcome(outcome.findings, (Check("region", partial(region, ask, assumed, caller)),))


def _not_taken(ask: Ask, refused: Refused) -> Outcome:
    answer = refused.answer
    if answer.kind is not Kind.CREDENTIALS:
        return finding_from_error("credentials", explain("ask", "who calls", answer))
    if answer.next_step:  # such as the clock of this computer
        return fix("credentials", f"AWS does not accept them: {answer}", answer.next_step, Exit.PERMISSION)
    option = f" --profile {ask.options.profile}" if ask.options.profile else ""
    login = f"aws sso login{option}" if answer.code in _EXPIRED else f"aws configure{option}"
    mend = f"{login}   then: aws sts get-caller-identity{option}"
    return fix("credentials", f"AWS does not accept them: {answer}", mend, Exit.PERMISSION)


def region(ask: Ask, session: AwsSession, caller: Caller) -> Outcome:
    """By DescribeRegions: whether it is there, and open to the account; only then are the other questions of use."""
    instance, outcome = None, None
    try:
        instance = instance_of(ask)
    except UserError as error:
        outcome = (
            finding_from_error("accelerators", error) if ask.named else None
        )  # else it is a question to another cloud
    name = region_of(ask, session.region, instance)
    rest = _rest(Asked(ask=ask, calls=Calls(session, name), caller=caller, instance=instance))
    asked_for = {"RegionNames": [name], "AllRegions": True}
    try:
        found = Calls(session, session.region).read("ec2", "DescribeRegions", asked_for).get("Regions", ())
    except Refused as refused:
        if refused.answer.kind is Kind.PERMISSION:
            words = f"{name}; these credentials may not read whether the account can use it (ec2:DescribeRegions)"
            told = unknown("region", words, f"ask the owner of account {caller.account}", Exit.PERMISSION)
            return Outcome((*told.findings, *(outcome.findings if outcome else ())), rest)
        if refused.answer.kind not in (Kind.INVALID, Kind.NOT_FOUND):
            return finding_from_error("region", explain("look at", name, refused.answer))
        found = ()
    if not found:
        near = get_close_matches(name, load_zones_by_region(), n=1, cutoff=0.0)
        return fix("region", f"AWS has no region {name}", f"take another: --region {near[0]}", Exit.USAGE)
    if found[0].get("OptInStatus", _OPEN[0]) not in _OPEN:
        option = f" --profile {ask.options.profile}" if ask.options.profile else ""
        mend = f"aws account enable-region --region-name {name}{option}   then wait some minutes"
        return fix("region", f"{name} is not enabled for account {caller.account}", mend, Exit.PERMISSION)
    told = ok("region", name if ask.region else f"{name}; --region checks another")
    return Outcome((*told.findings, *(outcome.findings if outcome else ())), rest)


def _rest(asked: Asked) -> tuple[Check, ...]:
    """What does not depend on each other."""
    ask = asked.ask
    found = [
        Check("permissions", partial(check_access.permissions, asked)),
        Check("zones", partial(check_places.zones, asked)),
        Check("quota", partial(check_quota.quota, asked)),
        Check("addresses", partial(check_quota.addresses, asked)),
        Check("ssh", partial(check_ssh.way_in, asked)),
        Check("leftovers", partial(check_left.leftovers, asked)),
    ]
    if asked.instance is not None:
        found.insert(2, Check("machine", partial(check_places.machine, asked, asked.instance)))
    if ask.bucket and (ask.named or ask.bucket.startswith("s3://")):
        found.append(Check("bucket", partial(check_bucket.bucket, asked)))
    if ask.options.instance_profile or ask.options.access == "ssm" or ask.bucket.startswith("s3://"):
        found.append(Check("hosts", partial(check_hosts.hosts, asked)))
    if ask.reservation:
        found.append(Check("reservation", partial(check_left.reservation, asked)))
    return tuple(found)
