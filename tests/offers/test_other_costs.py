"""What offers count beside the machines: by the tables of the ledger, and never 0 for what is not known."""

from __future__ import annotations

import pytest

from orchestrator.catalog.attached import AttachedPrices
from orchestrator.catalog.buckets import BucketPlace
from orchestrator.catalog.tables import read_rows
from orchestrator.engine.training.offers import list_offers
from orchestrator.engine.training.work import Training, read_training
from orchestrator.offers.offer_table import describe_costs
from orchestrator.offers.offers import MACHINES, OfferRequest
from orchestrator.offers.other_costs import GIB, PARTS, OtherCosts, RunSizes, find_other_costs

SIZES = RunSizes(checkpoint_bytes=10 * GIB, kept=3, data_bytes=100 * GIB)
ATTACHED = AttachedPrices(disks=126_000, addresses=5_000, minimum_seconds=60)
HOUR = 3600.0


def measure(other: OtherCosts, losses: float = 0.0) -> dict[str, float | None]:
    return dict(other.measure_parts(730 * HOUR, interval=HOUR, losses_per_hour=losses))


def test_a_month_costs_what_the_tables_say() -> None:
    found = measure(find_other_costs(ATTACHED, SIZES, "us-east-1", hosts=3, bucket=None))
    assert found["disks"] == pytest.approx(0.126 * 730)
    assert found["addresses"] == pytest.approx(0.005 * 730)
    assert found["storage"] == pytest.approx(30 * 0.023)
    assert found["writes"] == pytest.approx(731 * 4 * 0.000005), "an object of each host, and the manifest"
    assert found["reads"] == 0, "the bucket is in the machines' region"


def test_reading_from_another_region_is_charged_with_each_loss() -> None:
    other = find_other_costs(ATTACHED, SIZES, "us-west-2", hosts=3, bucket=BucketPlace("us-east-1"))
    assert measure(other)["reads"] == pytest.approx(100 * 0.02)
    assert measure(other, losses=0.1)["reads"] == pytest.approx(100 * 0.02 + 73 * 10 * 0.02)
    assert measure(other)["writes"] is None, "what leaves the machines' region has no row"
    multi = find_other_costs(ATTACHED, SIZES, "us-central1", hosts=1, bucket=BucketPlace("us"))
    assert measure(multi)["reads"] == pytest.approx(100 * 0.02), "a multi-region is always charged"


@pytest.mark.parametrize(
    ("region", "bucket", "missing"),
    [
        ("us-central1", "us-east-1", {"reads", "writes"}),  # between clouds
        ("af-south-1", "", {"storage", "writes"}),
        ("eu-north-1", "eu-west-1", {"storage", "writes", "reads"}),
    ],
)
def test_what_has_no_row_is_not_known(region: str, bucket: str, missing: set[str]) -> None:
    place = BucketPlace(bucket) if bucket else None
    found = measure(find_other_costs(ATTACHED, SIZES, region, hosts=1, bucket=place))
    assert {part for part, value in found.items() if value is None} == missing
    nothing = measure(OtherCosts())
    assert set(nothing) == set(PARTS) and set(nothing.values()) == {None}


def test_the_cost_of_an_offer_is_the_sum_of_its_known_parts() -> None:
    work = read_training(("checkpoint.keep=5",), model="1b", tokens=2e9)
    found = list_offers(work, OfferRequest(most_hosts=4))
    assert {one.machine.provider for one in found} == {"aws", "gcp"}
    for one in found:
        known = [part for _, part in one.parts if part is not None]
        assert one.dollars.typical == pytest.approx(sum(part.typical for part in known))
        assert dict(one.parts)[MACHINES] is not None
        assert one.other.sizes.kept == 5
        size = one.other.sizes.checkpoint_bytes
        assert size is not None and 10 < size / GIB < 13, "1b: weights and two moments in fp32, 12 bytes of each"
    notes = list(describe_costs(found, ""))
    assert notes[0] == "data: about 1.9 GiB of tokens, as the trainer keeps them"
    assert notes[1].endswith("the bucket keeps 5")
    assert any(note.startswith("price not known, and so not in the cost of") for note in notes)


def test_a_larger_vocabulary_takes_four_bytes_of_a_token() -> None:
    for model, setting, width in (
        ("1b", "seed=1", 1),  # the default text, in bytes
        ("1b", "data=s3://mine/books", 2),  # its tokenizer is not known
        ("1b", "model.vocab=50304", 2),
        ("1b", "model.vocab=128256", 4),
        ("qwen3-0.6b", "seed=1", 4),
    ):
        work = Training(settings=(f"model={model}", "batch=512", "seq_len=2048", setting), steps=1000)
        (found, *_) = list_offers(work, OfferRequest(only=("v6e-8", "spot")))
        assert found.other.sizes.data_bytes == 1000 * 512 * 2048 * width


def test_every_price_of_a_bucket_has_a_source_and_a_date() -> None:
    rows = read_rows("buckets", "storage")
    assert len({region for row in rows for region in row.texts("regions")}) == sum(
        len(row.texts("regions")) for row in rows
    )
    for row in rows:
        assert row.text("source") and row.text("as_of") >= "2026" and 0.01 < row.number("usd_per_gib_month") < 0.05
