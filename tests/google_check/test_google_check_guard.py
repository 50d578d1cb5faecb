"""The role that orch documents is what it asks for: no call beyond it, and nothing in it that no call needs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from google_check_run import RUNS, STEPS, make_keys, make_spec
from google_check_support import GOOD, PROJECT, ZONE, simulated

from orch_fronts.google.grants import Grants
from orch_fronts.google.iam import Guard
from orch_fronts.google.permissions import PERMISSIONS
from orch_fronts.google.status import Refusal
from orchestrator.errors import AccessError
from orchestrator.providers.google.check_role import (
    ACT_AS,
    HOST_NEEDS,
    NEEDS,
    TPU,
    host_role,
    orch_role,
    role_permissions,
)
from orchestrator.providers.google.client import open_api
from orchestrator.providers.google.provider import TpuProvider
from orchestrator.providers.google.session import open_session

Orch = Callable[..., Any]
DOCS = Path(__file__).parents[2] / "docs" / "iam"
NODES = f"/v2/projects/{PROJECT}/locations/{ZONE}/nodes"


def test_what_orch_asks_for_is_its_role(orch: Orch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with simulated(monkeypatch) as project:
        for step in STEPS:
            step(project, tmp_path)
        said = orch("check", "gcp", "--zone", ZONE, "--accelerators", "v5litepod-8", "--bucket", "gs://runs")
        assert said.status == 0, said
        said = orch("catalog", "refresh", "gcp")
        assert said.status == 0, said
    assert project.guard.asked - {ACT_AS} == set(role_permissions())
    assert ACT_AS in project.guard.asked


@pytest.mark.parametrize("permission", TPU.permissions)
def test_without_any_one_of_them_something_fails(
    permission: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (
        simulated(monkeypatch, replace(GOOD, permissions=GOOD.permissions - {permission})) as project,
        pytest.raises((AccessError, AssertionError), match=permission),
    ):
        for step in STEPS:
            step(project, tmp_path)


def test_a_refused_create_says_which_permission_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with simulated(monkeypatch, replace(GOOD, permissions=frozenset())) as project:
        provider = TpuProvider(open_api(open_session()), tmp_path, project.clock.now)
        with pytest.raises(AccessError) as failed:
            provider.create(make_spec("demo-1", RUNS["a node"]), make_keys(1, tmp_path))
    assert "Permission 'tpu.nodes.create' denied on resource '//tpu.googleapis.com/projects/" in failed.value.why


def test_an_api_that_is_off_says_how_to_switch_it_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with simulated(monkeypatch, replace(GOOD, apis=frozenset())) as project:
        provider = TpuProvider(open_api(open_session()), tmp_path, project.clock.now)
        with pytest.raises(AccessError) as failed:
            provider.create(make_spec("demo-1", RUNS["a node"]), make_keys(1, tmp_path))
    assert "gcloud services enable tpu.googleapis.com" in failed.value.next_step


@pytest.mark.parametrize("kind", ["a node", "spot"])
def test_no_host_runs_as_an_account_that_the_caller_may_not_give(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with simulated(monkeypatch, replace(GOOD, acts_as=frozenset({"other@x.iam.gserviceaccount.com"}))) as project:
        provider = TpuProvider(open_api(open_session()), tmp_path, project.clock.now)
        with pytest.raises(AccessError, match="act as service account 123456789012-compute@"):
            provider.create(make_spec("demo-1", RUNS[kind]), make_keys(1, tmp_path))


def _body(account: str, where: str) -> bytes:
    named = {"email": account}
    bodies: dict[str, Any] = {
        "node": {"serviceAccount": named},
        "queued": {"tpu": {"nodeSpec": [{"node": {}}, {"node": {"serviceAccount": named}}]}},
        "instance": {"serviceAccounts": [named]},
        "template": {"properties": {"serviceAccounts": [named]}},
    }
    return json.dumps(bodies[where]).encode()


CREATES = {
    "node": NODES,
    "queued": NODES.replace("nodes", "queuedResources"),
    "instance": f"/compute/v1/projects/{PROJECT}/zones/{ZONE}/instances",
    "template": f"/compute/v1/projects/{PROJECT}/global/instanceTemplates",
}


@pytest.mark.parametrize("where", CREATES)
def test_each_way_to_name_an_account_is_seen(where: str) -> None:
    default = f"{GOOD.number}-compute@developer.gserviceaccount.com"
    guard = Guard(replace(GOOD, acts_as=frozenset({default, "good@x.y"})))
    guard.admit("POST", CREATES[where], _body("good@x.y", where))
    with pytest.raises(Refusal, match=r"act as service account bad@x\.y"):
        guard.admit("POST", CREATES[where], _body("bad@x.y", where))


def test_an_instance_without_an_account_asks_for_none() -> None:
    guard = Guard(replace(GOOD, acts_as=frozenset()))
    guard.admit("POST", CREATES["instance"], b"{}")
    assert ACT_AS not in guard.asked


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", f"{NODES}/a:performMaintenanceTwice"),
        ("PUT", f"{NODES}/a"),
        ("GET", "/v3/projects/p/locations"),
        ("POST", f"/crm/v1/projects/{PROJECT}:setIamPolicy"),
        ("GET", f"{NODES}/a?fileds=name"),
    ],
)
def test_what_no_table_names_is_refused(method: str, target: str) -> None:
    with pytest.raises(Refusal):
        Guard(Grants(permissions=frozenset(one for needed in PERMISSIONS.values() for one in needed))).admit(
            method, target
        )


def test_details_of_refusals_are_googles() -> None:
    with pytest.raises(Refusal) as denied:
        Guard(Grants(permissions=frozenset())).admit("GET", f"{NODES}/a")
    (info,) = denied.value.to_json()["error"]["details"]
    assert (info["reason"], info["metadata"]["permission"]) == ("IAM_PERMISSION_DENIED", "tpu.nodes.get")
    with pytest.raises(Refusal) as off:
        Guard(Grants(apis=frozenset())).admit("GET", f"{NODES}/a")
    (info,) = off.value.to_json()["error"]["details"]
    assert (info["reason"], info["domain"]) == ("SERVICE_DISABLED", "googleapis.com")
    assert info["metadata"]["consumer"] == f"projects/{PROJECT}"
    assert off.value.canonical.http == denied.value.canonical.http == 403


@pytest.mark.parametrize("permissions", [["tpu.*"], ["tpu"], [f"tpu.nodes.a{index}" for index in range(101)]])
def test_a_question_about_permissions_has_its_form(permissions: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with simulated(monkeypatch) as project:
        front = project.server.front_of("/crm/v1/projects/x")
        body = json.dumps({"permissions": permissions}).encode()
        with pytest.raises(Refusal, match="INVALID_ARGUMENT"):
            front.handle("POST", f"/crm/v1/projects/{PROJECT}:testIamPermissions", body)
        with pytest.raises(Refusal, match="Unknown name"):
            front.handle("POST", f"/crm/v1/projects/{PROJECT}:testIamPermissions", b'{"permission": []}')


@pytest.mark.parametrize(("name", "text"), [("gcp-role", orch_role()), ("gcp-host-role", host_role())])
def test_the_files_in_docs_are_printed_from_the_table(name: str, text: str, orch: Orch) -> None:
    assert (DOCS / f"{name}.yaml").read_text() == text
    needs = NEEDS if name == "gcp-role" else HOST_NEEDS
    role = yaml.safe_load(text)
    assert sorted(role["includedPermissions"]) == list(role_permissions(needs))
    assert set(role) == {"title", "description", "stage", "includedPermissions"}
    said = orch("check", "gcp", "--print-role", "orch" if name == "gcp-role" else "hosts")
    assert (said.status, said.out) == (0, text)


def test_every_permission_of_the_roles_is_asked_by_some_method() -> None:
    known = {one for needed in PERMISSIONS.values() for one in needed}
    assert set(role_permissions()) <= known
    assert set(role_permissions(HOST_NEEDS)) <= known
