"""One pretend Google for a whole file, with a slice of four hosts that is up. Hosts are real sshd servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from google_defects_bench import SCENARIO, Bench

from orch_fronts.google.cloud import SimulatedGoogle
from orchestrator.simulator.rehearsal import SCENARIO_FILE


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("google")
    place = folder / "google"
    place.mkdir(mode=0o700)
    (place / SCENARIO_FILE).write_text(SCENARIO)
    with SimulatedGoogle(place) as google:
        yield Bench(folder, google)


@pytest.fixture(scope="module")
def four(bench: Bench) -> str:
    """A cluster: one v5litepod-16, so four hosts, up and idle."""
    bench.launch("four", "hostname")
    return "four"
