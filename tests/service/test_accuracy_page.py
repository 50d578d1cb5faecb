"""What was estimated for runs beside what was measured, on its page and on a run's page; for members of one project."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from service_ci import Server, serve_ci
from support.service_site import CANDIDATE, OUTCOMES, PRICE, record_run, write_points

from orchestrator.acting import acting_as
from orchestrator.engine.training.kept_speeds import load_speeds, read_project_speeds
from orchestrator.store.store import Store
from orchestrator.store.token_records import TokenRecord, digest_token

HOURS = 2.0
ESTIMATE = {
    "machines": {
        "v5litepod-16": {
            "chip": "v5e",
            "settings": "dtype=bf16",
            "flops_per_token": 6e9,
            "tokens_per_s": {"low": 4000.0, "typical": 5000.0, "high": 6000.0},
            "seconds": {"low": 3600.0, "typical": 5400.0, "high": 10_800.0},
            "dollars": {"low": 1.0, "typical": 2.0, "high": 3.0},
        }
    }
}
TOKENS = {"all": "", "vision": "vision"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """In two projects a run that has ended after two hours; in one also a run at work, and one without an estimate."""
    home = tmp_path_factory.mktemp("accuracy")
    database, begun = home / "state" / "orch.db", time.time() - HOURS * 3600
    database.parent.mkdir()
    uri = f"file://{home / 'bucket'}"
    for project in ("vision", "audio"):
        with Store(database, lambda: begun, project=project) as store:
            cluster = record_run(store, f"{project}-c", f"{project}-run", uri, ended=False)
            store.record_prediction(f"{project}-run", json.dumps(ESTIMATE))
        with Store(database, project=project) as store:
            store.record_outcome(cluster, 1, OUTCOMES[0])
        write_points(home / "bucket", f"{project}-run", 1, [(step, begun + step, 2.0) for step in range(1, 9)])
    with Store(database, lambda: begun, project="vision") as store:
        record_run(store, "working", "at-work", uri, ended=False)
        record_run(store, "plain", "no-price", ended=False, candidate=replace(CANDIDATE, price_per_hour=None))
        store.record_prediction("at-work", json.dumps(ESTIMATE))
        for name, project in TOKENS.items():
            token = TokenRecord(
                digest=digest_token(f"orch_{name}"), name=name, member=name, role="viewer", created=1.0, expires=1e11,
                project=project,
            )  # fmt: skip
            store.add_token(token)
    write_points(home / "bucket", "at-work", 1, [(1, time.time(), 2.0)], eta_s=3600.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORCH_HOME", str(home))
        with serve_ci(database, home) as served:
            yield served


def read(server: Server, who: str, path: str) -> str:
    status, page = server.ask(path, authorization=f"Bearer orch_{who}")
    assert status == 200, page
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.decode()))


def test_the_page_judges_each_quantity_as_the_command_line_does(server: Server) -> None:
    shown = read(server, "all", "/accuracy?project=vision")
    assert "2 of 3 (67 %) within what was estimated" in shown
    assert "vision-run v5litepod-16 ● within: 5,000 estimated 4,000 to 6,000" in shown
    assert "● within: 2 h estimated 1 h to 3 h" in shown
    assert f"✖ not within: ${HOURS * PRICE:.2f} estimated $1.00 to $3.00" in shown
    assert "at-work" not in shown, "it has not ended"


def test_the_page_keeps_the_speeds_for_the_plans_of_the_service(server: Server) -> None:
    read(server, "all", "/accuracy")
    assert {(one.run_id, one.ratio) for one in load_speeds()} == {("vision-run", 1.0), ("audio-run", 1.0)}
    for project in ("vision", "audio"):
        with acting_as("anyone"):
            assert [one.run_id for one in read_project_speeds(project)] == [f"{project}-run"]


def test_members_of_one_project_see_the_runs_of_that_alone(server: Server) -> None:
    assert "audio-run" in read(server, "all", "/accuracy") and "vision-run" in read(server, "all", "/accuracy")
    own = read(server, "vision", "/accuracy")
    assert "vision-run" in own and "audio" not in own
    assert "audio" not in read(server, "vision", "/accuracy?project=audio")
    assert "No run has ended for which an estimate was recorded" in read(server, "vision", "/accuracy?owner=unheard-of")


def test_a_run_at_work_shows_what_remains_beside_its_plan(server: Server) -> None:
    shown = read(server, "all", "/runs/at-work")
    assert re.search(r"Time of machines 2 h (60 min|1 h|59 min) (3 h|2 h 59 min) 1 h to 3 h", shown), shown
    spent = re.search(r"Cost of machines \$([\d.]+) \$([\d.]+) \$([\d.]+) \$1.00 to \$3.00", shown)
    assert spent is not None, shown
    so_far, remaining, end = map(float, spent.groups())
    assert remaining == pytest.approx(PRICE, abs=0.05) and end == pytest.approx(so_far + remaining, abs=0.02)
    assert "Tokens/s 5,000 4,000 to 6,000" in shown


def test_what_is_not_known_of_a_run_is_said(server: Server) -> None:
    shown = read(server, "all", "/runs/no-price")
    assert "Time of machines 2 h not known not known not known" in shown
    assert "Cost of machines not known not known not known not known" in shown
    assert "Tokens/s not known not known" in shown
    ended = read(server, "all", "/runs/vision-run")
    assert "Time of machines 2 h 1 h to 3 h" in ended and "Remaining" not in ended


def test_each_page_says_which_cost_it_shows(server: Server) -> None:
    for path in ("/", "/runs/vision-run", "/compare?run=vision-run"):
        shown = read(server, "all", path)
        assert "estimates so far: the machines alone, by list prices and spot prices seen" in shown, path
    assert "The ledger: by list prices and spot prices seen" in read(server, "all", "/spend")
