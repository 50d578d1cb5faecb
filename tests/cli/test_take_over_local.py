"""Hosts on this computer whose store is lost are taken over by the record beside them; other folders have none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support.orch_process import Orch, until

import orchestrator.cli
from orchestrator.exits import Exit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

DATA = Path(orchestrator.cli.__file__).parent / "data"
TASK = "name: two\nresources: {infra: 'local:2'}\nrun: echo done\n"


def acted(orch: Orch, *words: str) -> dict[str, Any]:
    """Return what an action printed as JSON."""
    found: dict[str, Any] = json.loads(orch.ok(*words, "-o", "json"))
    jsonschema.validate(found, json.loads((DATA / "recover-action.schema.json").read_text()))
    return found


def lose_store(orch: Orch) -> None:
    for file in orch.state.glob("orch.db*"):
        file.unlink()


@pytest.mark.promise("P5")
def test_local_hosts_of_a_lost_store_are_taken_over_and_those_of_another_folder_are_not_found(tmp_path: Path) -> None:
    for name in ("ann", "bob"):
        (tmp_path / name).mkdir()
    ann, bob = Orch(tmp_path / "ann"), Orch(tmp_path / "bob")
    (ann.folder / "two.yaml").write_text(TASK)
    ann.ok("launch", "two.yaml", "--yes")
    elsewhere = bob("recover", "two", "--take-over", "--yes")
    assert elsewhere.returncode == Exit.NOT_FOUND and "no slice 'two' carries a label of orch" in elsewhere.stderr
    lose_store(ann)
    assert json.loads(ann.ok("status", "-o", "json"))["clusters"] == []
    preview = acted(ann, "recover", "two", "--take-over", "--dry-run")
    assert (preview["action"], preview["done"]) == ("take-over", False)
    for _ in range(2):  # repeated, it says the same again
        result = acted(ann, "recover", "two", "--take-over", "--yes")
        assert result == preview | {"done": True}
        done = ann("recover", "two", "--take-over", "--yes")
        assert done.returncode == 0 and "its hosts obey this installation alone" in done.stderr, done.stderr
        (seen,) = json.loads(ann.ok("status", "-o", "json"))["clusters"]
        assert (seen["name"], seen["state"]) == ("two", "ready")
    assert "mine" in ann.ok("exec", "two", "--no-prefix", "--", "echo mine")
    ann.ok("events", "--verify")
    ann.ok("down", "two")
    assert not (ann.state / "local").exists()


@pytest.mark.promise("P5")
def test_of_two_lost_slices_of_one_name_each_is_taken_over_by_its_intent(tmp_path: Path) -> None:
    ann = Orch(tmp_path)
    (ann.folder / "two.yaml").write_text(TASK.replace("local:2", "local:1"))
    for project in ("a", "b"):
        replace(ann, more={"ORCH_PROJECT": project}).ok("launch", "two.yaml", "--yes")
    lose_store(ann)
    listed = json.loads(ann.ok("recover", "-o", "json"))["places"]
    first, second = (one["intent"] for place in listed for one in place["slices"])
    assert ann("recover", "two", "--take-over", "--yes").returncode == Exit.USAGE
    ann.ok("recover", "two", "--take-over", "--intent", first, "--yes")
    again = ann("recover", "two", "--take-over", "--yes")
    assert again.returncode == Exit.USAGE and f"--intent {second} --as NAME" in again.stderr, again.stderr
    ann.ok("recover", "two", "--take-over", "--intent", second, "--as", "three", "--yes")
    found = json.loads(ann.ok("status", "-o", "json"))["clusters"]
    assert sorted((one["name"], one["state"]) for one in found) == [("three", "ready"), ("two", "ready")]
    ann.ok("down", "two", "three")
    assert not (ann.state / "local").exists()


def test_an_end_and_its_errors_are_json(tmp_path: Path) -> None:
    ann = Orch(tmp_path)
    (ann.folder / "two.yaml").write_text(TASK)
    ann.ok("launch", "two.yaml", "--yes")
    lose_store(ann)
    for words in (("recover", "two", "--end"), ("recover", "three", "--end", "--yes"), ("recover", "three")):
        refused = ann(*words, "-o", "json")
        found = json.loads(refused.stdout)
        jsonschema.validate(found, json.loads((DATA / "error.schema.json").read_text()))
        assert found["status"] == refused.returncode != 0
    ended = acted(ann, "recover", "two", "--end", "--yes")
    assert (ended["action"], ended["done"], ended["cluster"]) == ("end", True, "two")
    assert not (ann.state / "local").exists()


@pytest.mark.promise("P1")
def test_a_host_that_claims_another_owner_loses_no_machine(tmp_path: Path) -> None:
    """The program writes the file by which a host refuses; the label of the machine is still ours."""
    ann = Orch(tmp_path)
    claim = "999999999 0123456789ab them@there 2026-11-25T00:00:00Z"
    (ann.folder / "two.yaml").write_text(
        "name: two\nresources: {infra: 'local:1'}\n"
        f"run: |\n  sleep 3\n  echo {claim} >$ORCH_HOST_DIR/owner\n  sleep 300\n"
    )
    ann.ok("launch", "two.yaml", "--yes", "--detach")
    log = ann.state / "engine.log"
    until("the engine meets the claim", lambda: "0123456789ab (them@there)" in log.read_text(), 60)
    assert "which the labels of the machines do not confirm" in log.read_text()
    (seen,) = json.loads(ann.ok("status", "-o", "json"))["clusters"]
    assert seen["name"] == "two" and (ann.state / "local").exists()
    ann.ok("down", "two", "--yes")
    assert not (ann.state / "local").exists()
