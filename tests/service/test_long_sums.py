"""Sums as long as history: one at a time, in a separate process, while every other request is answered."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
from support.orch_process import Orch
from support.postgres import PASSWORD, postgres_server
from support.service_site import CANDIDATE, Reply, Served, record_run, serve

from orchestrator.documents.ledger import DIMENSIONS, spending_as_json, summarize_spending
from orchestrator.errors import OrchError
from orchestrator.service.long_sums import LONG_HISTORY, LongSums, Question
from orchestrator.store.read import Reader
from orchestrator.store.store import Store
from orchestrator.store.token_records import TokenRecord, digest_token

sys.path.append(str(Path(__file__).parents[2] / "scripts" / "bench"))
from many_records import record_runs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HEAVY = f"/v1/spend?by={','.join(DIMENSIONS)}"
LIGHT = "/v1/budgets"
RUNS = 1500


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    orch = Orch(tmp_path_factory.mktemp("long-sums"))
    orch.state.mkdir(parents=True)
    record_runs(orch.state / "orch.db", RUNS)
    with Store(orch.state / "orch.db") as store:
        record_run(store, "billed", "now", ended=False, candidate=replace(CANDIDATE, price_per_hour=3.6e6))
    with Reader(orch.state / "orch.db") as reader:
        assert reader.head().seq > LONG_HISTORY
    with serve(orch) as served:
        served.patience = 240.0
        yield served


def make_tokens(site: Served, *members: str) -> list[str]:
    words = [site.orch.ok("token", "create", name, "--member", name, "--role", "viewer") for name in members]
    return [word.split()[0] for word in words]


def ask(site: Served, path: str, token: str) -> tuple[float, Reply]:
    """Return the seconds of a request, and its answer."""
    began = time.monotonic()
    answer = site.ask(path, authorization=f"Bearer {token}")
    assert answer.status == 200, answer.text[:500]
    return time.monotonic() - began, answer


def test_others_are_answered_while_two_members_sum_everything(site: Served) -> None:
    ann, ben, cy = make_tokens(site, "ann", "ben", "cy")
    alone = ask(site, HEAVY, ann)[0]
    paths = [f"{HEAVY}&since={20 + number}d" for number in range(8)]  # none is asked twice
    waits: list[float] = []
    with ThreadPoolExecutor(8) as pool:
        heavy = [pool.submit(ask, site, path, (ann, ben)[number % 2]) for number, path in enumerate(paths)]
        time.sleep(alone / 4)
        while not any(one.done() for one in heavy):
            waits.append(ask(site, LIGHT, cy)[0])
            time.sleep(0.02)
        for one in heavy:
            assert len(one.result()[1].document["rows"]) > RUNS
    assert len(waits) >= 3 and median(waits) < alone / 10, (alone, waits)
    assert max(waits) < alone / 2, (alone, waits)


def test_askers_of_the_same_question_get_the_same_sum(site: Served) -> None:
    ann, ben = make_tokens(site, "dan", "eve")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask, site, HEAVY, ann)
        time.sleep(0.2)
        second = pool.submit(ask, site, HEAVY, ben)
        answers = [one.result()[1].body for one in (first, second)]
    assert answers[0] == answers[1], "the cost of a running cluster grows by $1 a millisecond"
    assert ask(site, HEAVY, ann)[1].body != answers[0], "later it is summed again"


def test_the_sum_of_a_process_is_that_of_the_ledger(site: Served) -> None:
    store, now = site.orch.state / "orch.db", time.time()
    question = Question(seconds=86_400.0, by=("day", "run"), project="", owner="")
    with Reader(store) as reader:
        table = summarize_spending(reader, now, since=now - 86_400.0, by=("day", "run"))
    assert json.loads(LongSums().sum_up(store, question, now)) == spending_as_json(table)


def test_a_member_of_one_project_sums_that_project_alone(site: Served) -> None:
    with Store(site.orch.state / "orch.db", project="audio") as store:
        record_run(store, "quiet", "quiet-run", ended=False)
        token = TokenRecord(
            digest=digest_token("orch_audio"), name="fay", member="fay", role="viewer", created=1.0, expires=1e11,
            project="audio",
        )  # fmt: skip
        store.add_token(token)
    rows = ask(site, f"{HEAVY}&scope=all", "orch_audio")[1].document["rows"]
    assert {row["key"]["cluster"] for row in rows} == {"audio/quiet"}


def test_a_database_is_summed_and_its_password_is_no_argument_of_the_process() -> None:
    seen: list[bytes] = []
    with postgres_server() as server, ThreadPoolExecutor(1) as pool:
        location, now = server.new_store(), time.time()
        with Store(location) as store:
            record_run(store, "mine", "run-of-server", ended=False)
        question = Question(seconds=None, by=("run",), project="", owner="")
        future = pool.submit(LongSums().sum_up, location, question, now + 3600)
        while not future.done():
            seen += list_arguments("orchestrator.service.long_sums")
        assert [row["key"]["run"] for row in json.loads(future.result())["rows"]] == ["run-of-server"]
    assert seen and not any(PASSWORD.encode() in line for line in seen)


def list_arguments(word: str) -> list[bytes]:
    """Return the arguments of each process that has a word among them."""
    found: list[bytes] = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(file.read_bytes())
    return [line for line in found if word.encode() in line]


def test_a_process_that_fails_is_an_error_and_the_next_sum_works(site: Served, tmp_path: Path) -> None:
    sums, question = LongSums(), Question(seconds=None, by=("run",), project="", owner="")
    broken = tmp_path / "orch.db"
    broken.write_bytes(b"no database")
    with pytest.raises(OrchError, match="cannot be summed"):
        sums.sum_up(broken, question, time.time())
    assert sums.sum_up(site.orch.state / "orch.db", question, time.time())


def test_a_sum_ends_at_its_deadline_and_the_next_has_its_turn(site: Served) -> None:
    sums, question = LongSums(deadline=0.01), Question(seconds=None, by=("run",), project="", owner="")
    for _ in range(2):
        with pytest.raises(OrchError, match=r"not summed within 0\.01 s"):
            sums.sum_up(site.orch.state / "orch.db", question, time.time())
    assert not list_arguments("orchestrator.service.long_sums"), "its process has ended"
