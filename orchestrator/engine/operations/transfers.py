"""Data that leaves a region or a cloud: how much it is, and what that costs, before anything moves."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial

from orchestrator.catalog.buckets import (
    BucketPlace,
    Reach,
    TransferPrice,
    classify_access,
    internet_price,
    transfer_price,
)
from orchestrator.engine.operations.checkpoints import RunLocation, choose_checkpoint
from orchestrator.engine.preparation.bucket_locations import (
    KnownBuckets,
    bucket_of,
    learn_bucket_locations,
    list_services,
    load_known_buckets,
    region_variable,
)
from orchestrator.engine.preparation.prepared import PreparedCommand
from orchestrator.engine.state.identities import open_project_bucket
from orchestrator.errors import OrchError
from orchestrator.formatting import format_amount, format_size
from orchestrator.plan.desired import Run
from orchestrator.slices import Candidate

CONSENT_FROM = 10.0  # US dollars of a command's transfers, from which on the user is asked
_GIB = 1 << 30
_NAMED_FROM = _GIB  # bytes to this computer: what is smaller costs cents


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Data that is read from another place than its own.

    Attributes:
        what: What is read, from where and by whom.
        size: Bytes; None where that is not known.
        price: Of a GiB; None where that is not known.
    """

    what: str
    size: int | None
    price: TransferPrice | None

    @property
    def dollars(self) -> float | None:
        """What it costs; None where size or price are not known."""
        return None if self.size is None or self.price is None else self.size / _GIB * self.price.usd_per_gib

    def __str__(self) -> str:
        size = "size not known" if self.size is None else format_size(self.size)
        if self.price is None:
            return f"{self.what}: {size}, price not known"
        cost = "cost not known" if self.dollars is None else f"about {format_amount(self.dollars)}"
        return f"{self.what}: {size}, {cost} ({self.price})"


def is_large(transfers: Sequence[Transfer]) -> bool:
    """Return whether the user is asked: they cost much, or may, since the size is not known, or the price of a GiB."""
    unknown = any(one.dollars is None and (one.size is None or one.size >= _GIB) for one in transfers)
    return unknown or sum(one.dollars or 0.0 for one in transfers) >= CONSENT_FROM


def assess_download(uri: str, size: int) -> tuple[Transfer, ...]:
    """Return what is paid for bytes of a bucket that come to this computer, if it is outside of the bucket's cloud.

    A small amount is not named. The place of the bucket is requested once.
    """
    bucket = bucket_of(uri)
    if not bucket or size < _NAMED_FROM:
        return ()
    learn_bucket_locations([bucket])
    place = load_known_buckets().places.get(bucket)
    price = internet_price(bucket.partition("://")[0], place)
    return (Transfer(what=f"from {bucket} to this computer", size=size, price=price),)


def is_download_paid(place: Candidate) -> bool:
    """Return whether data that leaves these machines for another computer may be charged."""
    return place.provider in list_services().values()


def assess_host_download(cluster: str, place: Candidate, size: int | None) -> tuple[Transfer, ...]:
    """Return what is paid for bytes of hosts that come to this computer, if it is outside of their cloud.

    The rate is the one at which data leaves a bucket in the same place. A small amount is not named.

    Args:
        cluster: The name of the cluster.
        place: Of its hosts.
        size: Bytes; None where that is not known.
    """
    scheme = next((scheme for scheme, driver in list_services().items() if driver == place.provider), "")
    if not scheme or (size is not None and size < _NAMED_FROM):
        return ()
    price = internet_price(scheme, BucketPlace(place.region))
    return (Transfer(what=f"from '{cluster}' in {place.region} to this computer", size=size, price=price),)


def learn_run_buckets(ready: PreparedCommand) -> PreparedCommand:
    """Learn where the buckets of a run are and how large their folders, so that this and the next plan can price them.

    Returns:
        The command, whose program gets the region of the run's bucket also where it became known only now.
    """
    if not isinstance(ready.desired, Run):
        return ready
    bucket = ready.job.bucket if ready.job is not None else ""
    learn_bucket_locations(_list_run_addresses(ready))
    names = {name for name, _ in ready.desired.env}
    learned = tuple(pair for pair in region_variable(bucket) if pair[0] not in names)
    return replace(ready, desired=replace(ready.desired, env=(*learned, *ready.desired.env)))


def learn_buckets_within(ready: PreparedCommand, seconds: float) -> bool:
    """Learn what learn_run_buckets does, for a plan that may not wait long for a cloud.

    Args:
        ready: The command that is planned.
        seconds: How long at most. Buckets that were not asked by then are asked for the next plan.

    Returns:
        Whether something was learned, so that the plan may be another one.
    """
    addresses = [uri for uri in _list_run_addresses(ready) if bucket_of(uri)]
    if not addresses:
        return False
    before, context = load_known_buckets(), copy_context()  # with the member for whom it is read
    read = partial(context.run, partial(learn_bucket_locations, addresses, seconds=seconds))
    reading = threading.Thread(target=read, name="buckets", daemon=True)
    reading.start()
    reading.join(seconds)
    return load_known_buckets() != before


def _list_run_addresses(ready: PreparedCommand) -> tuple[str, ...]:
    """Return the addresses of what a run reads, and of its bucket."""
    if not isinstance(ready.desired, Run):
        return ()
    bucket = ready.job.bucket if ready.job is not None else ""
    return (*(mount.source for mount in ready.desired.mounts), bucket)


def list_launch_transfers(ready: PreparedCommand, *, reads_bucket: bool = True) -> tuple[Transfer, ...]:
    """Return what a launch or resume reads from buckets that are not in the region of its first candidate.

    Sizes are those of the objects, as far as bucket_locations.learn_bucket_locations measured them. A checkpoint's is
    read from the bucket, and counted once.

    Args:
        ready: The command.
        reads_bucket: Whether the bucket may be read; without it the size of a checkpoint is not known.
    """
    desired = ready.desired
    if not isinstance(desired, Run) or not desired.candidates or not desired.candidates[0].region:
        return ()
    region, hosts, known = desired.candidates[0].region, desired.candidates[0].hosts, load_known_buckets()
    found = [
        Transfer(
            what=f"{mount.destination} from {where}, by {hosts:,} host{'s' if hosts > 1 else ''} in {region}",
            size=None if size is None else size * hosts,
            price=price,
        )
        for mount in desired.mounts
        for where, price in _price_reading(mount.source, region, known)
        for size in [known.sizes.get(mount.source.rstrip("/"))]
    ]
    bucket = ready.job.bucket if ready.job is not None else ""
    if desired.resume_from is not None and bucket:
        for where, price in _price_reading(bucket, region, known):
            size = _measure_checkpoint(bucket, desired.run_id.preview()) if reads_bucket else None
            found.append(Transfer(what=f"the checkpoint from {where}, to {region}", size=size, price=price))
    return tuple(found)


def _price_reading(uri: str, region: str, known: KnownBuckets) -> Iterator[tuple[str, TransferPrice | None]]:
    """Yield where a bucket is and what reading it costs; nothing where it is free, or its place is not known."""
    bucket = bucket_of(uri)
    place = known.places.get(bucket)
    if bucket and place is not None and classify_access(place, region) is not Reach.SAME:
        yield f"{bucket} in {place}", transfer_price(place, region)


def _measure_checkpoint(bucket: str, run_id: str) -> int | None:
    """Return the bytes of the newest complete checkpoint; None where they cannot be read."""
    try:
        return choose_checkpoint(RunLocation(open_project_bucket(bucket), run_id), None)[0].size
    except OrchError:
        return None
