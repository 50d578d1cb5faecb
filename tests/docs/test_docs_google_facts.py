"""Facts of docs/google.md against the catalogue; and that the reader of pages sees what it must."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs_page import Command, File, read_page

from orchestrator.catalog.compute import load_types
from orchestrator.catalog.prices import price_per_hour
from orchestrator.catalog.tpu import NODES_ENDED, find_slice
from orchestrator.slices import OnDemand, Spot

PAGE = (Path(__file__).parent.parent.parent / "docs" / "google.md").read_text()
ROW = re.compile(
    r"^\| `(?P<name>[\w-]+)` \| (?:`(?P<alias>[\w-]+)` )?\| (?P<hosts>\d+) \| (?P<chips>\d+) \| `(?P<runtime>[\w-]+)` "
    r"\| (?P<price>[\d.]+) \| (?P<zone>[\w-]+) \|$",
    re.MULTILINE,
)
ROWS = [row.groupdict() for row in ROW.finditer(PAGE)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_the_table_of_types_is_that_of_the_catalogue(row: dict[str, str]) -> None:
    tpu = find_slice(row["name"])
    assert tpu is not None
    assert (tpu.hosts, tpu.chips_per_host, tpu.runtime_version) == (
        int(row["hosts"]),
        int(row["chips"]),
        row["runtime"],
    )
    assert row["zone"] in tpu.zones
    price = price_per_hour(tpu, OnDemand(), row["zone"].rpartition("-")[0])
    assert price is not None and f"{price.low:.2f}" == row["price"]
    assert f"list prices of {price.as_of} in US dollars an hour" in PAGE
    if row["alias"]:
        assert find_slice(row["alias"]) == tpu


def test_every_row_of_the_table_of_types_was_read() -> None:
    table = PAGE.partition("| type |")[2].partition("\n\n")[0]
    assert len(ROWS) == len(table.splitlines()) - 2
    assert {row["name"] for row in ROWS} >= {"v5litepod-8", "v5litepod-16"}


MACHINE = re.compile(
    r"^\| `([\w-]+)` \| (none|\d+ [\w-]+) \| (\d+) \| (\d+) \| ([\d.]+) \| ([\d.]+|unknown) \|$", re.MULTILINE
)


def test_the_table_of_machine_types_is_that_of_the_catalogue() -> None:
    table = PAGE.partition("| machine type |")[2].partition("\n\n")[0]
    rows = MACHINE.findall(table)
    assert len(rows) == len(table.splitlines()) - 2 > 5
    for name, gpus, vcpus, gib, on_demand, spot in rows:
        machine = load_types()[name]
        chips = f"{machine.chips} {machine.chip}" if machine.chips else "none"
        assert (gpus, int(vcpus), int(gib)) == (chips, machine.vcpus, machine.ram_gib)
        prices = [price_per_hour(machine, market, "us-central1") for market in (OnDemand(), Spot())]
        shown = [f"{price.low:.2f}" if price is not None else "unknown" for price in prices]
        assert [on_demand, spot] == shown, name
        assert prices[0] is not None and f"List prices of {prices[0].as_of} in US dollars an hour" in PAGE


def test_every_price_of_the_page_stands_in_the_table_that_has_a_date() -> None:
    assert re.findall(r"\$\d|\d+(?:\.\d+)? (?:US )?dollars", PAGE) == []


def test_zones_of_grants_are_zones_of_their_generation() -> None:
    grants = re.findall(r"Cloud TPU (\w+) chips in zone ([\w-]+)", PAGE)
    assert len(grants) == 6
    for generation, zone in grants:
        tpu = find_slice(f"{generation}-8")
        assert tpu is not None and zone in tpu.zones
    v4 = find_slice("v4-64")
    assert v4 is not None and v4.hosts * v4.chips_per_host == 32


def test_the_end_of_tpu_nodes_has_its_date() -> None:
    assert f"ended TPU Nodes on {NODES_ENDED}" in PAGE


def test_the_reader_of_pages_sees_files_commands_and_what_they_end_with(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A\n```yaml gcp\n# a.yaml\nname: a\n```\ntext\n"
        "```bash gcp\n# said only\nfirst \\\n  second\nno  # exit status 2\n```\n"
        "```text\nnot run\n```\n"
    )
    assert read_page(page, "gcp") == (
        File("a.yaml", "# a.yaml\nname: a\n", 3),
        Command("first   second", 9),
        Command("no", 11, 2),
    )


@pytest.mark.parametrize("block", ["```\nx\n```", "```console\nx\n```", "```bash\nx\n```", "```yaml gcp\nname: a\n```"])
def test_a_block_that_does_not_say_what_it_is_is_refused(tmp_path: Path, block: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{block}\n")
    with pytest.raises(ValueError, match=r"page\.md:2"):
        read_page(page, "gcp")
