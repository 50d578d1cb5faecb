"""No member keeps the others from their plans: a request is counted first, then computed for some seconds, alone."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest
from support.orch_process import Orch
from support.service_site import Reply, Served, serve

from orchestrator.computing_limit import check_computing
from orchestrator.service import planners
from orchestrator.service.planners import MOST_OF_MEMBER, BusyPlannerError, Planners
from orchestrator.task.yaml_reader import LARGEST_BYTES

PLAIN = "run: echo hello\nresources: {infra: 'local:1'}\n"
# Each choice is looked for in the tables: some 20 s of a processor.
COSTLY = "run: a\nresources:\n  any_of:\n" + "".join(
    f"  - {{infra: aws, cpus: 2+, disk_size: {100 + number}}}\n" for number in range(5000)
)


pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(Orch(tmp_path_factory.mktemp("planners"))) as served:
        served.patience = 120.0  # seconds of a processor are longer on a computer that works
        ask_plan(served, PLAIN)
        yield served


def ask_plan(site: Served, task: str, token: str = "") -> Reply:
    body = json.dumps({"verb": "launch", "task": task, "cluster": "mine"}).encode()
    bearer = f"Bearer {token or site.token}"
    return site.ask("/v1/plans", method="POST", body=body, content_type="application/json", authorization=bearer)


def read_processor_time(site: Served) -> float:
    """Return the seconds of a processor that the service has used."""
    fields = Path(f"/proc/{site.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("task", ["---\n" * 4000, "--- {run: a}\n" * 1300, f"run: {'ä' * (LARGEST_BYTES // 2)}\n"])
def test_too_many_documents_and_bytes_are_refused_before_anything_is_computed(site: Served, task: str) -> None:
    began = read_processor_time(site)
    answer = ask_plan(site, task)
    assert answer.status == 400 and read_processor_time(site) - began < 1.0, answer.text
    assert "more than 20 documents" in answer.text or "larger than 256 KiB" in answer.text


def test_a_plan_that_takes_too_long_ends_with_the_reason(site: Served) -> None:
    began = read_processor_time(site)
    answer = ask_plan(site, COSTLY)
    assert read_processor_time(site) - began < 7.0
    assert (answer.status, answer.document["code"]) == (503, "too-much-computing"), answer.text[:500]
    assert "more than 5 s of a processor" in answer.document["title"]
    assert ask_plan(site, PLAIN).status == 200, "the planner is free again"


def test_a_page_shows_the_form_again_with_the_reason(site: Served) -> None:
    page = site.send_form("/launch", site.sign_in(), task=COSTLY, cluster="mine")
    assert page.status == 503 and "more than 5 s of a processor" in page.text


def test_a_member_with_costly_plans_leaves_the_others_a_planner(site: Served) -> None:
    token = site.orch.ok("token", "create", "ben", "--member", "ben", "--role", "member").strip()
    with ThreadPoolExecutor(3) as pool:
        costly = [pool.submit(ask_plan, site, COSTLY) for _ in range(3)]
        time.sleep(1.0)
        answer = ask_plan(site, "run: a\nresources: {infra: aws, accelerators: 'H100:8'}\n", token)
        ended = sum(one.done() for one in costly)
    assert answer.status == 200, answer.text
    assert ended <= 1, "one planner was free all the time"


def test_a_members_requests_are_computed_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planners, "COMPUTING_SECONDS", 30.0)
    at_work: list[str] = []
    most: list[int] = []

    def compute(member: str) -> None:
        at_work.append(member)
        most.append(at_work.count(member))
        time.sleep(0.05)
        at_work.remove(member)
        check_computing()

    async def ask_all() -> int:
        service, refused = Planners(), 0

        async def ask(member: str) -> None:
            nonlocal refused
            try:
                await service.run(member, lambda: compute(member))
            except BusyPlannerError:
                refused += 1

        async with anyio.create_task_group() as group:
            for number in range(3 * (MOST_OF_MEMBER + 1)):
                group.start_soon(ask, ("ann", "ben", "cy")[number % 3])
        await service.run("ann", lambda: compute("ann"))  # who was refused may ask again
        return refused

    assert anyio.run(ask_all) == 3
    assert set(most) == {1} and len(most) == 3 * MOST_OF_MEMBER + 1
