"""A reader that is limited to a project sees nothing of another one, and no table without a rule, on both databases."""

from __future__ import annotations

import pytest

from orchestrator.documents.cluster_rows import list_cluster_rows
from orchestrator.documents.queue import list_queue
from orchestrator.errors import UserError
from orchestrator.plan.charges import BILLED_PARTS
from orchestrator.plan.spending_budget import SpendingBudget
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.slices import Candidate, OnDemand
from orchestrator.store.audited import KEYS, TABLES_NOT_AUDITED
from orchestrator.store.bill_records import BillRecord, BlockRecord
from orchestrator.store.leases import Lease
from orchestrator.store.location import Location
from orchestrator.store.order_records import OrderRecord
from orchestrator.store.project_limit import limit_query
from orchestrator.store.read import open_reader_at
from orchestrator.store.records import NewJob
from orchestrator.store.store import Store
from orchestrator.store.token_records import TokenRecord

CANDIDATE = Candidate(provider="gcp", accelerator="v5e-8", hosts=1, chips_per_host=8, market=OnDemand())
SEEN = {
    "clusters", "intents", "jobs", "orders", "budgets", "events", "meta", "leases", "bills", "blocks", "predictions",
}  # fmt: skip


@pytest.fixture
def filled(location: Location) -> Location:
    for project in ("default", "vision", "audio"):
        lead = "crimson" if project == "audio" else project
        with Store(location, project=project) as store:
            cluster = store.open_cluster(f"{lead}-c", lead)
            lease = store.acquire(f"cluster:{cluster.qualified_name}", lead)
            assert isinstance(lease, Lease)
            job = NewJob(
                kind="launch", run_id=f"{lead}-run", digest="d", task="", bucket="", ranks=None,
                after_end=TeardownPolicy.KEEP,
            )  # fmt: skip
            opened = store.open_job(cluster, job)
            assert isinstance(store.acquire(f"watch:{cluster.uid}/{opened.id}", lead), Lease)
            store.write_intent(lease, cluster, 1, f"{lead}-1", CANDIDATE, lead, lead)
            order = OrderRecord(
                uid=lead, project=project, cluster=f"{lead}-c", verb="down", arguments="{}", plan="p", fingerprint="f",
                member=lead, state="open", created=2.0,
            )  # fmt: skip
            store.open_order(order)
            store.set_budget(SpendingBudget(project=project, member=lead, dollars_per_month=7.0))
            token = TokenRecord(digest=lead, name=lead, member=lead, role="viewer", created=1.0, expires=1e11)
            store.add_token(token)
            store.record_prediction(f"{lead}-run", '{"machines": {}}')
            block = BlockRecord(
                block_id=lead, provider="aws", region="us-east-1", machine="p5.48xlarge", count=1, begin=1.0, until=2.0,
                microdollars=1, project=project, member=lead,
            )  # fmt: skip
            store.record_block(block)
    with Store(location) as store:
        bills = [
            BillRecord(
                source="gcp", account=intent.name, month="2026-11", token=intent.token, part=BILLED_PARTS[0],
                begin=1.0, until=2.0, microdollars=1,
            )
            for _, intent in store.all_intents()
        ]  # fmt: skip
        store.import_bills(bills, {(one.source, one.account, one.month) for one in bills})
        store.set_budget(SpendingBudget(project="", member="", dollars_per_month=1e6))
    return location


@pytest.mark.parametrize("project", ["vision", "default"])
def test_a_limited_reader_sees_its_project_alone(filled: Location, project: str) -> None:
    with open_reader_at(filled, project, project) as reader:
        for table in (*KEYS, *TABLES_NOT_AUDITED):
            rows = list(reader._rows(f"SELECT * FROM {table}"))
            assert bool(rows) == (table in SEEN), table
            assert table == "meta" or "crimson" not in str(rows), table
        assert [one.name for one in reader.clusters()] == [f"{project}-c"]
        assert reader.newest_runs(limit=9) == [f"{project}-run"]
        assert [one.project for one in reader.budgets()] == [project]
        events = reader.events(None)
        assert len({one.cluster for one in events if one.cluster}) == 1
        assert sorted(one.kind for one in events if not one.cluster) == ["bill", "block", "prediction"], "its money"
        assert "crimson" not in str(events)
        sent = list_cluster_rows(reader, 0.0, "")["tables"]
        assert len(sent["clusters"]["rows"]) == 1 and "crimson" not in str(sent)
        assert reader.last_actors("cluster", ["audio/crimson-c"]) == {}
        assert [one.driven_by.partition(" ")[0] for one in list_queue(reader).jobs] == ["process"], "that has the lease"
        assert reader.find_hash(1) and reader.only_project == project, "hashes say nothing, and chain the copies"
    with open_reader_at(filled, project) as reader:
        assert len(reader.clusters()) == 3, "another reader sees everything"


def test_only_what_can_be_limited_is_read() -> None:
    for wrong in ("PRAGMA quick_check(1)", "WITH clusters AS (SELECT 1) SELECT * FROM clusters", "DELETE FROM jobs"):
        with pytest.raises(ValueError, match="not a query that can be limited"):
            limit_query(wrong, "vision", "main.")
    with pytest.raises(UserError):
        limit_query("SELECT * FROM clusters", "x' OR '1'='1", "")
