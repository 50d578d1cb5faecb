"""`orch acceptance` on the simulated clouds: real sshd hosts behind sockets, every command a real process."""

from __future__ import annotations

import json
import re
import signal
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from support.heard import listening
from support.orch_process import Orch

from orch_fronts.aws.cloud import SimulatedAws
from orch_fronts.aws.ec2.visit import left as beside
from orch_fronts.aws.grants import owner as aws_owner
from orch_fronts.google.cloud import SimulatedGoogle
from orch_fronts.google.iam import owner as google_owner

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]

QUICK = "[durations]\ncreate = 0.5\nend = 0.2\nstop = 0.2\nstart = 0.5\ndetect = 0.2\ncontact = 0\n"
EMPTY = QUICK + '\n[[capacity]]\nzone = "*"\naccelerator = "*"\namount = 0\n'


@pytest.fixture
def google(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SimulatedGoogle]:
    folder = tmp_path / "google"
    folder.mkdir()
    (folder / "scenario.toml").write_text(getattr(request, "param", QUICK))
    with SimulatedGoogle(folder, grants=google_owner()) as google:
        yield google
        with google.cloud.open() as cloud:
            assert [look.name for look in cloud.live()] == [], "machines were left"


@pytest.fixture
def aws(tmp_path: Path) -> Iterator[SimulatedAws]:
    folder = tmp_path / "aws"
    folder.mkdir()
    (folder / "scenario.toml").write_text(QUICK)
    with SimulatedAws(folder, grants=aws_owner()) as aws:
        yield aws
        with aws.cloud.open() as cloud:
            assert [look.name for look in cloud.live()] == [], "machines were left"
            assert [one for one in beside(cloud) if not one.endswith("/default")] == []


@pytest.fixture
def orch(google: SimulatedGoogle, tmp_path: Path) -> Orch:
    return Orch(tmp_path, dict(google.env))


def read_report(orch: Orch) -> dict[str, Any]:
    (file,) = orch.folder.glob("acceptance-*.json")
    document: dict[str, Any] = json.loads(file.read_text())
    return document


def outcomes(report: dict[str, Any]) -> dict[str, str]:
    return {step["name"]: step["outcome"] for step in report["steps"]}


def assert_no_folder_is_kept(orch: Orch) -> None:
    assert list((orch.state / "acceptance").iterdir()) == []


@pytest.mark.full  # minutes of a processor
def test_the_whole_run_passes_on_google(orch: Orch, google: SimulatedGoogle) -> None:
    done = orch("acceptance", "gcp", "--bucket", "gs://runs", "--accelerators", "L4:1", timeout=400)
    report = read_report(orch)
    assert done.returncode == 0, (done.stdout, report)
    assert set(outcomes(report).values()) == {"passed"} and len(report["steps"]) == 29
    assert report["passed"] and report["left"] == [] and 0 < report["dollars"] < 1
    assert {line.split()[1] for line in done.stderr.splitlines() if line.startswith("passed")} == set(outcomes(report))
    text = json.dumps(report)
    for secret in (google.token, str(google.env["GOOGLE_CLOUD_PROJECT"]), str(orch.folder), "gs://runs"):
        assert secret not in text
    assert not re.search(r"\b\d+\.\d+\.\d+\.\d+\b", text), "no address"
    with google.cloud.open() as cloud:
        made = [call.name for call in cloud.mutations() if call.op == "create" and call.acted]
    assert len(made) == len(set(made)) == 3, "the killed launch and its repetition made one slice"
    assert orch.ok("storage", "ls", "-r", "gs://runs") == "", "nothing is left in the bucket"
    assert json.loads(orch.ok("status", "-o", "json"))["clusters"] == [], "the user's own records are not touched"
    assert_no_folder_is_kept(orch)


@pytest.mark.full  # minutes of a processor
def test_the_whole_run_passes_on_ec2(aws: SimulatedAws, tmp_path: Path) -> None:
    orch = Orch(tmp_path, dict(aws.env))
    keys = dict(zip(("aws_access_key_id", "aws_secret_access_key"),
                    (aws.env["AWS_ACCESS_KEY_ID"], aws.env["AWS_SECRET_ACCESS_KEY"]), strict=True))  # fmt: skip
    iam = boto3.client("iam", endpoint_url=aws.env["AWS_ENDPOINT_URL"], region_name="us-east-1", **keys)
    trust = {"Version": "2012-10-17", "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}]}  # fmt: skip
    iam.create_role(RoleName="hosts", AssumeRolePolicyDocument=json.dumps(trust))
    iam.create_instance_profile(InstanceProfileName="hosts")
    iam.add_role_to_instance_profile(InstanceProfileName="hosts", RoleName="hosts")
    orch.ok("config", "set", "aws.instance_profile", "hosts")
    orch.ok("config", "set", "limits.max_hours", "0.001")  # the user's own limits do not end the run
    done = orch("acceptance", "aws", "--bucket", "s3://runs/mine", "--accelerators", "Trainium:1", timeout=400)
    report = read_report(orch)
    assert done.returncode == 0, (done.stdout, report)
    assert set(outcomes(report).values()) == {"passed"} and len(report["steps"]) == 29
    text = json.dumps(report)
    assert (
        "123456789012" not in text and not re.search(r"\bi-[0-9a-f]{8}", text) and keys["aws_access_key_id"] not in text
    )
    assert orch.ok("storage", "ls", "-r", "s3://runs") == ""
    assert_no_folder_is_kept(orch)


@pytest.mark.parametrize("google", [EMPTY], indirect=True)
def test_a_refusal_is_in_the_report_as_the_corpus_has_it(orch: Orch) -> None:
    done = orch("acceptance", "gcp", "--infra", "gcp/us-central1/us-central1-a", timeout=200)
    report = read_report(orch)
    assert done.returncode == 1, done.stderr
    found = outcomes(report)
    assert found["launch"] == "failed" and found["exec"] == "not run" and found["status"] == "passed"
    (refusal, *_) = [one for one in report["refusals"] if one["step"] == "launch"]
    assert "does not have enough resources" in refusal["text"], refusal
    assert re.match(r"(GET|POST) /compute/v1/projects/<account>/zones/us-central1-a/", refusal["call"]), refusal
    (entry, *_) = [one for one in tomllib.loads(report["corpus"])["answer"] if one["text"] == refusal["text"]]
    assert entry["form"] == refusal["form"] and {"id", "source", "kind", "next"} < set(entry)
    assert report["left"] == []
    assert_no_folder_is_kept(orch)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_everything(orch: Orch, sent: signal.Signals) -> None:
    with listening(orch) as start:
        running = start("acceptance", "gcp", "--bucket", "gs://runs")
        running.until(r"passed +kill-launch")
        running.process.send_signal(sent)
        assert running.status() == 130, running.text
    assert "Traceback" not in running.text and "nothing is left" in running.text
    report = read_report(orch)
    found = outcomes(report)
    assert found["launch"] == "passed" and found["down"] == "not run"
    assert {step["why"] for step in report["steps"] if step["outcome"] == "not run"} == {"the run was stopped"}
    assert orch.ok("storage", "ls", "-r", "gs://runs") == ""
    assert_no_folder_is_kept(orch)


def test_no_step_begins_after_the_cap_in_time(orch: Orch) -> None:
    done = orch("acceptance", "gcp", "--max-minutes", "0.2", timeout=200)
    assert done.returncode == 1 and "nothing is left" in done.stdout, done.stderr
    found = outcomes(read_report(orch))
    assert found["check"] == "passed" and "not run" in found.values()
    assert_no_folder_is_kept(orch)


def test_a_plan_above_the_cap_is_refused_before_anything_is_sent(orch: Orch, google: SimulatedGoogle) -> None:
    done = orch("acceptance", "gcp", "--max-cost", "0.01")
    assert done.returncode == 2 and "more than --max-cost 0.01" in done.stderr, done.stderr
    assert google.server.requests == [] and list(orch.folder.glob("acceptance-*.json")) == []
    assert_no_folder_is_kept(orch)


def test_a_dry_run_shows_steps_and_price_sends_nothing_and_writes_nothing(orch: Orch, google: SimulatedGoogle) -> None:
    said = orch.ok("acceptance", "gcp", "--bucket", "gs://runs", "--accelerators", "v5e-4", "--dry-run")
    assert re.search(r"29 steps, about \d+ min and \$\d\.\d\d", said), said
    assert "v5litepod-4" in said and "orch storage rm -r gs://runs/acceptance-" in said
    assert google.server.requests == [] and not orch.state.exists()
    assert list(orch.folder.glob("acceptance-*")) == []


def test_mistakes_are_refused_by_name(orch: Orch) -> None:
    for words, what in [
        (("--bucket", "s3://other"), "--bucket gs://NAME"),
        (("--infra", "aws/us-east-1"), "is not a place of gcp"),
        (("--accelerators", "v5e-5"), "v5e-5"),
    ]:
        done = orch("acceptance", "gcp", *words)
        assert done.returncode == 2 and what in done.stderr and len(done.stderr.splitlines()) <= 5, done.stderr
