"""Whether the bucket is there, where it is, and whether it can be read and written."""

from __future__ import annotations

from orchestrator.catalog.buckets import BucketPlace, Reach, classify_access, transfer_price
from orchestrator.exits import Exit
from orchestrator.providers.checks import Ask, Outcome, finding_from_error, fix, ok, unknown
from orchestrator.providers.core.faults import Kind, Refused
from orchestrator.providers.google.check_calls import Calls
from orchestrator.providers.google.check_role import BUCKET_OBJECTS, BUCKET_ROLE
from orchestrator.providers.google.retries import explain
from orchestrator.storage.address import Address


def bucket(calls: Calls, ask: Ask, member: str) -> Outcome:
    """By buckets.get and buckets.testIamPermissions (Cloud Storage JSON API v1). Raises UserError for no bucket URI."""
    address = Address.parse(ask.bucket)
    if address.scheme != "gs":
        return unknown("bucket", f"{ask.bucket} is not of Google", "orch storage ls shows whether it can be read")
    name = address.container
    given = {"bucket": name, "permissions": list(BUCKET_OBJECTS)}
    try:
        found = calls.ask("storage", "v1", lambda service: service.buckets().testIamPermissions(**given))
    except Refused as refused:
        return _refused(calls, ask, name, refused)
    missing = [one for one in BUCKET_OBJECTS if one not in found.get("permissions", ())]
    if missing:
        mend = f"gcloud storage buckets add-iam-policy-binding gs://{name} --member={member} --role={BUCKET_ROLE}"
        return fix("bucket", f"gs://{name}: missing {', '.join(missing)}", mend, Exit.STORAGE)
    return ok("bucket", f"gs://{name} can be read and written, {_where(calls, ask, name)}")


def _refused(calls: Calls, ask: Ask, name: str, refused: Refused) -> Outcome:
    project = calls.project
    match refused.answer.kind:
        case Kind.NOT_FOUND:
            region = ask.region or ask.zone.rpartition("-")[0] or "REGION"
            mend = f"gcloud storage buckets create gs://{name} --location={region} --project={project}"
            return fix("bucket", f"there is no bucket gs://{name}", mend, Exit.NOT_FOUND)
        case Kind.PERMISSION:
            words = f"gs://{name} is not open to this account"
            return fix("bucket", words, f"ask its owner for {BUCKET_ROLE} on it", Exit.STORAGE)
        case _:
            return finding_from_error("bucket", explain("read", f"gs://{name}", refused.answer, project))


def _where(calls: Calls, ask: Ask, name: str) -> str:
    """Its place, and what hosts elsewhere pay to read it; to see it takes a permission of its own."""
    given = {"bucket": name, "fields": "location,customPlacementConfig/dataLocations"}
    try:
        found = calls.ask("storage", "v1", lambda service: service.buckets().get(**given))
    except Refused:
        return "its place is not shown to this account"
    pair = found.get("customPlacementConfig", {}).get("dataLocations", ())
    place = BucketPlace(str(found.get("location", "")), tuple(str(region).lower() for region in pair))
    region = ask.region or ask.zone.rpartition("-")[0]
    if not region or classify_access(place, region) is Reach.SAME:
        return f"in {place}"
    price = transfer_price(place, region)
    cost = str(price) if price else "price not known"
    return f"in {place}: hosts in {region} pay to read it ({cost})"
