"""The decisions of the provider core for clouds that make one machine by one request."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from provider_support import make_keys, make_spec
from support.plain_machines import NeutralMachines

from orchestrator.catalog.plain import PlainType
from orchestrator.providers.core.plain import PlainDriver, PlainPlanner, PlainRecords
from orchestrator.providers.core.record import KEPT_SECONDS, Phase
from orchestrator.providers.protocol import Place
from orchestrator.providers.records import FolderRecords
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.scenario import Scenario
from orchestrator.slices import Candidate, OnDemand

CANDIDATE = Candidate(provider="plain", accelerator="small", hosts=2, chips_per_host=0, market=OnDemand(), zone="sim-a")


def driver() -> PlainDriver:
    return PlainDriver(PlainPlanner("plain"), NeutralMachines(InMemory(Scenario(), ManualClock())))


def test_a_slice_has_a_key_pair_for_each_host(tmp_path: Path) -> None:
    spec = make_spec(candidate=CANDIDATE)
    assert driver().new_record(spec, make_keys(tmp_path / "two", 2), 1.0).hosts == 2
    for count in (1, 3):
        with pytest.raises(ValueError, match=f"2 hosts need a key pair each, there are {count}"):
            driver().new_record(spec, make_keys(tmp_path / str(count), count), 1.0)


def test_records_are_kept_for_a_week_after_the_end(tmp_path: Path) -> None:
    records = PlainRecords(FolderRecords(tmp_path))
    first = driver().new_record(make_spec(candidate=CANDIDATE), make_keys(tmp_path / "keys", 2), 1.0)
    old, young = time.time() - KEPT_SECONDS - 60, time.time() - KEPT_SECONDS + 600
    for phase in Phase:
        for name, changed in (("old", old), ("young", young)):
            records.put(replace(first, name=f"{phase}-{name}", phase=phase, changed=changed))
    assert sorted(one.name for one in records.list_expired()) == ["ending-old", "refused-old"]


@pytest.mark.parametrize(
    ("region", "zone", "expected"),
    [("", "", [("fi", "hel-1"), ("fi", "hel/2"), ("de", "nbg-1")]), ("fi", "", [("fi", "hel-1"), ("fi", "hel/2")]),
     ("", "nbg-1", [("de", "nbg-1")]), ("us", "", [("us", "")])],
)  # fmt: skip
def test_a_type_is_looked_for_where_it_is_offered(region: str, zone: str, expected: list[tuple[str, str]]) -> None:
    machine = PlainType(
        name="small", hosts=1, chips_per_host=0, cores_per_chip=0, hbm_gib_per_chip=0, peak_bf16_tflops_per_chip=0,
        backends=("cpu",), places=("fi/hel-1", "fi/hel/2", "de/nbg-1"), usd=1.0, usd_spot=0.0, as_of="2026-11-01",
        source="a test",
    )  # fmt: skip
    choice = cast("Any", SimpleNamespace(infra=SimpleNamespace(region=region, zone=zone), machine=machine))
    found = PlainPlanner("plain").list_places(cast("Any", None), choice, OnDemand())
    assert list(found) == [Place(*one) for one in expected]
