"""Notes of a plan about buckets that are not in the machines' region, and what reading them costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.catalog.buckets import BucketPlace, Reach, TransferPrice, classify_access, transfer_price
from orchestrator.drivers import list_clouds
from orchestrator.engine.preparation.bucket_locations import KnownBuckets, bucket_of
from orchestrator.formatting import format_amount
from orchestrator.task.model import FileMount, MountMode, Task
from orchestrator.task.trainer_settings import list_data_sources

GIB = 1 << 30


def bucket_notes(task: Task, known: KnownBuckets) -> list[str]:
    """One note for each bucket and region where reading is charged, and one for buckets whose place is not known."""
    of_each = (
        _notes_of(task, known, driver.name, f"{driver.bucket_scheme}://")
        for driver in list_clouds()
        if driver.bucket_scheme
    )
    return [note for notes in of_each for note in notes]


def _notes_of(task: Task, known: KnownBuckets, cloud: str, scheme: str) -> Iterator[str]:
    """Of one cloud's machines and its own buckets."""
    choices = [one for one in task.choices if one.infra.provider == cloud]
    if not choices:
        return
    regions = list(dict.fromkeys(one.infra.region for one in choices if one.infra.region))
    hosts = max(task.count_hosts(choice) for choice in choices)
    for bucket, reads in _reads(task, hosts, known).items():
        if not bucket.startswith(scheme):
            continue
        place = known.places.get(bucket)
        if place is None:
            yield f"{bucket}: region unknown until the first launch (no egress estimate)"
            continue
        yield from (
            _note(bucket, place, one, reads) for one in regions if classify_access(place, one) is not Reach.SAME
        )


@dataclass(frozen=True, slots=True)
class _Read:
    """what: in words. bytes: by all hosts together, None when not known."""

    text: str
    bytes: int | None = None


def _reads(task: Task, hosts: int, known: KnownBuckets) -> dict[str, list[_Read]]:
    """By bucket, what is read from it."""
    found: dict[str, list[_Read]] = {}
    for mount in task.file_mounts:
        if bucket_of(mount.source):
            found.setdefault(bucket_of(mount.source), []).append(_mount(mount, hosts, known))
    for data in list_data_sources(task.train.args) if task.train is not None else ():
        if not bucket_of(data):
            continue
        size = known.sizes.get(data.rstrip("/"))
        amount = f" ({size / GIB:,.1f} GiB)" if size is not None else ""
        found.setdefault(bucket_of(data), []).append(_Read(f"the data{amount} is read in each pass over it", size))
    if bucket_of(task.checkpoint.bucket):
        resumed = _Read("checkpoints are read at each resume")
        found.setdefault(bucket_of(task.checkpoint.bucket), []).append(resumed)
    return found


def _mount(mount: FileMount, hosts: int, known: KnownBuckets) -> _Read:
    size = known.sizes.get(mount.source.rstrip("/"))
    amount = f" ({size / GIB:,.1f} GiB)" if size is not None else ""
    if mount.mode is not MountMode.COPY:
        return _Read(f"{mount.target}{amount} is read where it is")
    times = f" by each of {hosts:,} hosts" if hosts > 1 else ""
    return _Read(f"{mount.target}{amount} is copied{times}", size * hosts if size is not None else None)


def _note(bucket: str, place: BucketPlace, region: str, reads: list[_Read]) -> str:
    price = transfer_price(place, region)
    covered = classify_access(place, region) is Reach.COVERED
    where = "a multi-region, where reading is always charged" if covered else f"not in {region}"
    what = ", ".join(f"{read.text}{_cost(read, price)}" for read in reads)
    rate = str(price) if price is not None else "price not known"
    return f"{bucket} is in {place}, {where} ({rate}): {what}; a bucket in {region} is read for free"


def _cost(read: _Read, price: TransferPrice | None) -> str:
    if read.bytes is None or price is None:
        return ""
    return f", about {format_amount(read.bytes / GIB * price.usd_per_gib)}"
