"""One served site for the tests that only read."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from support.orch_process import Orch
from support.service_site import EMPTY, Served, pack, record_run, save_steps, serve, write_points

from orchestrator.next_step import NextStep
from orchestrator.plan.observed import Outcome
from orchestrator.plan.spending_budget import SpendingBudget
from orchestrator.store.order_records import OrderRecord
from orchestrator.store.store import Store


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two runs, `one` with two attempts and curves, and `two` at work, without a bucket."""
    folder = tmp_path_factory.mktemp("site")
    orch = Orch(folder)
    bucket = folder / "bucket"
    with Store(orch.state / "orch.db") as store:
        record_run(store, "first", "one", f"file://{bucket}", attempts=2)
        record_run(store, "second", "two", ended=False)
        store.set_budget(SpendingBudget(project="", member="", dollars_per_month=1e6, largest_slice=256))
        store.set_budget(SpendingBudget(project="vision", member="ada", dollars_per_hour=40.0, at_limit="stop"))
        order = OrderRecord(
            uid="asked", project="default", cluster="first", verb="down", arguments="{}", plan="p", fingerprint="f",
            member="ann", state="open", created=time.time(),
        )  # fmt: skip
        store.end_order(
            store.open_order(order),
            Outcome(status=5, code="capacity", what="no", why="", next_step=NextStep(words="x")),
        )
    now = time.time()
    write_points(bucket, "one", 1, [(step, now + step, 5 - step / 10) for step in range(1, 31)])
    write_points(bucket, "one", 2, [(step, now + 40 + step, 5 - step / 10) for step in range(21, 41)])
    save_steps(bucket, "one", [20, 40])
    with serve(orch) as served:
        sent = served.ask(f"/v1/blobs/{EMPTY}", method="PUT", body=pack({}), content_type="application/octet-stream")
        assert sent.status == 201, sent.text
        yield served
