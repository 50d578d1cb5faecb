"""As whom a project's clouds and buckets are called: its settings win over tasks and configuration, and never mix."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from support.aws_cloud import ONE_CARD, aws_candidate, aws_provider, aws_server, aws_zones

from orch_fronts.aws.calls import AwsCall
from orch_fronts.aws.roles import Roles
from orchestrator.cloud_access import CloudAccess, read_cloud_access
from orchestrator.engine.loop.session import Providers
from orchestrator.engine.operations import sweep
from orchestrator.engine.operations.checkpoints import find_run
from orchestrator.engine.preparation.commands import prepare_launch
from orchestrator.engine.services import Services, real_services
from orchestrator.engine.state.identities import find_access
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.project_settings import make_setting, remove_project_setting, set_project_setting
from orchestrator.errors import UserError
from orchestrator.paths import load_paths
from orchestrator.plan.desired import Run
from orchestrator.plan.dry_run import make_plan
from orchestrator.plan.observed import Intent, IntentState
from orchestrator.plan.preview import render_plan
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.scenario import Scenario
from orchestrator.slices import Candidate
from orchestrator.storage.bucket import Bucket
from orchestrator.store.records import NewJob
from orchestrator.task.config import load_config
from orchestrator.task.parse import parse_task

VISION, SPEECH = "arn:aws:iam::111111111111:role/vision", "arn:aws:iam::222222222222:role/speech"
ACCOUNT = "vision@vision-1234.iam.gserviceaccount.com"
EC2 = "infra: aws/us-east-1/us-east-1a, accelerators: trn1.2xlarge"
TPU = "infra: gcp/us-west4/us-west4-a, accelerators: v5e-8"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path / "orch"))
    for name in ("ORCH_CONFIG", "ORCH_PROJECT", "ORCH_STORE", "ORCH_SERVER"):
        monkeypatch.delenv(name, raising=False)


def launch(resources: str, project: str = "", more: str = "") -> Run:
    file = parse_task(
        f"run: echo\nresources: {{{resources}}}\n{more}\n", file="t.yaml", env={}, config=load_config(os.environ)
    )
    ready = prepare_launch(file.only, cluster="mine", after=TeardownPolicy.KEEP, project=project)
    assert isinstance(ready.desired, Run)
    return ready.desired


def details(resources: str, project: str = "", more: str = "") -> dict[str, str]:
    return dict(launch(resources, project, more).candidates[0].details)


def access_of(project: str = "default", task: str = "") -> CloudAccess:
    where = load_paths()
    with open_store(where, real_services(where)) as store:
        return find_access(store, read_cloud_access({}), "orch-x", project=project, task=task)


def test_the_machines_of_a_project_are_made_as_its_role_and_those_of_others_are_not() -> None:
    set_project_setting("vision", "aws.role_arn", VISION)
    set_project_setting("vision", "aws.external_id", "for-vision")
    set_project_setting("vision", "gcp.impersonate", ACCOUNT)
    set_project_setting("speech", "aws.role_arn", SPEECH)
    found = details(EC2, "vision")
    assert (found["role_arn"], found["external_id"]) == (VISION, "for-vision")
    assert details(TPU, "vision")["impersonate"] == ACCOUNT
    found = details(EC2, "speech")
    assert found["role_arn"] == SPEECH
    assert "external_id" not in found
    assert "role_arn" not in details(EC2)
    assert "impersonate" not in details(TPU, "speech")


def test_a_project_wins_over_the_configuration_and_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_AWS_ROLE_ARN", SPEECH)
    monkeypatch.setenv("ORCH_AWS_EXTERNAL_ID", "of-speech")
    assert details(EC2)["role_arn"] == SPEECH
    set_project_setting("default", "aws.role_arn", VISION)
    for more in ("", f"config: {{aws: {{role_arn: '{SPEECH}', external_id: other}}}}"):
        found = details(EC2, more=more)
        assert found["role_arn"] == VISION
        assert "external_id" not in found, "another role's external id is not sent with this one"
    remove_project_setting("default", "aws.role_arn")
    assert details(EC2)["external_id"] == "of-speech"


def test_buckets_are_reached_as_the_project_of_their_run(monkeypatch: pytest.MonkeyPatch) -> None:
    set_project_setting("vision", "aws.role_arn", VISION)
    set_project_setting("vision", "gcp.impersonate", ACCOUNT)
    found = access_of("vision")
    assert found.s3.identity == (("role_arn", VISION),)
    assert found.cloud_storage.identity == (("impersonate", ACCOUNT),)
    assert found.caller == "orch-x"
    assert access_of("speech").s3.identity == ()
    task = parse_task(f"run: x\nconfig: {{aws: {{role_arn: '{SPEECH}'}}}}", file="t.yaml", env={}).only.to_json()
    assert access_of("speech", task).s3.identity == (("role_arn", SPEECH),)
    assert access_of("vision", task).s3.identity == (("role_arn", VISION),)
    monkeypatch.setenv("ORCH_AWS_ROLE_ARN", SPEECH)
    assert access_of("speech").s3.identity == (("role_arn", SPEECH),)
    assert access_of("vision").s3.identity == (("role_arn", VISION),)


def test_the_checkpoints_of_a_run_are_read_as_its_task_names(monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"run: x\ncheckpoint: {{bucket: 's3://runs'}}\nconfig: {{aws: {{role_arn: '{SPEECH}'}}}}"
    task = parse_task(text, file="t.yaml", env={}).only.to_json()
    with open_store(load_paths(), real_services(load_paths())) as store:
        job = NewJob(
            kind="launch", run_id="r", digest="d", task=task, bucket="s3://runs", ranks=None,
            after_end=TeardownPolicy.KEEP,
        )  # fmt: skip
        store.open_job(store.open_cluster("mine", ""), job)
    identities: list[object] = []
    open_bucket = Bucket.open

    def note(_uri: str, access: CloudAccess) -> Bucket:
        identities.append(access.s3.identity)
        return open_bucket(f"file://{load_paths().state}")

    monkeypatch.setattr(Bucket, "open", note)
    find_run("mine", None)
    assert identities == [(("role_arn", SPEECH),)]


@pytest.mark.parametrize(
    ("project", "key", "value", "why"),
    [
        ("vision", "aws.profile", "x", "a project cannot set `aws.profile`"),
        ("vision", "aws.region", "x", "a project cannot set `aws.region`"),
        ("vision", "aws.role_arn", "vision", "role_arn is 'vision'"),
        ("vision", "gcp.impersonate", "ada@example.com", "impersonate is"),
        ("no/project", "aws.role_arn", VISION, "cannot be a project's name"),
    ],
)
def test_what_no_project_can_have_is_refused(project: str, key: str, value: str, why: str) -> None:
    with pytest.raises(UserError, match=why) as caught:
        make_setting(project, key, value)
    assert "aws.region VALUE" not in caught.value.next_step, "there is no such key"


def test_the_plan_says_as_whom_it_is_sent() -> None:
    set_project_setting("default", "aws.role_arn", VISION)
    set_project_setting("default", "gcp.impersonate", ACCOUNT)
    for resources, whom in ((EC2, VISION), (TPU, ACCOUNT)):
        file = parse_task(f"run: echo\nresources: {{{resources}}}", file="t.yaml", env={})
        ready = prepare_launch(file.only, cluster="mine", after=TeardownPolicy.KEEP)
        assert any(whom in note for note in ready.notes)
        assert render_plan(make_plan(ready.desired, ready.recorded, ready.facts), width=100)


def test_machines_are_observed_and_swept_as_whom_they_were_made_after_the_setting_changed(tmp_path: Path) -> None:
    access = InMemory(Scenario(zones=aws_zones("us-east-1a")), ManualClock())
    where = load_paths()
    with aws_server(access, roles=Roles({VISION: "", SPEECH: ""})) as server:
        provider = aws_provider(server.url, tmp_path)
        services = Services(provider=cast(Callable[[str], Any], lambda _: provider), host_operations=cast(Any, None),
                            clock=ManualClock())  # fmt: skip
        providers = Providers(services, "orch-inst-ada")
        made = _intent(aws_candidate(ONE_CARD, role_arn=VISION), "aws:111111111111@loopback")
        set_project_setting("default", "aws.role_arn", SPEECH)
        providers.of(made).observe("c-1", "t-1")
        assert _signed(server.roles, server.requests) == {VISION}
        assert {one.session for one in server.roles.given.values()} == {"orch-inst-ada"}
        with open_store(where, real_services(where)) as store:
            found = sweep.judge_owned_slices(store, services, ["aws"])
        assert {one.place for one in found if one.problem is None} >= {SPEECH}
        assert _signed(server.roles, server.requests) >= {VISION, SPEECH}


def _intent(candidate: Candidate, account: str) -> Intent:
    return Intent(
        generation=1, name="c-1", token="t-1", candidate=candidate, state=IntentState.ACCEPTED, since=0.0,
        account=account,
    )  # fmt: skip


def _signed(roles: Roles, calls: list[AwsCall]) -> set[str]:
    keys = [roles.find(call.headers.get("authorization", "")) for call in calls if call.operation != "AssumeRole"]
    return {one.role for one in keys if one is not None}
