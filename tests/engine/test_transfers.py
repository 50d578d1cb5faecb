"""What a launch reads from other regions is priced before it is asked for, and large amounts are refused unasked."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import pytest
from support.s3 import s3_server

from orchestrator.catalog.buckets import BucketPlace
from orchestrator.cli.commands.run.pipeline import carry_out_pipeline
from orchestrator.cli.execution.act import PerformMode
from orchestrator.cli.execution.spending_consent import agree_to_costs
from orchestrator.cli.execution.transfer_consent import agree_to_transfers
from orchestrator.client.local_orders import LocalOrders
from orchestrator.client.local_plan import LocalPlan
from orchestrator.engine.operations.transfers import assess_download, is_large, list_launch_transfers
from orchestrator.engine.preparation.bucket_locations import FILE, save_bucket_location
from orchestrator.engine.preparation.commands import prepare_launch
from orchestrator.engine.preparation.prepared import PreparedCommand
from orchestrator.engine.unattended.pipeline import PipelineSpec
from orchestrator.errors import UserError
from orchestrator.paths import load_paths
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.service.plans import OrderPlan, PlanRequest, describe_difference, make_order_plan
from orchestrator.task.parse import parse_task

TASK = """\
resources: {infra: aws/us-west-2, accelerators: H100:8}
num_nodes: 2
file_mounts: {~/data: {source: s3://data/books, mode: COPY}}
run: x
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path / "orch"))


def know(region: str, size: int | None) -> PreparedCommand:
    """Return a launch whose data is in a bucket of this region, with this size."""
    save_bucket_location("s3://data", BucketPlace(region))
    file = load_paths().state / FILE
    sizes = {} if size is None else {"s3://data/books": size}
    ages = {uri: time.time() for uri in sizes}
    file.write_text(json.dumps({**json.loads(file.read_text()), "sizes": sizes, "measured": ages}))
    return prepare_launch(parse_task(TASK, file="t.yaml", env={}).only, cluster=None, after=TeardownPolicy.KEEP)


def test_data_that_every_host_copies_from_another_region_is_counted_for_each() -> None:
    (found,) = list_launch_transfers(know("us-east-1", 300 << 30))
    assert found.dollars == pytest.approx(2 * 300 * 0.02) and is_large([found])
    assert "from s3://data in us-east-1, by 2 hosts in us-west-2: 600 GiB, about $12.00" in str(found)
    assert "$0.02 per GiB, price of 2026-01-13" in str(found)


def test_what_is_free_or_not_known_is_never_0_dollars() -> None:
    assert list_launch_transfers(know("us-west-2", 300 << 30)) == ()
    (unmeasured,) = list_launch_transfers(know("us-east-1", None))
    assert unmeasured.dollars is None and "size not known, cost not known" in str(unmeasured)
    (unpriced,) = list_launch_transfers(know("sa-east-1", 300 << 30))
    assert unpriced.dollars is None and str(unpriced).endswith("price not known")
    assert is_large([unmeasured]) and is_large([unpriced])
    assert not is_large(list_launch_transfers(know("sa-east-1", 1 << 20))), "it costs cents wherever it is"


def test_a_large_transfer_is_not_begun_without_consent(capsys: pytest.CaptureFixture[str]) -> None:
    large = list_launch_transfers(know("us-east-1", 300 << 30))
    with pytest.raises(UserError, match=r"about \$12\.00") as caught:
        agree_to_transfers(large, agreed=False)
    assert caught.value.next_step == "add --yes to agree" and not capsys.readouterr().err
    agree_to_transfers(large, agreed=True)
    assert "about $12.00" in capsys.readouterr().err, "it is shown all the same"
    agree_to_transfers(list_launch_transfers(know("us-east-1", 1 << 30)), agreed=False)


def test_the_question_of_a_launch_has_the_transfers() -> None:
    ready = know("us-east-1", 1 << 30)
    with pytest.raises(UserError, match=r"/h .*; transfer .*about \$0\.04"):
        agree_to_costs(LocalOrders(), LocalPlan(ready), agreed=False)


def test_a_plan_of_a_service_has_the_transfers_and_is_another_one_when_they_cost_more() -> None:
    request = PlanRequest(verb="launch", task=TASK)

    def plan(gib: int) -> OrderPlan:
        know("us-east-1", gib << 30)
        return make_order_plan(request, "")

    small, large, larger = plan(1), plan(300), plan(400)
    assert "about $0.04" in small.transfers[0] and not small.asks_transfers
    assert "about $12.00" in large.transfers[0] and large.asks_transfers
    assert describe_difference(large.digest, larger).startswith("the transfers changed since")
    assert describe_difference(larger.digest, large) == "" == describe_difference(large.digest, small)


def test_the_transfers_of_each_stage_of_a_pipeline_need_consent() -> None:
    know("us-east-1", 300 << 30)
    tasks = parse_task(f"name: p\n---\n{TASK}\n---\n{TASK}", file="t.yaml", env={}).tasks
    with pytest.raises(UserError, match=r"/h .*; transfer .*about \$12\.00"):
        carry_out_pipeline(PipelineSpec(name="p", tasks=tasks), PerformMode())


def test_a_download_leaves_the_cloud_of_its_bucket() -> None:
    save_bucket_location("s3://runs", BucketPlace("us-east-1"))
    (found,) = assess_download("s3://runs/a", 200 << 30)
    assert found.dollars == pytest.approx(18) and "from s3://runs to this computer" in str(found)
    assert assess_download("s3://runs/a", 1 << 20) == assess_download("file:///runs", 200 << 30) == ()


def test_the_first_order_on_a_bucket_has_its_transfers_and_the_same_plan_when_it_is_ordered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with s3_server() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        for name in ("first", "runs"):
            server.create_bucket(name)
        server.client.put_object(Bucket="first", Key="books/a", Body=b"x" * 100_000)
        task = TASK.replace("s3://data", "s3://first") + "checkpoint: {bucket: s3://runs}\n"
        monkeypatch.setattr("orchestrator.engine.operations.transfers.CONSENT_FROM", 1e-9)
        request = PlanRequest(verb="launch", task=task)
        plan = make_order_plan(request, "")
        (line,) = plan.transfers
        assert "from s3://first in us-east-1, by 2 hosts in us-west-2: 195 KiB" in line and plan.asks_transfers
        assert describe_difference(plan.digest, make_order_plan(request, "")) == ""


def test_a_plan_does_not_wait_for_a_bucket_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "x")
        monkeypatch.setattr("orchestrator.service.plans.BUCKET_SECONDS", 0.3)
        began = time.monotonic()
        assert make_order_plan(PlanRequest(verb="launch", task=TASK), "").transfers == ()
        assert time.monotonic() < began + 5
