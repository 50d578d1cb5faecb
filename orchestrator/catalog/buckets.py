"""Where a bucket is relative to its readers: whether reading is free, and what a GiB costs otherwise.

Cloud Storage documentation, "Bucket locations" (2026): reading is free within a region, and from a dual-region in
either of its two; from a multi-region it is always charged. Amazon S3 user guide (2026): a bucket is in one region, and
reading is free there. Prices: data/buckets.toml.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.catalog.tables import read_rows

# Cloud Storage documentation, "Bucket locations", and AWS, "Regions" (2026): us-west4, NAM4; us-west-2, us-gov-west-1.
_LOCATION = re.compile(
    r"(?:us|northamerica|southamerica|europe|asia|australia|me|africa)-[a-z]+\d{1,2}"
    r"|(?:us|ca|mx|sa|eu|ap|me|il|af|cn)-(?:[a-z]+-)?[a-z]+-\d"
    r"|(?:nam|eur|asia)\d|us|eu|asia"
)


class Reach(StrEnum):
    """How a host reaches the data of a bucket, and so whether reading is charged."""

    SAME = "same"  # the data is in the reader's region: free
    COVERED = "covered"  # a multi-region around the reader: near, and charged
    CROSSES = "crosses"  # elsewhere: far, and charged


@dataclass(frozen=True, slots=True)
class BucketPlace:
    """The location of a bucket.

    Attributes:
        location: As the service names it, such as US-WEST4, US or NAM4; for S3 its region, us-west-2.
        regions: The pair of a configured dual-region, whose location is then that of the continent.
    """

    location: str
    regions: tuple[str, ...] = ()

    def __str__(self) -> str:
        if is_in_s3(self):
            return self.location
        return "+".join(self.regions).upper() if self.regions else self.location.upper()


@dataclass(frozen=True, slots=True)
class TransferPrice:
    """The price of reading, in US dollars per GiB.

    Attributes:
        as_of: ISO date of the price.
    """

    usd_per_gib: float
    as_of: str

    def __str__(self) -> str:
        return f"${self.usd_per_gib:g} per GiB, price of {self.as_of}"  # with all digits of the price list


def is_location(name: str) -> bool:
    """Return whether a lower-case word has the form of a bucket's location: a region, a pair or a continent."""
    return _LOCATION.fullmatch(name) is not None


def classify_access(place: BucketPlace, region: str) -> Reach:
    """Return how a host in `region` reaches the data."""
    name = place.location.upper()
    known = next((row for row in read_rows("buckets", "location") if row.text("name") == name), None)
    regions = [one.lower() for one in place.regions] or (list(known.texts("regions")) if known else [name.lower()])
    if region in regions:
        return Reach.SAME
    multi = known is not None and not place.regions and region not in known.texts("but")
    around = multi and known is not None and region.startswith(known.texts("begins") or ("\0",))
    return Reach.COVERED if around else Reach.CROSSES


def transfer_price(place: BucketPlace, region: str) -> TransferPrice | None:
    """Return what reading one GiB into `region` costs where it is charged; None when not known."""
    if is_in_s3(place):
        return _s3_price(place.location, region)
    from_, to = _continent_of(place), _continent(region)
    for row in read_rows("buckets", "transfer"):
        if (row.text("from"), row.text("to")) == (from_, to):
            return TransferPrice(row.number("usd"), row.text("as_of"))
    return None


@dataclass(frozen=True, slots=True)
class StoragePrice:
    """What a bucket in one region costs beside its reads, in US dollars.

    Attributes:
        per_gib_month: Of what is stored.
        per_write: Of a request that writes an object, or a part of one.
        as_of: ISO date of the price.
    """

    per_gib_month: float
    per_write: float
    as_of: str


def storage_price(region: str) -> StoragePrice | None:
    """Return what a bucket in a region costs; None when not known."""
    for row in read_rows("buckets", "storage"):
        if region in row.texts("regions"):
            return StoragePrice(row.number("usd_per_gib_month"), row.number("usd_per_write"), row.text("as_of"))
    return None


def internet_price(scheme: str, place: BucketPlace | None) -> TransferPrice | None:
    """Return what one GiB costs that leaves a bucket for a computer outside of its cloud; None when not known."""
    location = place.location if place is not None else ""
    for row in read_rows("buckets", "internet"):
        if row.text("scheme") == scheme and location.startswith(row.texts("from")):
            return TransferPrice(row.number("usd"), row.text("as_of"))
    return None


def is_in_s3(place: BucketPlace) -> bool:
    """Return whether the bucket is in S3: Amazon's regions end in -NUMBER, Google's do not."""
    return re.search(r"-\d+$", place.location) is not None


def find_scheme(place: BucketPlace) -> str:
    """Return the scheme of addresses of buckets in this location."""
    return "s3" if is_in_s3(place) else "gs"


def _s3_price(from_: str, to: str) -> TransferPrice | None:
    for row in read_rows("buckets", "s3_transfer"):
        if from_.startswith(row.texts("from")) and to.startswith(row.texts("to")):
            return TransferPrice(row.number("usd"), row.text("as_of"))
    return None


def _continent_of(place: BucketPlace) -> str:
    name = place.location.upper()
    for row in read_rows("buckets", "location"):
        if row.text("name") == name:
            return _continent((*place.regions, *row.texts("regions"), *row.texts("begins"))[0].lower())
    return _continent(name.lower())


def _continent(region: str) -> str:
    """Return the continent of a region; "" for one without a known price."""
    found = (row.text("name") for row in read_rows("buckets", "continent") if region.startswith(row.texts("begins")))
    return next(found, "")
