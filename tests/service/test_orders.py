"""What members order over the API and the page: the plan first, then exactly that, once."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from jsonschema import Draft202012Validator
from support.orch_process import Orch, until
from support.service_site import CANDIDATE, Reply, Served, record_run, serve

from orchestrator.cli.drawing.engine_log import EngineLog
from orchestrator.engine.services import real_services
from orchestrator.engine.unattended.orders import carry_out_order
from orchestrator.paths import load_paths
from orchestrator.plan.observed import IntentState
from orchestrator.service.openapi import load_schema
from orchestrator.store.leases import Lease
from orchestrator.store.order_records import OrderRecord
from orchestrator.store.read import open_reader_at
from orchestrator.store.store import Store

TASK = "name: mine\nresources: {infra: 'local:1'}\nrun: echo $((40 + 2)) >> $HOME/../../answer\n"
FORM = "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def working(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with its engine."""
    with serve(Orch(tmp_path_factory.mktemp("working"))) as served:
        yield served


def post(site: Served, path: str, body: dict[str, Any], key: str = "", **more: str) -> Reply:
    headers: dict[str, Any] = {"content_type": "application/json"} | ({"idempotency_key": key} if key else {}) | more
    return site.ask(path, method="POST", body=json.dumps(body).encode(), **headers)


def plan(site: Served, body: dict[str, Any]) -> Any:
    answer = post(site, "/v1/plans", body)
    assert answer.status == 200, answer.text
    Draft202012Validator(load_schema("order-plan")).validate(answer.document)
    return answer.document


def order(site: Served, body: dict[str, Any], key: str = "") -> Any:
    """Order what the present plan shows, and return the order when it has ended."""
    answer = post(site, "/v1/orders", body | {"plan": plan(site, body)["plan"]}, key or uuid.uuid4().hex)
    assert answer.status == 202, answer.text
    return wait_for(site, answer)


def wait_for(site: Served, made: Reply) -> Any:
    place = made.headers["location"]
    until("the order ended", lambda: site.ask(place).document["state"] == "ended", 60)
    found = site.ask(place).document
    Draft202012Validator(load_schema("order")).validate(found)
    return found


def test_a_launch_and_its_end_are_ordered_by_their_plans(working: Served) -> None:
    body = {"verb": "launch", "task": TASK, "cluster": "mine"}
    seen = plan(working, body)
    assert "local:1" in seen["text"] and "To do it" not in seen["text"]
    assert seen["price_per_hour"] == 0
    assert working.ask("/v1/clusters").document["clusters"] == [], "a plan does nothing"
    key = uuid.uuid4().hex
    made = post(working, "/v1/orders", body | {"plan": seen["plan"]}, key)
    again = post(working, "/v1/orders", body | {"plan": seen["plan"]}, key)
    assert (made.status, again.status) == (202, 202), again.text
    assert again.headers["location"] == made.headers["location"]
    other = post(working, "/v1/orders", body | {"plan": seen["plan"], "down": True}, key)
    assert (other.status, other.document["code"]) == (422, "key-reused")
    ended = wait_for(working, made)
    assert ended["status"] == 0, ended
    until("the job ended", lambda: run_of(working, ended)["state"] == "ended")
    runs = working.ask("/v1/runs").document["runs"]
    assert [one["run_id"] for one in runs] == [ended["run_id"]], "one run, by the id that the order fixed"
    assert post(working, "/v1/orders", body | {"plan": seen["plan"]}, key).status == 202, "also after its end"
    old = post(working, "/v1/orders", body | {"plan": seen["plan"]}, uuid.uuid4().hex)
    assert (old.status, old.document["exit_status"]) == (412, 6)
    assert "the steps" in old.document["title"], old.document
    assert order(working, {"verb": "down", "cluster": "mine"})["what"] == "cluster 'mine' is deleted"
    assert working.ask("/v1/clusters").document["clusters"] == []


def test_a_launch_beyond_a_budget_is_refused_in_its_plan_and_its_order(working: Served) -> None:
    task = "name: dear\nresources: {infra: gcp/us-west4/us-west4-a, accelerators: v5e-8}\nrun: 'true'\n"
    body = {"verb": "launch", "task": task, "cluster": "dear"}
    working.orch.ok("budget", "set", "--per-month", "50")
    assert "budget: $50.00 of $50.00 left this month" in plan(working, body)["notes"]
    working.orch.ok("budget", "set", "--per-month", "5")
    seen = plan(working, body)
    assert seen["steps"]["refusal"]["code"] == "budget" and "Refused: [budget]" in seen["text"]
    made = post(working, "/v1/orders", body | {"plan": seen["plan"]}, uuid.uuid4().hex)
    assert (made.status, made.document["code"], made.document["exit_status"]) == (403, "budget", 14)
    assert "orch budget set --per-month N" in made.document["next_step"]
    working.orch.ok("budget", "remove")


def run_of(site: Served, ended: dict[str, Any]) -> Any:
    (found,) = [one for one in site.ask("/v1/queue").document["jobs"] if one["run_id"] == ended["run_id"]] or [
        {"state": "ended"}
    ]
    return found


def test_an_order_that_cannot_be_done_says_why(working: Served) -> None:
    answer = post(working, "/v1/plans", {"verb": "down", "cluster": "none"})
    assert (answer.status, answer.document["exit_status"]) == (404, 3)
    broken = post(working, "/v1/plans", {"verb": "launch", "task": "nam: x\nworkdir: ../secrets\n"})
    said = "\n".join(broken.document["lines"])
    assert broken.status == 400 and "task:1:1" in said and "task:2:1" in said and "path of a computer" in said


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"idempotency_key": "short"}, 400),
        ({"content_type": "text/plain"}, 400),
        ({"authorization": "Bearer orch_wrong"}, 401),
        ({"authorization": ""}, 401),
    ],
)
def test_a_request_without_what_it_needs_changes_nothing(site: Served, change: dict[str, str], status: int) -> None:
    body = {"verb": "down", "cluster": "first", "plan": plan(site, {"verb": "down", "cluster": "first"})["plan"]}
    before = events_of(site)
    headers: dict[str, Any] = {"content_type": "application/json", "idempotency_key": uuid.uuid4().hex} | change
    assert site.ask("/v1/orders", method="POST", body=json.dumps(body).encode(), **headers).status == status
    assert events_of(site) == before


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"verb": "reap", "cluster": "first"}', b'{"verb": "down", "cluster": "first", "user": "x"}',
     b'{"verb": "cancel", "cluster": "first", "job": 0}',
     b'{"verb": "exec", "cluster": "first", "command": "x", "hosts": []}',
     b'{"verb": "launch", "task": "' + b"x" * 2**20 + b'"}'],
)  # fmt: skip
def test_a_body_that_is_wrong_is_refused_in_words(site: Served, body: bytes) -> None:
    answer = site.ask("/v1/plans", method="POST", body=body, content_type="application/json")
    assert answer.status == 400, answer.text
    assert answer.document["exit_status"] == 2 and len(answer.document["title"]) < 300


def events_of(site: Served) -> object:
    return site.ask("/v1/events?limit=1000").document["events"]


def session_of(site: Served) -> str:
    return site.sign_in()


def fields_of(page: str) -> dict[str, str]:
    return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page))


@pytest.mark.parametrize(
    ("change", "headers"),
    [
        ({"_token": "0" * 64}, {}),
        ({"_token": ""}, {}),
        ({}, {"sec_fetch_site": "cross-site"}),
        ({}, {"sec_fetch_site": "same-site"}),
        ({}, {"sec_fetch_site": "none"}),
        ({}, {"sec_fetch_site": "", "origin": "http://evil.example"}),
    ],
)
def test_a_form_of_another_page_changes_nothing(site: Served, change: dict[str, str], headers: dict[str, str]) -> None:
    cookie = session_of(site)
    shown = site.ask("/order?verb=down&cluster=first", signed=False, cookie=cookie)
    fields = fields_of(shown.text) | change
    sent = {"sec_fetch_site": "same-origin", "content_type": FORM, "cookie": cookie} | headers
    before = events_of(site)
    answer = site.ask("/order", method="POST", signed=False, body=urlencode(fields).encode(), **sent)
    assert answer.status == 403, answer.text
    assert events_of(site) == before


def test_a_session_sends_forms_and_a_token_sends_json(site: Served) -> None:
    cookie = session_of(site)
    body = json.dumps({"verb": "down", "cluster": "first"}).encode()
    given = site.ask(
        "/v1/plans", method="POST", signed=False, body=body, cookie=cookie, content_type="application/json"
    )
    assert given.status == 403
    form = urlencode({"task": TASK}).encode()
    assert site.ask("/launch", method="POST", body=form, content_type=FORM).status == 403


def test_a_form_shows_the_present_plan_when_it_is_another_one(site: Served) -> None:
    cookie = session_of(site)
    shown = site.ask("/order?verb=down&cluster=first", signed=False, cookie=cookie)
    fields = fields_of(shown.text) | {"plan": "a.b.0.c.0"}
    sent = {"sec_fetch_site": "same-origin", "content_type": FORM, "cookie": cookie}
    answer = site.ask("/order", method="POST", signed=False, body=urlencode(fields).encode(), **sent)
    assert answer.status == 412 and "changed since" in answer.text
    assert fields_of(answer.text)["plan"] == fields_of(shown.text)["plan"]


def test_the_pause_after_a_request_makes_no_other_plan(site: Served) -> None:
    one_host, body = replace(CANDIDATE, accelerator="v5litepod-8", hosts=1), {"verb": "start", "cluster": "paused"}
    seen: list[Any] = []
    for sent in (60.0, -60.0):  # seconds from now: within the pause, and after it
        with Store(site.orch.state / "orch.db", lambda sent=sent: time.time() + sent) as store:
            cluster = store.cluster("paused") or record_run(store, "paused", "old", candidate=one_host)
            store.note_state(cluster, "stopped")
            lease = store.acquire("cluster:paused", "a test")
            assert isinstance(lease, Lease)
            store.update_intent(lease, cluster, "paused-1", IntentState.ACCEPTED)
            store.release(lease)
        seen += [plan(site, body), plan(site, body)]
    first = [one["steps"]["steps"][0] for one in seen]
    assert [step["do"] for step in first] == ["wait", "wait", "start_slice", "start_slice"]
    assert first[0]["at_most_seconds"] > first[1]["at_most_seconds"], "what is left of the pause is shown"
    assert len({one["plan"] for one in seen}) == 1


def test_an_engine_that_was_killed_after_it_queued_a_run_queues_it_once(tmp_path: Path) -> None:
    orch = Orch(tmp_path)
    arguments = json.dumps({"task": json.dumps({"name": "mine", "resources": {"infra": "local:1"}, "run": "true"})})
    given = OrderRecord(
        uid="one", project="default", cluster="mine", verb="launch", arguments=arguments, plan="p", fingerprint="f",
        member="ann", state="open", created=time.time(), run_id="mine-run",
    )  # fmt: skip
    with Store(orch.state / "orch.db") as store:
        store.open_order(given)
    orch.ok("serve", "--engine-only", "--until-idle")
    with Store(orch.state / "orch.db") as store:
        first = store.order("one")
        assert (first.state, first.status) == ("ended", 0), first
        (job,) = store.jobs(store.clusters()[0])
        assert (job.run_id, job.state, job.status) == ("mine-run", "ended", 0)
        store.open_order(OrderRecord(**{**vars_of(given), "uid": "again"}))
    orch.ok("serve", "--engine-only", "--until-idle")
    with Store(orch.state / "orch.db") as store:
        assert (store.order("again").status, len(store.jobs(store.clusters()[0]))) == (0, 1)
    orch.ok("down", "mine", "--force")


def vars_of(order: OrderRecord) -> dict[str, Any]:
    return {name: getattr(order, name) for name in OrderRecord.__dataclass_fields__}


def test_an_order_for_an_absent_cluster_ends_with_its_error(tmp_path: Path) -> None:
    orch = Orch(tmp_path)
    with Store(orch.state / "orch.db") as store:
        store.open_order(
            OrderRecord(
                uid="one",
                project="default",
                cluster="none",
                verb="stop",
                arguments="{}",
                plan="p",
                fingerprint="f",
                member="ann",
                state="open",
                created=time.time(),
            )
        )
    orch.ok("serve", "--engine-only", "--until-idle")
    with Store(orch.state / "orch.db") as store:
        ended = store.order("one")
    assert (ended.status, ended.code) == (3, "not-found") and "none" in ended.what


def test_a_late_order_is_not_about_another_cluster_of_the_same_name(tmp_path: Path) -> None:
    orch = Orch(tmp_path)
    with Store(orch.state / "orch.db") as store:
        old = record_run(store, "mine", "old", ended=False)
    with serve(orch) as served:
        seen = plan(served, {"verb": "down", "cluster": "mine"})
    with Store(orch.state / "orch.db") as store:
        lease = store.acquire("cluster:mine", "a test")
        assert isinstance(lease, Lease)
        store.close_cluster(lease, old)
        store.release(lease)
        record_run(store, "mine", "new", ended=False)
        late = OrderRecord(
            uid="late", project="default", cluster="mine", verb="down", arguments=json.dumps({"uid": old.uid}),
            plan="p", fingerprint="f", member="ann", state="open", created=time.time(),
        )  # fmt: skip
        narrator, services = EngineLog("mine", 0), real_services(load_paths())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORCH_HOME", str(tmp_path / "orch"))
        ended = carry_out_order(late, narrator, services)
    assert (ended.status, ended.what) == (3, "the cluster 'mine' of this order is deleted")
    with serve(orch) as served:
        now = plan(served, {"verb": "down", "cluster": "mine"})
        assert now["plan"].split(".")[0] != seen["plan"].split(".")[0], "another cluster is another plan"


def test_an_order_keeps_which_cluster_and_job_it_is_about(site: Served) -> None:
    kept = {}
    for verb in ("cancel", "down"):
        body = {"verb": verb, "cluster": "second"}
        made = post(site, "/v1/orders", body | {"plan": plan(site, body)["plan"]}, uuid.uuid4().hex)
        assert made.status == 202, made.text
        with open_reader_at(site.orch.state / "orch.db") as reader:
            kept[verb] = json.loads(reader.order(made.document["id"]).arguments)
            (cluster,) = [one for one in reader.clusters() if one.name == "second"]
    assert kept["cancel"]["job"] == 1
    assert kept["cancel"]["uid"] == kept["down"]["uid"] == cluster.uid
