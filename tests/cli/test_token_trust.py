"""`orch token trust`: rules for jobs of CI, what is refused of them, and how they are listed and taken back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import orchestrator
from orchestrator.exits import Exit

Orch = Callable[..., Any]
SCHEMA = json.loads((Path(orchestrator.__file__).parent / "documents/data/tokens.schema.json").read_text())
MAIN = ("--claim", "repository=org/name", "--claim", "ref=refs/heads/main")


def test_a_rule_is_made_listed_and_taken_back(orch: Orch) -> None:
    said = orch("token", "trust", "release", "--issuer", "github", *MAIN, "--project", "vision", "--for", "2h")
    assert said.status == 0 and "enter as ci-release (member)" in said.err, said.err
    assert "names can pass to another owner" in said.err
    by_id = ("--claim", "repository_id=7", "--member", "bot", "--role", "viewer", "--days", "30")
    said = orch("token", "trust", "nightly", "--issuer", "https://ci.example.org", *by_id)
    assert said.status == 0 and "another owner" not in said.err
    assert orch("token", "trust", "release", "--issuer", "github", *MAIN).status == Exit.CONFLICT
    document = json.loads(orch("token", "-o", "json").out)
    jsonschema.validate(document, SCHEMA)
    first, second = document["tokens"]
    assert (first["kind"], first["issuer"], first["project"], first["expires"]) == (
        "rule", "https://token.actions.githubusercontent.com", "vision", None,
    )  # fmt: skip
    assert first["claims"] == {"repository": "org/name", "ref": "refs/heads/main"}
    assert (second["member"], second["role"], second["claims"]) == ("bot", "viewer", {"repository_id": "7"})
    shown = orch("token").out
    assert "release" in shown and "vision" in shown and "rule" in shown
    assert "rule 'release' of ci-release is revoked" in orch("token", "revoke", "release").err
    assert orch("token", "revoke", "--member", "bot").status == 0
    assert not any(one["counts"] for one in json.loads(orch("token", "-o", "json").out)["tokens"])


def test_two_rules_share_a_member_only_where_it_is_named(orch: Orch) -> None:
    long = "x" * 58
    for first, second in (("a@b", "a-b"), (f"{long}1", f"{long}2")):
        assert orch("token", "trust", first, "--issuer", "github", *MAIN).status == 0
        refused = orch("token", "trust", second, "--issuer", "github", *MAIN)
        assert refused.status == Exit.CONFLICT and "--member" in refused.err, refused.err
        assert orch("token", "revoke", first).status == 0
        assert orch("token", "trust", second, "--issuer", "github", *MAIN).status == Exit.CONFLICT, "it has clusters"
        assert orch("token", "trust", second, "--issuer", "github", *MAIN, "--member", f"m-{first[:9]}").status == 0
        assert orch("token", "trust", first, "--issuer", "github", *MAIN).status == 0, "its own again"


@pytest.mark.parametrize(
    "words",
    [
        ("--issuer", "github"),
        ("--issuer", "github", "--claim", "ref=refs/heads/main"),
        ("--issuer", "github", "--claim", "repository=org/*"),
        ("--issuer", "http://ci.example.org", *MAIN),
        ("--issuer", "github", *MAIN, "--for", "30d"),
        ("--issuer", "github", *MAIN, "--member", "two words"),
        ("--issuer", "github", *MAIN, "--project", "No"),
    ],
)
def test_a_rule_that_would_let_others_in_is_refused(orch: Orch, words: tuple[str, ...]) -> None:
    refused = orch("token", "trust", "release", *words)
    assert refused.status == Exit.USAGE and len(refused.err.splitlines()) <= 5, refused.err
    assert json.loads(orch("token", "-o", "json").out or '{"tokens": []}')["tokens"] == []
