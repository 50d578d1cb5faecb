"""What a plan says of buckets that are not where the machines are."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.catalog.buckets import BucketPlace, Reach, reach, transfer_price
from orchestrator.engine.bucket_places import bucket_of
from orchestrator.spec.infra import Where
from orchestrator.spec.task import Mode, Task


def bucket_notes(task: Task, places: Mapping[str, BucketPlace]) -> list[str]:
    """One note for each bucket and region where reading is charged, and one for buckets whose place is not known."""
    regions = list(dict.fromkeys(one.infra.region for one in task.choices if one.infra.provider is Where.GCP))
    if not regions:
        return []
    notes: list[str] = []
    for bucket, reads in _buckets(task).items():
        place = places.get(bucket)
        if place is None:
            notes.append(f"{bucket}: where it is, is not known yet; orch check gcp --bucket {bucket}   asks")
            continue
        notes += [_note(bucket, place, region, reads) for region in regions if region and _charged(place, region)]
    return notes


def _buckets(task: Task) -> dict[str, list[str]]:
    """By bucket, what is read from it."""
    hosts = max(task.hosts_of(choice) for choice in task.choices)
    found: dict[str, list[str]] = {}
    for mount in task.file_mounts:
        if bucket_of(mount.source):
            how = f"copied by {hosts:,} hosts each" if mount.mode is Mode.COPY and hosts > 1 else "read"
            found.setdefault(bucket_of(mount.source), []).append(f"{mount.target} is {how}")
    if bucket_of(task.checkpoint.bucket):
        found.setdefault(bucket_of(task.checkpoint.bucket), []).append("checkpoints are read at each resume")
    return found


def _charged(place: BucketPlace, region: str) -> bool:
    return reach(place, region) is not Reach.SAME


def _note(bucket: str, place: BucketPlace, region: str, reads: list[str]) -> str:
    price = transfer_price(place, region)
    cost = f"${price.usd_per_gib:g} per GiB, {price.as_of}" if price is not None else "price not known"
    where = (
        "a multi-region, whose reading is always charged" if reach(place, region) is Reach.COVERED else f"not {region}"
    )
    return f"{bucket} is in {place}, {where} ({cost}): {', '.join(reads)}; a bucket in {region} is read for free"
