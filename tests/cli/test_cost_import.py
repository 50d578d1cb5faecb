"""`orch cost import`: a bill replaces the estimate, once, and the table shows both."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import orchestrator.documents
from orchestrator.plan.observed import IntentState
from orchestrator.slices import Candidate, OnDemand
from orchestrator.store.leases import Lease
from orchestrator.store.store import Store

Orch = Callable[..., Any]
SCHEMAS = Path(orchestrator.documents.__file__).parent / "data"
HOUR = 3600.0
CANDIDATE = Candidate(
    provider="aws", accelerator="c7i.large", hosts=1, chips_per_host=0, market=OnDemand(), region="us-east-1",
    zone="us-east-1a", price_per_hour=0.1,
)  # fmt: skip


@pytest.fixture
def token(home: Path) -> str:
    """A slice that has been billed for ten hours at $0.10."""
    with Store(home / "state" / "orch.db", lambda: time.time() - 10 * HOUR) as store:
        record = store.open_cluster("mine", "")
        lease = store.acquire("cluster:mine", "test")
        assert isinstance(lease, Lease)
        store.write_intent(lease, record, 1, "mine-1", CANDIDATE, f"{record.uid}-1", "{}")
        store.update_intent(lease, record, "mine-1", IntentState.ACCEPTED)
        store.release(lease)
        return f"{record.uid}-1"


@pytest.fixture
def write_bill() -> Callable[..., str]:
    """Writes bills of one time: another second would be another line."""
    return partial(_write_bill, time.time())


def _write_bill(now: float, path: Path, token: str, cost: str, currency: str = "USD", *, hours: int = 10) -> str:
    def moment(ago: float) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - ago * HOUR))

    row = {
        "bill_payer_account_id": "123456789012", "bill_billing_period_start_date": f"{moment(0)[:7]}-01T00:00:00.000Z",
        "line_item_usage_start_date": moment(hours), "line_item_usage_end_date": moment(0),
        "line_item_line_item_type": "Usage", "line_item_usage_type": "BoxUsage:c7i.large",
        "line_item_unblended_cost": cost, "line_item_currency_code": currency,
        "resource_tags": json.dumps({"user_orch_intent": token}),
    }  # fmt: skip
    with path.open("w", newline="") as text:
        writer = csv.DictWriter(text, fieldnames=list(row))
        writer.writeheader()
        writer.writerows([row, row | {"resource_tags": "", "line_item_unblended_cost": "2.5"}])
    return str(path)


def test_a_bill_replaces_the_estimate_once(
    orch: Orch, token: str, tmp_path: Path, write_bill: Callable[..., str]
) -> None:
    bill = write_bill(tmp_path / "bill.csv", token, "0.75")
    before = json.loads(orch("cost", "-o", "json").out)["total"]
    assert before["parts"] == {
        "machines": pytest.approx(1_000_000, rel=0.01), "disks": pytest.approx(54_790, rel=0.01),
        "addresses": pytest.approx(50_000, rel=0.01),
    }  # fmt: skip
    tried = orch("cost", "import", bill, "--dry-run")
    assert tried.status == 0 and "1 new, 0 changed; nothing was recorded" in tried.err
    assert json.loads(orch("cost", "-o", "json").out)["total"]["billed_microdollars"] == 0
    said = orch("cost", "import", bill)
    assert said.status == 0, said.err
    assert "1 line of slices on record; 1 new, 0 changed" in said.err
    assert "1 row without the label orch-intent ($2.50) are no one's cost here" in said.err
    assert said.out.splitlines()[1].split() == ["machines", "$1.00", "$0.75", "0.75", "1"]
    assert said.out == tried.out, "what it would change was compared before"
    assert "0 new, 0 changed" in orch("cost", "import", bill).err, "the same again"
    other = orch("cost", "import", write_bill(tmp_path / "other.csv", token, "0.5"), "--dry-run")
    assert "0 new, 1 changed; nothing was recorded" in other.err
    assert other.out.splitlines()[1].split() == ["machines", "$1.00", "$0.50", "0.50", "1"]
    after = json.loads(orch("cost", "-o", "json").out)
    jsonschema.validate(after, json.loads((SCHEMAS / "spending.schema.json").read_text()))
    assert after["total"]["billed_microdollars"] == 750_000
    assert after["total"]["parts"]["machines"] == pytest.approx(750_000, abs=1_000)
    by_slice = json.loads(orch("cost", "--by", "slice", "-o", "json").out)
    jsonschema.validate(by_slice, json.loads((SCHEMAS / "spending.schema.json").read_text()))
    assert [row["intents"] for row in by_slice["rows"]] == [[token]], "what the label of bills has"
    shown = orch("cost", "--by", "part,source")
    assert "machines" in shown.out and "bill" in shown.out and "BILLED" in shown.out
    assert "what is not billed is estimated" in shown.err
    document = json.loads(orch("cost", "import", bill, "-o", "json").out)
    jsonschema.validate(document, json.loads((SCHEMAS / "bills.schema.json").read_text()))


def test_what_is_refused_changes_nothing(
    orch: Orch, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_bill: Callable[..., str]
) -> None:
    orch("cost", "import", write_bill(tmp_path / "bill.csv", token, "0.75"))
    euros = orch("cost", "import", write_bill(tmp_path / "euros.csv", token, "0.75", "EUR"))
    assert euros.status == 2 and "'EUR'" in euros.err
    others = orch("cost", "import", write_bill(tmp_path / "others.csv", "elsewhere-1", "0.75", "EUR"))
    assert others.status == 2 and "'EUR'" in others.err
    shorter = write_bill(tmp_path / "shorter.csv", "elsewhere-1", "0.75")
    partial = orch("cost", "import", shorter)
    assert partial.status == 2 and "--replace" in partial.err and "lack 1 line that" in partial.err
    assert orch("cost", "import", str(tmp_path / "none.csv")).status == 3
    (tmp_path / "empty.csv").touch()
    empty = orch("cost", "import", str(tmp_path / "empty.csv"))
    assert empty.status == 2 and "empty.csv: no rows" in empty.err
    assert json.loads(orch("cost", "-o", "json").out)["total"]["billed_microdollars"] == 750_000
    assert "0 new, 1 changed" in orch("cost", "import", shorter, "--replace").err
    assert json.loads(orch("cost", "-o", "json").out)["total"]["billed_microdollars"] == 0
    monkeypatch.setenv("ORCH_SERVER", "https://orch.example")
    served = orch("cost", "import", shorter)
    assert served.status == 2 and "run it on the computer of the service" in served.err
