"""A wrong row of a data file is an error that says where it is."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.catalog import tables
from orchestrator.catalog.accelerators import resolve
from orchestrator.catalog.ec2 import list_price_rows
from orchestrator.catalog.prices import price_per_hour
from orchestrator.errors import OrchError
from orchestrator.slices import OnDemand


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder of a copy of the data files, which is read instead of ours."""
    monkeypatch.setattr(tables, "DATA", shutil.copytree(tables.DATA, tmp_path / "data"))
    tables.read_rows.cache_clear()
    list_price_rows.cache_clear()
    yield tmp_path / "data"
    tables.read_rows.cache_clear()
    list_price_rows.cache_clear()


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("regions = [", "region = [", "no `regions`"),
        ("usd = 21", "dollars = 21", "no `usd`"),
        ("usd = 21.957642", 'usd = "21"', "`usd` that is not a number"),
        ('regions = ["us-east-1"]', 'regions = "us-east-1"', "`regions` that is not list"),
    ],
)
def test_a_wrong_row_is_named_with_its_table_and_key(data: Path, old: str, new: str, wrong: str) -> None:
    file = data / "ec2_prices.toml"
    file.write_text(file.read_text().replace(old, new, 1))
    with pytest.raises(OrchError) as caught:
        price_per_hour(resolve("p4d.24xlarge"), OnDemand(), "us-east-1")
    said = "\n".join(caught.value.lines())
    assert f"a row [[price]] of ec2_prices.toml has {wrong}" in said
    assert re.search("instance = 'p4d.24xlarge', market = 'on-demand' has the keys instance, market, regions?, ", said)
    assert str(file) in said
