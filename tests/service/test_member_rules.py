"""What the task of a member may use of the service's own computer: what `--allow` names, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.orch_process import Orch
from support.service_site import Reply, Served, serve

CLOUD = "resources: {infra: aws, accelerators: 'L4:1'}\nrun: 'true'\n"
MANY = [{"infra": "aws", "accelerators": "L4:1", "disk_size": 100 + number} for number in range(101)]
CANARY = "canary-of-the-server"


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, dict[str, str]]]:
    """A service that allows one variable, which has other ones too, and tokens of two members."""
    orch = Orch(tmp_path_factory.mktemp("rules"), more={"GIVEN": "granted", "CLOUD_KEY": CANARY})
    tokens = {
        role: orch.ok("token", "create", role, "--member", "bob", "--role", role).strip()
        for role in ("member", "owner")
    }
    with serve(orch, "--allow", "GIVEN") as served:
        yield served, tokens | {"admin": served.token}


def plan(site: Served, token: str, task: str) -> Reply:
    body: dict[str, Any] = {"verb": "launch", "task": task, "cluster": "mine"}
    return site.ask(
        "/v1/plans", method="POST", body=json.dumps(body).encode(), signed=False,
        authorization=f"Bearer {token}", content_type="application/json",
    )  # fmt: skip


@pytest.mark.parametrize("role", ["member", "owner"])
@pytest.mark.parametrize(
    ("more", "named"),
    [
        ("secrets: {CLOUD_KEY: null}\n", "CLOUD_KEY"),
        ("secrets: {CLOUD_KEY: x}\n", "CLOUD_KEY"),  # its value would be replaced by the server's
        ("envs: {CLOUD_KEY: null}\n", "CLOUD_KEY"),
        ("config: {aws: {profile: production}}\n", "production"),
        ("config: {aws: {instance_profile: administrator}}\n", "config"),
        ("config: {aws: {role_arn: 'arn:aws:iam::111111111111:role/of-another'}}\n", "of-another"),
        ("config: {aws: {external_id: of-another}}\n", "config"),
        ("config: {gcp: {impersonate: of-another@p.iam.gserviceaccount.com}}\n", "of-another"),
        ("checkpoint: {bucket: 'file:///etc'}\n", "file:///etc"),
        ("resources: {infra: aws, accelerators: 'L4:1', disk_size: 65536}\n", "disk_size"),
        (
            "resources: {infra: gcp, accelerators: v5litepod-8, accelerator_args: {data_disks: [of-another]}}\n",
            "of-another",
        ),
        (f"resources: {{any_of: {MANY}}}\n", "101 choices"),
        ("file_mounts: {/in: 'file:///etc'}\n", "file:///etc"),
    ],
)
def test_a_task_takes_nothing_of_the_server(
    team: tuple[Served, dict[str, str]], role: str, more: str, named: str
) -> None:
    site, tokens = team
    task = "run: 'true'\n" + more if more.startswith("resources") else CLOUD + more
    answer = plan(site, tokens[role], task)
    assert answer.status in (400, 403), answer.text
    assert named in answer.text and CANARY not in answer.text


@pytest.mark.parametrize(
    "task",
    [
        "resources: {infra: 'local:1'}\nrun: id\n",
        "resources: {any_of: [{infra: aws, accelerators: 'L4:1'}, {infra: local}]}\nrun: id\n",
        "resources: {infra: hosts}\nhosts: {addresses: [root@10.0.0.1]}\nrun: id\n",
        "run: id\n",  # without a place it runs on this computer
    ],
)
def test_a_task_does_not_run_as_the_user_of_the_server(team: tuple[Served, dict[str, str]], task: str) -> None:
    site, tokens = team
    answer = plan(site, tokens["owner"], task)
    assert answer.status == 403, answer.text
    assert "--allow" in answer.document["next_step"]


def test_what_is_allowed_is_taken_and_its_value_is_not_shown(team: tuple[Served, dict[str, str]]) -> None:
    site, tokens = team
    for more in ("secrets: {GIVEN: null}\n", "envs: {GIVEN: null}\n", "envs: {OWN: written}\n", ""):
        assert plan(site, tokens["member"], CLOUD + more).status == 200
    assert "granted" not in plan(site, tokens["member"], CLOUD + "secrets: {GIVEN: null}\n").text


def test_the_admin_of_the_server_is_its_user(team: tuple[Served, dict[str, str]]) -> None:
    site, tokens = team
    for task in ("resources: {infra: 'local:1'}\nrun: id\n", CLOUD + "secrets: {CLOUD_KEY: null}\n"):
        answer = plan(site, tokens["admin"], task)
        assert answer.status == 200 and CANARY not in answer.text, answer.text


def test_the_value_of_a_secret_is_not_put_on_record(team: tuple[Served, dict[str, str]]) -> None:
    site, tokens = team
    answer = plan(site, tokens["admin"], CLOUD + "secrets: {NEW: of-the-task}\n")
    assert answer.status == 400 and "NEW: null" in answer.document["next_step"]
    assert "of-the-task" not in answer.text
