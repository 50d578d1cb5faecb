"""Whether the bucket is there, where it is, and whether whoever runs orch can read and write it. Nothing is written."""

from __future__ import annotations

from orchestrator.catalog.buckets import BucketPlace, Reach, classify_access, transfer_price
from orchestrator.exits import Exit
from orchestrator.providers.aws.check_access import attach
from orchestrator.providers.aws.check_asked import Asked
from orchestrator.providers.aws.check_probes import Simulation, simulation_of
from orchestrator.providers.aws.faults import explain
from orchestrator.providers.checks import Outcome, finding_from_error, fix, ok, unknown
from orchestrator.providers.core.faults import Kind, Refused
from orchestrator.storage.address import Address

_WRITES = ("s3:AbortMultipartUpload", "s3:DeleteObject", "s3:PutObject")  # a conditional write is a PutObject, too
_NOBODYS = ".orch-check"  # an object that is not there


def bucket(asked: Asked) -> Outcome:
    """By HeadBucket, HeadObject, and IAM's simulation of writes. Raises UserError for no bucket URI."""
    address = asked.bucket
    if address is None:
        words = f"{asked.ask.bucket} is not of S3"
        return unknown("bucket", words, "orch storage ls shows whether it can be read")
    try:
        found = asked.calls.read("s3", "HeadBucket", {"Bucket": address.container})
    except Refused as refused:
        return _refused(asked, address, refused)
    region = str(found.get("BucketRegion") or asked.region)
    try:
        lacking = _lacking(asked, address)
    except Refused as refused:
        return _untold(asked, address, refused)
    if lacking:
        words = f"s3://{address.container}: missing {', '.join(lacking)}"
        return fix("bucket", words, attach(asked), Exit.STORAGE)
    return ok("bucket", f"s3://{address.container} can be read and written, {_where(asked, region)}")


def _lacking(asked: Asked, address: Address) -> tuple[str, ...]:
    """Actions that are not allowed. A policy of the bucket's own, for another account, is not seen. Raises Refused."""
    key = address.full_key(_NOBODYS)
    missing: list[str] = []
    try:
        asked.calls.read("s3", "HeadObject", {"Bucket": address.container, "Key": key})
    except Refused as refused:
        if refused.answer.kind is Kind.PERMISSION:
            missing.append("s3:GetObject")
        elif refused.answer.kind is not Kind.NOT_FOUND:
            raise
    arn = f"arn:{asked.caller.partition}:s3:::{address.container}/{key}"
    return (*missing, *sorted(simulation_of(asked.calls, asked.caller).denied(_WRITES, arn, {})))


def _refused(asked: Asked, address: Address, refused: Refused) -> Outcome:
    name = address.container
    match refused.answer.kind:
        case Kind.NOT_FOUND:
            mend = f"aws s3 mb s3://{name} --region {asked.region}{asked.profile_option}"
            return fix("bucket", f"there is no bucket s3://{name}", mend, Exit.NOT_FOUND)
        case Kind.PERMISSION:
            words = f"s3://{name} has another owner, or these credentials may not use it (s3:ListBucket)"
            return fix("bucket", words, attach(asked), Exit.STORAGE)
        case _:
            return finding_from_error("bucket", explain("read", f"s3://{name}", refused.answer))


def _untold(asked: Asked, address: Address, refused: Refused) -> Outcome:
    if refused.answer.kind not in (Kind.PERMISSION, Kind.NOT_FOUND, Kind.INVALID):
        return finding_from_error("bucket", explain("ask who may use", f"s3://{address.container}", refused.answer))
    words = f"s3://{address.container} can be listed; whether it can be written is unknown ({Simulation.ACTION})"
    return unknown("bucket", words, attach(asked), Exit.PERMISSION)


def _where(asked: Asked, region: str) -> str:
    """Its place, and what machines elsewhere pay to read it."""
    place = BucketPlace(region)
    if classify_access(place, asked.region) is Reach.SAME:
        return f"in {region}"
    price = transfer_price(place, asked.region)
    cost = str(price) if price else "price not known"
    return f"in {region}: machines in {asked.region} pay to read it ({cost})"
