"""Projects and members in the answers of commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import orchestrator.cli
from orchestrator.engine.preparation.ownership import choose_default_name
from orchestrator.errors import UserError
from orchestrator.exits import Exit
from orchestrator.project import read_project
from orchestrator.store.read import open_reader_at
from orchestrator.store.records import NewJob
from orchestrator.store.store import Store
from orchestrator.task.model import Task
from orchestrator.task.parse import parse_task

Orch = Callable[..., Any]
SCHEMAS = Path(orchestrator.cli.__file__).parents[1] / "documents" / "data"
CLUSTERS = (("mine", "default", "ann"), ("theirs", "default", "bob"), ("mine", "lab", "ann"))
"""Name, project and owner."""


def new_job(run_id: str, task: str = "") -> NewJob:
    return NewJob(kind="launch", run_id=run_id, digest="d", task=task, bucket="", ranks=None, after_end="keep")


@pytest.fixture
def team(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the database of a store with one job on each of CLUSTERS; ann is at work."""
    database = home / "state" / "orch.db"
    database.parent.mkdir(parents=True)
    for name, project, owner in CLUSTERS:
        monkeypatch.setenv("LOGNAME", owner)
        with Store(database, project=project) as store:
            store.open_job(store.open_cluster(name, ""), new_job(f"{project}-{name}"))
    monkeypatch.setenv("LOGNAME", "ann")
    return database


def listed(said: Any, kind: str, key: str) -> list[dict[str, Any]]:
    assert said.status == 0, said.err
    shown: dict[str, Any] = json.loads(said.out)
    jsonschema.Draft202012Validator(json.loads((SCHEMAS / f"{kind}.schema.json").read_text())).validate(shown)
    return list(shown[key])


@pytest.mark.usefixtures("team")
@pytest.mark.parametrize(
    ("kind", "key", "every"),
    [("status", "clusters", "--all"), ("queue", "jobs", "--all-projects"), ("runs", "runs", "--all")],
)
def test_listings_show_the_project_all_or_one_member(
    orch: Orch, monkeypatch: pytest.MonkeyPatch, kind: str, key: str, every: str
) -> None:
    def shown(*words: str) -> set[tuple[str, str, str]]:
        found = listed(orch(kind, *words, "-o", "json"), kind, key)
        assert all(one["actor"].startswith(f"{one['owner']}@") for one in found)
        return {(one.get("cluster") or one["name"], one["project"], one["owner"]) for one in found}

    assert shown() == {*CLUSTERS[:2]}
    assert shown(every) == {*CLUSTERS}
    assert shown(every, "--owner", "me") == {CLUSTERS[0], CLUSTERS[2]}
    assert shown("--owner", "bob") == {CLUSTERS[1]}
    assert "PROJECT" in orch(kind, every).out and "PROJECT" not in orch(kind).out
    monkeypatch.setenv("ORCH_PROJECT", "lab")
    assert shown() == {CLUSTERS[2]}


@pytest.mark.usefixtures("team")
@pytest.mark.parametrize("kind", ["status", "queue", "runs", "events", "cost"])
def test_a_member_of_whom_nothing_is_on_record_is_said(orch: Orch, kind: str) -> None:
    for output in ((), ("-o", "json")):
        said = orch(kind, "--owner", "bobb", *output)
        assert said.status == 2 and "nothing of a member 'bobb' is on record" in said.err
        assert "did you mean bob?" in said.err
    assert orch(kind, "--owner", "me").status == orch(kind, "--owner", "bob").status == 0


@pytest.mark.usefixtures("team")
def test_events_are_of_the_project_and_of_who_did_it(orch: Orch) -> None:
    def shown(*words: str) -> set[tuple[str, str]]:
        return {
            (one["cluster"], one["project"]) for one in listed(orch("events", *words, "-o", "json"), "events", "events")
        }

    assert shown() == {("mine", "default"), ("theirs", "default")}
    assert shown("--all") == {("mine", "default"), ("theirs", "default"), ("mine", "lab")}
    assert shown("--owner", "bob") == {("theirs", "default")}
    assert shown("mine") == {("mine", "default")}


def test_the_configuration_names_the_project_and_the_variable_wins(
    team: Path, orch: Orch, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert orch("config", "set", "team.project", "lab").status == 0
    assert [one["project"] for one in listed(orch("status", "-o", "json"), "status", "clusters")] == ["lab"]
    monkeypatch.setenv("ORCH_PROJECT", "default")
    assert len(listed(orch("status", "-o", "json"), "status", "clusters")) == 2
    monkeypatch.setenv("ORCH_PROJECT", "No Project")
    assert orch("status").status == Exit.USAGE
    with pytest.raises(UserError, match="cannot be a project's name"):
        read_project({"ORCH_PROJECT": "a/b"})


def test_a_mistake_elsewhere_in_the_configuration_keeps_no_command_from_its_project(
    team: Path, home: Path, orch: Orch
) -> None:
    (home / "config.toml").write_text("[nonsense]\nx = 1\n[team]\nproject = 'lab'\n")
    assert [one["project"] for one in listed(orch("status", "-o", "json"), "status", "clusters")] == ["lab"]
    (home / "config.toml").write_text("[team\nproject = 'lab'\n")
    assert orch("status").status == Exit.USAGE, "its project is not known"


def test_a_default_name_that_another_member_has_gets_a_suffix_and_is_found_again(team: Path) -> None:
    def chosen(base: str, program: str = "x") -> str:
        with open_reader_at(team) as reader:
            return choose_default_name(reader, base, task_of(program))[0]

    def task_of(program: str) -> Task:
        return parse_task(f"run: {program}", file="t.yaml", env={}).only

    assert (chosen("mine"), chosen("new"), chosen("theirs")) == ("mine", "new", "theirs-2")
    with Store(team) as store:
        store.open_job(store.open_cluster("theirs-2", ""), new_job("run", task_of("x").to_json()))
        assert chosen("theirs") == "theirs-2", "the same command again"
        assert chosen("x" * 40) == "x" * 40
        lease = store.acquire("cluster:theirs", "test")
        store.close_cluster(lease, store.cluster("theirs"))  # type: ignore[arg-type]  # both exist
    assert chosen("theirs") == "theirs-2", "also when the other one is deleted"
    assert chosen("theirs", "another") == "theirs"
