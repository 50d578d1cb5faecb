"""With -o json every answer is one JSON document on stdout that its schema describes, errors included."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from orchestrator.paths import load_paths
from orchestrator.plan.observed import Outcome
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.store.leases import Lease
from orchestrator.store.records import NewJob
from orchestrator.store.store import Store

Orch = Callable[..., Any]


@pytest.fixture
def valid(orch_process: Orch) -> Callable[[str, str], dict[str, Any]]:
    """Parse a document and check it against the schema that `orch schema NAME` prints."""

    def check(name: str, text: str) -> dict[str, Any]:
        printed = orch_process("schema", name)
        assert printed.status == 0, printed.err
        document: dict[str, Any] = json.loads(text)
        jsonschema.Draft202012Validator(json.loads(printed.out)).validate(document)
        assert document["version"] == 1
        return document

    return check


@pytest.mark.parametrize(
    ("words", "code", "status"),
    [
        (("status", "nowhere", "-o", "json"), "not-found", 3),
        (("status", "--refesh", "-o", "json"), "usage", 2),
        (("launch", "no-such-file.yaml", "-o", "json"), "not-found", 3),
        (("launch", "no-such-file.yaml", "--dry-run", "--output=json"), "not-found", 3),
        (("down", "nowhere", "-ojson"), "not-found", 3),
        (("accelerators", "h9000", "-o", "json"), "usage", 2),
        (("storage", "ls", "file:///nowhere/at/all", "-o", "json"), "not-found", 3),
    ],
)
def test_an_error_is_a_document_on_stdout_and_text_on_stderr(
    orch_process: Orch, home: Path, valid: Any, words: tuple[str, ...], code: str, status: int
) -> None:
    done = orch_process(*words)
    document = valid("error", done.out)
    assert (done.status, document["status"], document["error"]["code"]) == (status, status, code)
    assert done.err.startswith(f"error[{code}]: {document['error']['what']}")


def test_every_mistake_of_a_task_file_is_in_the_document(orch_process: Orch, tmp_path: Path, valid: Any) -> None:
    (tmp_path / "bad.yaml").write_text("name: a\nresources:\n  acelerators: v5e-8\nnum_nodes: -1\nrnu: echo\n")
    done = orch_process("launch", str(tmp_path / "bad.yaml"), "--dry-run", "-o", "json")
    problems = valid("error", done.out)["error"]["problems"]
    assert [one["place"] for one in problems] == [f"{tmp_path}/bad.yaml:{at}" for at in ("3:3", "4:1", "5:1")]
    assert [one["next"] for one in problems if "did you mean" in one["what"]] == [
        "write `accelerators`, or remove the key",
        "write `run`, or remove the key",
    ]
    assert all(one["next"] for one in problems)
    assert done.err.count("/bad.yaml:") == len(problems) == 3


def test_a_bug_is_a_document_too(orch_process: Orch, home: Path, valid: Any) -> None:
    (home / "state" / "orch.db").mkdir(parents=True)
    done = orch_process("status", "-o", "json")
    assert valid("error", done.out)["status"] == done.status == 1


def test_without_json_an_error_leaves_stdout_empty(orch_process: Orch, home: Path) -> None:
    assert orch_process("status", "nowhere").out == ""
    assert orch_process("exec", "nowhere", "--", "tool", "-o", "json").out == "", "these options are the program's"


def test_several_clusters_leave_a_document_each(orch_process: Orch, filled: Path) -> None:
    done = orch_process("down", "nine", "ten", "-o", "json")
    documents = done.out.replace("}\n{", "}\0{").split("\0")
    assert [json.loads(one)["error"]["code"] for one in documents] == ["not-found", "not-found"]


def test_every_schema_is_listed_and_printed(orch_process: Orch, home: Path) -> None:
    names = orch_process("schema").out.split()
    assert {"status", "queue", "error", "plan", "task", "logs", "config-list", "listing", "pull", "ending"} <= set(
        names
    )
    for name in ("status", "plan", "task"):
        assert "$schema" in json.loads(orch_process("schema", name).out)
    unknown = orch_process("schema", "statuss")
    assert unknown.status == 3 and "did you mean status" in unknown.err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("status", ("status", "-o", "json")),
        ("queue", ("queue", "--all", "-o", "json")),
        ("events", ("events", "-o", "json")),
        ("accelerators", ("accelerators", "-o", "json")),
        ("config", ("config", "explain", "resources.use_spot", "-o", "json")),
        ("config-list", ("config", "list", "-o", "json")),
    ],
)
def test_a_document_matches_its_schema(
    orch_process: Orch, filled: Path, valid: Any, name: str, words: tuple[str, ...]
) -> None:
    done = orch_process(*words)
    assert done.status == 0, done.err
    assert valid(name, done.out)["kind"] == name


def test_storage_ls_as_json_matches_its_schema(orch_process: Orch, home: Path, tmp_path: Path, valid: Any) -> None:
    (tmp_path / "bucket" / "folder").mkdir(parents=True)
    (tmp_path / "bucket" / "file").write_bytes(b"abc")
    (tmp_path / "bucket" / "folder" / "inner").write_bytes(b"")
    done = orch_process("storage", "ls", f"file://{tmp_path}/bucket", "-o", "json")
    document = valid("listing", done.out)
    assert (document["folders"], [one["size"] for one in document["objects"]]) == (["folder"], [3])


@pytest.fixture
def logged(home: Path) -> Path:
    """A deleted cluster 'past' with job 1, whose log of two hosts is on this computer."""
    with Store(home / "state" / "orch.db") as store:
        past = store.open_cluster("past", "cpu on local")
        lease = store.acquire("cluster:past", "test")
        assert isinstance(lease, Lease)
        new = NewJob(
            kind="launch", run_id="run-p", digest="d", task="", bucket="", ranks=None, after_end=TeardownPolicy.KEEP
        )
        job = store.open_job(past, new)
        store.record_outcome(past, job.id, Outcome(status=0, code="", what="done"))
        store.close_cluster(lease, past)
        store.release(lease)
    folder = load_paths().logs(past.uid, job.id) / "attempt-0001"
    folder.mkdir(parents=True)
    (folder / "0.log").write_bytes(b"loss 2.5\nloss 2.0\n")
    (folder / "1.log").write_bytes(b"no end \xff")
    return home


def test_logs_as_json_and_as_json_lines(orch_process: Orch, logged: Path, valid: Any) -> None:
    document = valid("logs", orch_process("logs", "past", "-o", "json").out)
    assert (document["cluster"], document["job"], document["run_id"], document["status"]) == ("past", 1, "run-p", 0)
    assert [(one["rank"], one["line"]) for one in document["lines"]] == [
        (0, "loss 2.5"),
        (0, "loss 2.0"),
        (1, "no end \ufffd"),
    ]
    lines = orch_process("logs", "past", "-o", "jsonl", "--grep", "2.0").out.splitlines()
    assert [json.loads(line)["line"] for line in lines] == ["loss 2.0"]


def test_following_logs_cannot_be_one_document(orch_process: Orch, filled: Path) -> None:
    done = orch_process("logs", "mine", "-f", "-o", "json")
    assert done.status == 2 and "orch logs -f -o jsonl" in done.err
