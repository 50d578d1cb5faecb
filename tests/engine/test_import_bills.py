"""Billing exports become what slices cost: by our label alone, each bill once, whatever a file holds."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.operations import bill_files
from orchestrator.engine.operations.import_bills import ReadBills, read_bills, refuse_partial_bills
from orchestrator.errors import UserError
from orchestrator.providers.google.labels import to_google
from orchestrator.values import Text

OURS = "a1b2c3-1"
TOKENS = frozenset({OURS, "Über-1"})
CUR: dict[str, str] = {
    "identity_line_item_id": "x1", "bill_payer_account_id": "123456789012",
    "bill_billing_period_start_date": "2026-11-01T00:00:00.000Z",
    "line_item_usage_start_date": "2026-11-26T10:00:00.000Z", "line_item_usage_end_date": "2026-11-26T11:00:00.000Z",
    "line_item_line_item_type": "Usage", "line_item_usage_type": "USE2-BoxUsage:p5.48xlarge",
    "line_item_unblended_cost": "55.0400000000", "line_item_currency_code": "USD",
    "resource_tags": json.dumps({"user_orch_intent": OURS, "user_name": "mine"}),
}  # fmt: skip
GOOGLE: dict[str, Any] = {
    "billing_account_id": "01ABCD-234567-89EFAB", "invoice": {"month": "202611"}, "cost_type": "regular",
    "usage_start_time": "2026-11-26 10:00:00 UTC", "usage_end_time": "2026-11-26 11:00:00 UTC",
    "labels": [{"key": "orch-intent", "value": OURS}], "cost": 1.25, "currency": "USD",
    "sku": {"id": "1", "description": "N2 Instance Core running in Americas"},
    "credits": [{"name": "Committed use discount", "amount": -0.25}],
}  # fmt: skip


def cur(path: Path, *rows: dict[str, str]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(dict.fromkeys(name for row in rows for name in row)))
    writer.writeheader()
    writer.writerows(rows)
    path.write_bytes(gzip.compress(text.getvalue().encode()))
    return str(path)


def lines(path: Path, *rows: object) -> str:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


def sums(found: ReadBills) -> dict[str, int]:
    return {one.part: one.microdollars for one in found.list_records()}


def test_lines_of_aws_are_summed_by_slice_part_and_day(tmp_path: Path) -> None:
    def usage(kind: str, cost: str, hour: int = 10, line_type: str = "Usage") -> dict[str, str]:
        return CUR | {
            "line_item_usage_type": kind, "line_item_unblended_cost": cost, "line_item_line_item_type": line_type,
            "line_item_usage_start_date": f"2026-11-26T{hour:02}:00:00Z",
            "line_item_usage_end_date": f"2026-11-26T{hour + 1:02}:00:00Z",
        }  # fmt: skip

    name = cur(
        tmp_path / "a.csv.gz", CUR, usage("BoxUsage:p5.48xlarge", "0.0000005", 11),
        usage("EBS:VolumeUsage.gp3", "0.02"), usage("USE2-PublicIPv4:InUseAddress", "0.005"),
        usage("USE2-DataTransfer-Out-Bytes", "3"),
        usage("BoxUsage", "-5", 10, "EdpDiscount"), usage("BoxUsage", "7", 10, "Tax"), usage("Whatever", "1"),
        CUR | {"resource_tags": "{}"}, CUR | {"resource_tags": '{"user_orch_intent": "elsewhere-1"}'},
    )  # fmt: skip
    found = read_bills([name], TOKENS)
    assert sums(found) == {
        "machines": 55_040_000, "disks": 20_000, "addresses": 5_000, "network": 3_000_000, "credits": -5_000_000,
        "taxes": 7_000_000, "other": 1_000_000,
    }  # fmt: skip
    (machines,) = (one for one in found.list_records() if one.part == "machines")
    assert (machines.until - machines.begin, machines.month, machines.account) == (7200, "2026-11", "123456789012")
    assert (found.rows, found.unlabelled, found.unknown) == (
        10,
        1,
        {"elsewhere-1": Decimal("55.04")},
    )
    assert found.months == {("aws", "123456789012", "2026-11")}


def test_hours_with_a_gap_between_them_do_not_cover_it(tmp_path: Path) -> None:
    def hour(begin: str, end: str) -> dict[str, str]:
        return CUR | {"line_item_usage_start_date": begin, "line_item_usage_end_date": end}

    first, last = (
        hour("2026-11-26T00:00:00Z", "2026-11-26T01:00:00Z"),
        hour("2026-11-26T23:00:00Z", "2026-11-27T00:00:00Z"),
    )
    found = read_bills([cur(tmp_path / "a.csv.gz", first, last, first)], TOKENS)
    records = found.list_records()
    assert [(one.until - one.begin, one.microdollars) for one in records] == [(3600, 110_080_000), (3600, 55_040_000)]
    assert [one.line[-10:] for one in records] == ["2026-11-26", "6T23:00:00"]
    refuse_partial_bills(read_bills([cur(tmp_path / "b.csv.gz", first)], TOKENS), records)


def test_the_older_report_and_the_map_of_all_tags_are_read(tmp_path: Path) -> None:
    def older(name: str) -> str:
        first, *rest = name.split("_")
        group = {"bill": "bill", "line": "lineItem", "identity": "identity"}[first]
        words = rest[1:] if first == "line" else rest
        return f"{group}/{''.join(word.capitalize() for word in words)}"

    flat = {older(name): value for name, value in CUR.items() if name != "resource_tags"}
    flat["resourceTags/user:orch-intent"] = OURS
    tags = {name: value for name, value in CUR.items() if name != "resource_tags"}
    tags["tags"] = json.dumps({"resourceTags/orch-intent": OURS})
    for number, row in enumerate((flat, tags)):
        assert sums(read_bills([cur(tmp_path / f"{number}.csv.gz", row)], TOKENS)) == {"machines": 55_040_000}


def test_lines_of_google_have_their_credits_and_coded_labels(tmp_path: Path) -> None:
    coded = to_google([("orch-intent", Text.of("Über-1"))])
    other = GOOGLE | {"labels": [{"key": key, "value": value.reveal()} for key, value in coded.items()], "credits": []}
    disk = GOOGLE | {"sku": {"description": "Balanced PD Capacity"}, "credits": [], "cost": 0.013699}
    name = lines(tmp_path / "a.json", GOOGLE, GOOGLE, disk, other, GOOGLE | {"labels": [], "cost_type": "tax"})
    found = read_bills([name], TOKENS)
    assert {(one.token, one.part): one.microdollars for one in found.list_records()} == {
        (OURS, "machines"): 2_500_000, (OURS, "credits"): -500_000, (OURS, "disks"): 13_699,
        ("Über-1", "machines"): 1_250_000,
    }  # fmt: skip
    assert found.unlabelled == 2, "its tax and its credit"
    assert found.months == {("gcp", "01ABCD-234567-89EFAB", "2026-11")}


def test_a_folder_means_all_its_exports(tmp_path: Path) -> None:
    for part in range(2):
        cur(tmp_path / f"orch-{part}.csv.gz", CUR | {"line_item_resource_id": f"i-{part}"})
    (tmp_path / "Manifest.txt").write_text("no export")
    assert read_bills([str(tmp_path)], TOKENS).rows == 2
    assert read_bills([f"file://{tmp_path}/"], TOKENS).rows == 2
    named = [str(tmp_path / "orch-0.csv.gz"), str(tmp_path), f"{tmp_path}/../{tmp_path.name}/orch-0.csv.gz"]
    assert read_bills(named, TOKENS).rows == 2, "each file once"
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no export"):
        read_bills([str(tmp_path / "empty")], TOKENS)


def test_two_deliveries_of_one_bill_are_refused(tmp_path: Path) -> None:
    def hours(*count: int, delivery: str = "1") -> list[dict[str, str]]:
        of_delivery = {"identity_line_item_id": delivery, "line_item_unblended_cost": delivery}  # discounts come later
        return [CUR | of_delivery | {"line_item_usage_amount": f"{one}"} for one in count]

    (tmp_path / "new").mkdir()
    cur(tmp_path / "new" / "a.csv.gz", *hours(1, 2, 3, 4))
    cur(tmp_path / "new" / "b.csv.gz", *hours(4, 5, 6, 7, 8))
    assert read_bills([str(tmp_path / "new")], TOKENS).rows == 9, "two rows of one report may be alike"
    (tmp_path / "old").mkdir()
    stale = cur(tmp_path / "old" / "a.csv.gz", *hours(2, 5, 9, delivery="2"))
    with pytest.raises(UserError, match="the same rows twice") as caught:
        read_bills([str(tmp_path)], TOKENS)
    assert stale in str(caught.value.why)
    older = [{name.replace("line_item_", "lineItem/"): value for name, value in CUR.items()}]
    with pytest.raises(UserError, match="two kinds of report of 2026-11"):
        read_bills([str(tmp_path / "new"), cur(tmp_path / "c.csv.gz", *older)], TOKENS)


def test_an_hourly_report_beside_a_daily_one_is_refused(tmp_path: Path) -> None:
    def day(begin: str, end: str, **other: str) -> dict[str, str]:
        return CUR | {"line_item_usage_start_date": begin, "line_item_usage_end_date": end} | other

    hourly = cur(
        tmp_path / "hourly.csv.gz",
        *(day(f"2026-11-26T{at:02}:00:00Z", f"2026-11-26T{at + 1:02}:00:00Z") for at in range(9)),
    )
    daily = cur(tmp_path / "daily.csv.gz", day("2026-11-26T00:00:00Z", "2026-11-27T00:00:00Z"))
    assert read_bills([hourly], TOKENS).rows == 9 and read_bills([daily], TOKENS).rows == 1
    with pytest.raises(UserError, match=f"the machines of {OURS} on 2026-11-26 by the hour and by the day") as caught:
        read_bills([str(tmp_path)], TOKENS)
    assert daily in caught.value.why and hourly in caught.value.why
    other = cur(tmp_path / "daily.csv.gz", day("2026-11-25T00:00:00Z", "2026-11-26T00:00:00Z"))
    assert read_bills([hourly, other], TOKENS).rows == 10, "another day, as of a report whose setting was changed"
    fee = day("2026-11-26T00:00:00Z", "2026-11-27T00:00:00Z", line_item_line_item_type="Fee")
    assert read_bills([hourly, cur(tmp_path / "daily.csv.gz", fee)], TOKENS).rows == 10, (
        "fees are of a day in each report"
    )


def test_a_standard_export_beside_a_detailed_one_is_refused(tmp_path: Path) -> None:
    one = lines(tmp_path / "standard.json", GOOGLE | {"cost": 2.5})
    detailed = [GOOGLE | {"resource": {"name": f"projects/p/instances/{number}"}} for number in range(2)]
    unlabelled: dict[str, Any] = GOOGLE | {"labels": None, "resource": {"name": "x"}}
    other = lines(tmp_path / "detailed.json", unlabelled, *detailed, GOOGLE)
    assert read_bills([one], TOKENS).rows and read_bills([other], TOKENS).rows
    with pytest.raises(UserError, match="two kinds of report"):
        read_bills([one, other], TOKENS)


@pytest.mark.parametrize(("rows", "slices"), [(2, 1), (11, 11)])
def test_sums_that_the_records_cannot_hold_are_refused(tmp_path: Path, rows: int, slices: int) -> None:
    large: list[dict[str, Any]] = [
        GOOGLE | {"cost": 1e9, "labels": [{"key": "orch-intent", "value": f"s{number % slices}"}]}
        for number in range(rows)
    ]
    with pytest.raises(UserError, match="add up to over"):
        read_bills([lines(tmp_path / "a.json", *large)], frozenset(f"s{number}" for number in range(slices)))


def test_a_bill_without_lines_that_it_had_is_refused(tmp_path: Path) -> None:
    both = read_bills([cur(tmp_path / "a.csv.gz", CUR, CUR | {"line_item_usage_type": "EBS:x"})], TOKENS)
    one = read_bills([cur(tmp_path / "b.csv.gz", CUR)], TOKENS)
    refuse_partial_bills(both, one.list_records())
    with pytest.raises(UserError, match="lack 1 line that"):
        refuse_partial_bills(one, both.list_records())
    other = read_bills([cur(tmp_path / "c.csv.gz", CUR | {"bill_payer_account_id": "2"})], TOKENS)
    refuse_partial_bills(other, both.list_records())


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"line_item_currency_code": "EUR"}, "in 'EUR'"),
        ({"line_item_unblended_cost": "=1+1"}, "'=1\\+1' is not an amount"),
        ({"line_item_unblended_cost": "NaN"}, "not an amount"),
        ({"line_item_unblended_cost": "1e999999999"}, "not an amount"),
        ({"line_item_usage_start_date": "yesterday"}, "not a time"),
        ({"line_item_usage_end_date": "9999-12-31T00:00:00Z"}, "not a time of a bill"),
        ({"bill_payer_account_id": "../../etc\x1b[31m"}, "not a billing account"),
        ({"resource_tags": "orch" + "[" * 100_000}, "not a map"),
        ({"resource_tags": "x" * 200_000}, "is not CSV"),
    ],
)
def test_a_row_that_cannot_be_read_imports_nothing(tmp_path: Path, row: dict[str, str], why: str) -> None:
    with pytest.raises(UserError) as caught:
        read_bills([cur(tmp_path / "a.csv.gz", CUR, CUR | row)], TOKENS)
    said = f"{caught.value.what} {caught.value.why}"
    assert "row " in said and len(said) < 500 and said.isprintable()
    assert re.search(why, said), said


@pytest.mark.parametrize("content", [b"PAR1....", b"PK\x03\x04....", b"[{}]", b"", b"a,b\n1,2\n", b'{"cost": 1}\n'])
def test_a_file_of_another_form_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    if not content:
        assert read_bills([str(path)], TOKENS).rows == 0
        return
    with pytest.raises(UserError):
        read_bills([str(path)], TOKENS)


def bomb(piece: bytes, count: int) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    return b"".join(packer.compress(piece) for _ in range(count)) + packer.flush()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (lambda: bomb(b"0" * 2**20, 8), "row over"),
        (lambda: bomb(b",\n" * 2**17, 24), "too large"),
        (lambda: gzip.compress(b"a,b\n")[:-3] + b"zzz", "damaged"),
        (lambda: b"a" * 3_000_000, "row over"),
    ],
)
def test_a_file_is_bounded_whatever_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: Callable[[], bytes], why: str
) -> None:
    monkeypatch.setattr(bill_files, "_UNCHECKED", 2**20)
    path = tmp_path / "a.csv.gz"
    path.write_bytes(content())
    with pytest.raises(UserError, match=why):
        list(bill_files.read_rows(f"file://{path}"))


@pytest.mark.parametrize("kept", [-9, -1, 0.6], ids=["before its sums", "in its sums", "in the middle"])
@pytest.mark.parametrize("before", [b"", gzip.compress(b"a,b\n")], ids=["alone", "after a whole member"])
def test_a_packed_file_whose_end_is_missing_is_refused(tmp_path: Path, kept: float, before: bytes) -> None:
    packed = gzip.compress(b"".join(b"%d,%d\n" % (number, number**3) for number in range(600)))
    path = tmp_path / "a.csv.gz"
    path.write_bytes(before + packed)
    assert len(list(bill_files.read_rows(f"file://{path}"))) == 599 + bool(before), "whole, without its header"
    path.write_bytes(before + packed[: int(kept if kept < 0 else kept * len(packed))])
    with pytest.raises(UserError, match="damaged") as caught:
        list(bill_files.read_rows(f"file://{path}"))
    assert "end is missing" in caught.value.why
