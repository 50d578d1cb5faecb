"""Members of one project: they see and change nothing of another one, by whichever route."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from service_ci import Server, serve_ci
from support.service_site import record_run, save_steps, write_points

from orchestrator.cli.drawing.engine_log import EngineLog
from orchestrator.cloud_access import CloudAccess
from orchestrator.engine.services import real_services
from orchestrator.engine.unattended.orders import carry_out_order
from orchestrator.next_step import NextStep
from orchestrator.paths import load_paths
from orchestrator.plan.observed import Outcome
from orchestrator.plan.spending_budget import SpendingBudget
from orchestrator.service.event_stream import EventHub
from orchestrator.service.route import Medium
from orchestrator.service.routes import ROUTES
from orchestrator.service.site import Site
from orchestrator.store.location import Location
from orchestrator.store.order_records import OrderRecord
from orchestrator.store.read import open_reader_at
from orchestrator.store.store import Store
from orchestrator.store.token_records import TokenRecord, digest_token

CANARY = "crimson"  # is in everything of the other project
GET = [route for route in ROUTES if route.method == "GET" and route.handler is not None]
PROJECTS = ("default", "vision", "audio")


def fill(location: Location, bucket: Path) -> None:
    """Record a run, an order and a budget in each project; the names of one have the canary."""
    for project in PROJECTS:
        lead = CANARY if project == "audio" else project
        with Store(location, project=project) as store:
            record_run(store, f"{lead}-c", f"{lead}-run", f"file://{bucket}", ended=False)
            order = OrderRecord(
                uid=f"{lead}-order", project=project, cluster=f"{lead}-c", verb="down", arguments="{}", plan="p",
                fingerprint="f", member=f"{lead}-ann", state="open", created=2.0,
            )  # fmt: skip
            store.end_order(
                store.open_order(order),
                Outcome(status=5, code="capacity", what="no", why="", next_step=NextStep(words="x")),
            )
            store.set_budget(SpendingBudget(project=project, member=f"{lead}-ann", dollars_per_month=7.0))
    with Store(location) as store:
        store.set_budget(SpendingBudget(project="", member="", dollars_per_month=1e6))
        for name, project in (("vision", "vision"), ("default", "default"), ("all", "")):
            for role in ("member", "owner"):
                digest, about = digest_token(f"orch_{name}_{role}"), f"{name}-{role}"
                token = TokenRecord(
                    digest=digest, name=about, member=about, role=role, created=1.0, expires=1e11, project=project
                )
                store.add_token(token)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("projects")


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[Server]:
    database = home / "state" / "orch.db"
    database.parent.mkdir()
    fill(database, home / "bucket")
    for lead in (CANARY, "vision"):
        write_points(home / "bucket", f"{lead}-run", 1, [(step, 1e9 + step, 1.0) for step in range(1, 9)])
        save_steps(home / "bucket", f"{lead}-run", [4])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORCH_HOME", str(home))
        with serve_ci(database, home) as served:
            yield served


def get(server: Server, who: str, path: str) -> tuple[int, str]:
    status, found = server.ask(path, authorization=f"Bearer orch_{who}")
    return status, json.dumps(found) if isinstance(found, dict) else found.decode()


def fill_path(path: str, lead: str) -> str:
    values = {"run_id": f"{lead}-run", "name": f"{lead}-c", "uid": f"{lead}-order", "digest": "0" * 64}
    values["project"] = "audio" if lead == CANARY else lead
    return path.format(**values)


@pytest.mark.parametrize("who", ["vision_owner", "default_owner"])
@pytest.mark.parametrize("route", GET, ids=lambda route: route.name)
def test_no_route_shows_anything_of_another_project(server: Server, route: Any, who: str) -> None:
    paths = {route.path} if "{" not in route.path else {fill_path(route.path, CANARY)}
    queries = {""} | {f"?{one.name}=audio" for one in route.parameters if one.name == "project"}
    queries |= {f"?{one.name}={CANARY}-c" for one in route.parameters if one.name == "cluster"}
    queries |= {f"?run={CANARY}-run&run=vision-run" for one in route.parameters if one.name == "run"}
    for path in paths:
        for query in queries:
            status, text = get(server, who, f"{path}{query}")
            assert status in (200, 400, 404), (path, query, status)
            assert status != 200 or "{" not in route.path or route.name in ("tree",), f"{path} exists for them"
            for word in ("c", "run", "order"):  # an answer may repeat what was requested
                text = text.replace(f"{CANARY}-{word}", "") if f"{CANARY}-{word}" in f"{path}{query}" else text
            assert CANARY not in text, (path, query)
            assert "1,000,000" not in text or route.medium is Medium.TEXT, "the budget of all"


def test_what_is_of_the_project_is_shown_as_to_everyone(server: Server) -> None:
    for path in ("/v1/clusters", "/v1/runs", "/v1/queue", "/v1/orders", "/v1/events?limit=1000", "/", "/clusters"):
        status, text = get(server, "vision_member", path)
        assert status == 200 and "vision" in text, path
        everything = get(server, "all_member", path)[1]
        assert CANARY in everything, path
    assert get(server, "vision_member", "/v1/clusters/vision-c")[0] == 200
    assert get(server, "vision_member", "/v1/runs/vision-run/curves")[0] == 200
    assert '"vision-order"' in get(server, "vision_member", "/v1/orders/vision-order")[1]
    assert json.loads(get(server, "vision_member", "/v1/me")[1])["project"] == "vision"
    assert get(server, "default_member", "/v1/clusters/default-c")[0] == 200


def read_metrics(server: Server, who: str) -> dict[str, float]:
    status, text = get(server, who, "/metrics")
    assert status == 200
    return {name: float(value) for name, value in re.findall(r"^(\S+) (\S+)$", text, re.M)}


def test_the_numbers_of_a_project_do_not_grow_with_the_events_of_others(server: Server, home: Path) -> None:
    seen, everything = read_metrics(server, "vision_member"), read_metrics(server, "all_member")
    listed = json.loads(get(server, "vision_member", "/v1/events?limit=1000")[1])["events"]
    assert seen["orch_events_total"] == len(listed) < everything["orch_events_total"]
    with Store(home / "state" / "orch.db", project="audio") as store:
        record_run(store, f"{CANARY}-metrics", f"{CANARY}-metrics-run", ended=True)
    assert read_metrics(server, "vision_member") == seen
    assert read_metrics(server, "all_member")["orch_events_total"] > everything["orch_events_total"]
    with Store(home / "state" / "orch.db", project="vision") as store:
        store.note_state(store.open_cluster("vision-metrics", "x"), "ready")
    assert read_metrics(server, "vision_member")["orch_events_total"] > seen["orch_events_total"]


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/clusters", "/v1/spend", "/", "/clusters", "/spend"])
def test_a_filter_that_names_nothing_on_record_is_refused(server: Server, path: str) -> None:
    for query, near in (("project=visio", "vision"), ("owner=nosuch", "clusters")):
        status, text = get(server, "all_member", f"{path}?{query}")
        assert status == 400 and "is on record" in text and near in text, (path, query)
        status, text = get(server, "vision_member", f"{path}?{query}")
        assert status == 400 and CANARY not in text
    for query in ("project=vision", "project=default", "owner=all-member", "owner=", "project="):
        assert get(server, "all_member", f"{path}?{query}")[0] == 200, query
    assert get(server, "vision_member", f"{path}?project=audio")[0] == 400, "it does not exist for them"


def test_a_member_of_all_projects_names_the_project(server: Server) -> None:
    assert get(server, "all_member", "/v1/clusters/vision-c")[0] == 404
    assert get(server, "all_member", "/v1/clusters/vision-c?project=vision")[0] == 200
    assert json.loads(get(server, "all_member", "/v1/me?project=vision")[1])["project"] == "vision"


def post(server: Server, who: str, path: str, **body: Any) -> tuple[int, Any]:
    signed = {"authorization": f"Bearer orch_{who}", "content_type": "application/json", "idempotency_key": "k" * 12}
    return server.ask(path, "POST", json.dumps(body).encode(), **signed)


def test_orders_are_of_the_project_of_the_request_or_of_the_token(server: Server, home: Path) -> None:
    database = home / "state" / "orch.db"
    for project in ("vision", "audio"):
        with Store(database, project=project) as store:
            store.open_cluster("same", "")
    request: dict[str, Any] = {"verb": "down", "cluster": "same"}
    status, plan = post(server, "vision_owner", "/v1/plans", **request)
    assert (status, plan["project"]) == (200, "vision"), plan
    status, refused = post(server, "vision_owner", "/v1/plans", project="audio", **request)
    assert status == 403 and "you are in vision" in refused["detail"]
    status, refused = post(server, "vision_owner", "/v1/orders", project="audio", plan=plan["plan"], **request)
    assert status == 403
    status, other = post(server, "all_owner", "/v1/plans", project="audio", **request)
    assert (status, other["project"]) == (200, "audio")
    status, _ = post(server, "all_owner", "/v1/orders", project="audio", plan=plan["plan"], **request)
    assert status == 412, "the plan that was shown is of another project"
    assert post(server, "all_owner", "/v1/plans", **request)[0] == 404, "the server's own project has none"
    status, order = post(server, "all_owner", "/v1/orders", project="audio", plan=other["plan"], **request)
    assert (status, order["project"]) == (202, "audio"), order
    assert post(server, "all_owner", "/v1/plans", project="No!", **request)[0] == 400
    with open_reader_at(database) as reader:
        (made,) = [one for one in reader.newest_orders(10) if one.state == "open"]
    assert (made.project, made.cluster) == ("audio", "same")


def test_a_refusal_suggests_no_name_of_another_project(server: Server) -> None:
    for verb in ("down", "stop", "start", "cancel", "resume"):
        for name in (f"{CANARY}-c", f"{CANARY}-d"):
            status, refused = post(server, "vision_owner", "/v1/plans", verb=verb, cluster=name)
            text = json.dumps(refused).replace(name, "")
            assert status == 404 and CANARY not in text and "audio" not in text, (verb, refused)
    status, refused = post(server, "vision_owner", "/v1/plans", verb="resume", cluster="x", run=f"{CANARY}-ru")
    assert status == 404 and "audio" not in json.dumps(refused) and f"{CANARY}-run" not in json.dumps(refused)


PLACES = ["records", "clusters?scope=all", "runs?scope=all", "queue?scope=all&ended=yes", "events/newest?scope=all",
          "spend?scope=all&since=all&by=cluster", "capacity"]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_documents_of_a_member_of_one_project_have_nothing_of_another(server: Server, place: str) -> None:
    status, text = get(server, "vision_member", f"/v1/{place}")
    assert status == 200 and CANARY not in text
    assert CANARY in get(server, "all_member", f"/v1/{place}")[1] or place == "capacity", "another one sees it"


def test_the_stream_sends_events_of_the_project_alone(home: Path, server: Server) -> None:
    hub = EventHub(site=Site(location=home / "state" / "orch.db", project="default", access=CloudAccess()))

    async def read(project: str) -> str:
        text = ""
        async for message in hub.listen(0, project):
            text += message.decode()
            if b"data: " in message:
                break
        hub.close()
        return text

    for project, expected in (("vision", {"vision"}), ("default", {"default"}), ("", {"", *PROJECTS})):
        text = asyncio.run(read(project))
        names = [json.loads(one)["cluster"] for one in re.findall(r"data: (.*)", text)]
        assert names
        assert {name.partition("/")[0] if "/" in name else "default" if name else "" for name in names} <= expected


def test_an_engine_queues_a_run_in_the_project_of_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine works in the default project, and drives the jobs of all."""
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    database = tmp_path / "state" / "orch.db"
    arguments = json.dumps({"task": json.dumps({"name": "mine", "resources": {"infra": "local:1"}, "run": "true"})})

    def carry_out(project: str) -> str:
        order = OrderRecord(
            uid=project, project=project, cluster="mine", verb="launch", arguments=arguments, plan="p", fingerprint="f",
            member="ann", state="open", created=time.time(), run_id=f"{project}-run",
        )  # fmt: skip
        return carry_out_order(order, EngineLog("mine", 0), real_services(load_paths())).what

    for project in ("vision", "audio"):
        assert "is queued on 'mine'" in carry_out(project)
    assert "is queued on 'mine'" in carry_out("vision"), "the same order again is the same run"
    with open_reader_at(database, "vision") as reader:
        jobs = [(one.project, [job.run_id for job in reader.jobs(one)]) for one in reader.clusters()]
        assert sorted(jobs) == [("audio", ["audio-run"]), ("vision", ["vision-run"])]
        assert reader.find_run("vision-run") is not None and reader.find_run("audio-run") is None


def test_a_plan_is_compared_with_the_budgets_of_its_project(server: Server, home: Path) -> None:
    task = "name: dear\nresources: {infra: gcp/us-west4/us-west4-a, accelerators: v5e-8}\nrun: 'true'\n"
    with Store(home / "state" / "orch.db") as store:
        store.set_budget(SpendingBudget(project="vision", member="", dollars_per_month=1.0))
    codes: dict[str, str | None] = {}
    digests: set[str] = set()
    for project in ("vision", "audio"):
        status, plan = post(server, "all_owner", "/v1/plans", verb="launch", task=task, project=project)
        assert status == 200, plan
        codes[project] = (plan["steps"].get("refusal") or {}).get("code")
        digests.add(plan["plan"].partition(".")[0])
    assert codes["vision"] == "budget" and codes["audio"] != "budget"
    assert len(digests) == 2, "a plan of one project is none of another, whose cluster has the same name"
    status, plan = post(server, "vision_member", "/v1/plans", verb="launch", task=task)
    assert plan["steps"]["refusal"]["code"] == "budget", "a member of the project need not name it"
