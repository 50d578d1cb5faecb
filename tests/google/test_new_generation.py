"""CONTRIBUTING.md, "A new TPU generation": one row of catalog/data/tpu.toml is all that planning and checks need."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from google_cases import candidate, spec

from orchestrator.catalog import tables, tpu
from orchestrator.catalog.tables import Row
from orchestrator.providers.google.planner import PLANNER


@pytest.fixture
def v9(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A generation v9 beside the real ones: the row of v6e with other names."""
    (newest,) = [row for row in tables.read_rows("tpu", "generation") if row.text("name") == "v6e"]
    names = {"name": "v9", "prefix": "v9", "aliases": ["v9"], "api_type": "V9", "devices_per_chip": 2}
    added = Row(newest.table, {**newest.cells, **names, "runtime_version": "v2-alpha-tpuv9", "quota_metric": r"\bv9\b"})
    read = tables.read_rows

    def read_with_v9(file: str, table: str) -> tuple[Row, ...]:
        return (*read(file, table), added) if table == "generation" else read(file, table)

    monkeypatch.setattr(tpu, "read_rows", read_with_v9)
    for cached in (tpu.list_generations, tpu.generations_by_alias):
        cached.cache_clear()
    yield
    monkeypatch.undo()
    for cached in (tpu.list_generations, tpu.generations_by_alias):
        cached.cache_clear()


@pytest.mark.usefixtures("v9")
def test_one_row_makes_a_new_generation_known_to_names_shapes_and_requests() -> None:
    found = tpu.find_slice("v9-16")
    assert found is not None
    assert (found.name, found.hosts, found.topology, found.in_tpu_api) == ("v9-16", 4, "4x4", True)
    assert tpu.get_generation("v9").devices_per_chip == 2
    request = json.dumps(PLANNER.create_request(spec(candidate("v9-16"))).body, default=str)
    assert '"v9-16"' in request
    assert "v2-alpha-tpuv9" in request
    on_compute = PLANNER.create_request(spec(candidate("v9-8", api="compute")))
    assert "ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e" in json.dumps(on_compute.body, default=str)
