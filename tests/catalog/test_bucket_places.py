"""Buckets and the regions they are read from (Cloud Storage documentation, "Bucket locations", 2026)."""

from __future__ import annotations

import re

import pytest

from orchestrator.catalog.buckets import BucketPlace, Reach, classify_access, internet_price, transfer_price
from orchestrator.catalog.tables import read_rows

REACHES = [
    ("US-WEST4", "us-west4", Reach.SAME),
    ("us-west4", "us-west4", Reach.SAME),
    ("US-WEST4", "us-west1", Reach.CROSSES),
    ("US", "us-west4", Reach.COVERED),
    ("US", "northamerica-northeast1", Reach.CROSSES),
    ("US", "europe-west4", Reach.CROSSES),
    ("EU", "europe-west4", Reach.COVERED),
    ("EU", "europe-west2", Reach.CROSSES),  # London is not in the European Union
    ("EU", "europe-west6", Reach.CROSSES),  # nor is Zurich
    ("ASIA", "asia-northeast1", Reach.COVERED),
    ("NAM4", "us-central1", Reach.SAME),
    ("NAM4", "us-east1", Reach.SAME),
    ("NAM4", "us-east5", Reach.CROSSES),
    ("EUR4", "europe-west4", Reach.SAME),
    ("ASIA1", "asia-northeast2", Reach.SAME),
    ("ASIA1", "asia-east1", Reach.CROSSES),
    ("SOMEWHERE-NEW1", "us-west4", Reach.CROSSES),
    ("us-east-1", "us-east-1", Reach.SAME),  # S3 from here on
    ("us-east-1", "us-east-2", Reach.CROSSES),
    ("us-east-1", "us-east1", Reach.CROSSES),
    ("mx-new-1", "mx-new-1", Reach.SAME),
]


@pytest.mark.parametrize(("location", "region", "expected"), REACHES)
def test_how_a_region_reaches_a_bucket(location: str, region: str, expected: Reach) -> None:
    assert classify_access(BucketPlace(location), region) is expected


def test_a_chosen_region_pair_is_free_in_its_two_regions_only() -> None:
    place = BucketPlace("US", ("us-east1", "us-west1"))
    assert str(place) == "US-EAST1+US-WEST1"
    assert [classify_access(place, region) for region in ("us-east1", "us-west1", "us-west4")] == [
        Reach.SAME,
        Reach.SAME,
        Reach.CROSSES,
    ]


@pytest.mark.parametrize(
    ("location", "region", "usd"),
    [
        ("US", "us-west4", 0.02),
        ("NAM4", "us-west4", 0.02),
        ("NORTHAMERICA-NORTHEAST1", "us-west4", 0.02),
        ("EU", "europe-west4", 0.02),
        ("EUROPE-WEST1", "europe-west4", 0.02),
        ("EUROPE-WEST4", "us-west4", None),
        ("ASIA", "asia-east1", None),
        ("ME-WEST1", "me-central1", None),
        ("SOMEWHERE-NEW1", "somewhere-new2", None),
        ("us-east-1", "us-west-2", 0.02),
        ("us-west-2", "eu-north-1", 0.02),
        ("us-east-2", "us-east-1", 0.01),
        ("us-east-1", "us-east-2", 0.01),
        ("eu-north-1", "us-east-1", None),
        ("ap-southeast-2", "ap-southeast-4", None),
    ],
)
def test_a_price_is_known_or_it_is_none(location: str, region: str, usd: float | None) -> None:
    price = transfer_price(BucketPlace(location), region)
    assert (price.usd_per_gib if price else None) == usd


@pytest.mark.parametrize(
    ("scheme", "location", "usd"),
    [("gs", "EU", 0.12), ("gs", None, 0.12), ("s3", "us-west-2", 0.09), ("s3", "sa-east-1", None), ("s3", None, None)],
)
def test_what_leaves_a_cloud_has_a_price_or_none(scheme: str, location: str | None, usd: float | None) -> None:
    price = internet_price(scheme, BucketPlace(location) if location else None)
    assert (price.usd_per_gib if price else None) == usd


def test_a_region_of_amazon_is_written_as_amazon_does() -> None:
    assert [str(BucketPlace(name)) for name in ("us-east-1", "us-east1")] == ["us-east-1", "US-EAST1"]


def test_every_row_has_a_source_and_a_date() -> None:
    for table in ("location", "transfer", "s3_transfer", "continent", "internet"):
        for row in read_rows("buckets", table):
            assert row.text("source"), row
            assert re.fullmatch(r"20[0-9]{2}-[01][0-9]-[0-3][0-9]", row.text("as_of")), row
