"""What is paid per hour now, and whose a run is: on the pages, in the API and on the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.orch_process import Orch
from support.postgres import postgres_server
from support.service_site import PRICE, record_run, serve

from orchestrator.acting import acting_as
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import IntentState
from orchestrator.store.leases import Lease
from orchestrator.store.store import Store


def close(store: Store, name: str) -> None:
    """Take a recorded cluster down."""
    cluster, lease = store.cluster(name), store.acquire(f"cluster:{name}", "a test")
    assert cluster is not None and isinstance(lease, Lease)
    for state in (IntentState.ENDING, IntentState.DELETED):
        store.update_intent(lease, cluster, f"{name}-1", state, EndCause.REQUESTED, "down")
    store.close_cluster(lease, cluster)
    store.release(lease)


@pytest.fixture(params=["sqlite", "postgresql"])
def orch(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Orch]:
    if request.param == "sqlite":
        orch = Orch(tmp_path)
        orch.state.mkdir(parents=True, exist_ok=True)
        yield orch
        return
    with postgres_server() as server:
        yield Orch(tmp_path, {"ORCH_STORE": server.new_store()})


def test_an_ended_run_shows_what_its_machines_still_cost_and_whose_it_is(orch: Orch) -> None:
    place = orch.more.get("ORCH_STORE") or orch.state / "orch.db"
    with acting_as("ann"), Store(place) as store:
        for name in ("kept", "other", "gone"):
            record_run(store, name, f"{name}-run")
        close(store, "gone")
    with serve(orch) as site:
        cookie = site.sign_in()

        def show(path: str) -> str:
            return re.sub(r"<[^>]+>|\s+", " ", site.ask(path, cookie=cookie, signed=False).text)

        kept = show("/runs/kept-run")
        assert f"${PRICE:.2f}/h now, until kept is taken down" in re.sub(" +", " ", kept)
        assert "nothing is billed for it now" not in kept and "nothing is billed for it now" in show("/runs/gone-run")
        assert f"${2 * PRICE:.2f}/h now" in re.sub(" +", " ", show("/clusters"))
        assert site.ask("/v1/runs/kept-run").document["dollars_per_hour"] == PRICE
        assert site.ask("/v1/runs/gone-run").document["dollars_per_hour"] == 0
        assert site.ask("/v1/clusters").document["price_per_hour"] == 2 * PRICE
        owners = {run["owner"] for run in site.ask("/v1/runs?owner=ann").document["runs"]}
        assert owners == {"ann"} and "ann" in kept
    assert f"in all ${2 * PRICE:.2f}/h now" in orch.ok("status")
    listed = json.loads(orch.ok("runs", "--owner", "ann", "-o", "json"))["runs"]
    assert {run["run_id"] for run in listed} == {"kept-run", "other-run", "gone-run"}
