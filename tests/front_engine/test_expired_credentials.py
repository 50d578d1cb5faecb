"""Credentials that a cloud stops accepting while a job runs: no loss, no end, and the command that logs in."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from support.aws_cloud import ZONE, aws_candidate, aws_zones
from support.driving import Listener
from support.ec2_front import Ec2Home, Ec2Service, ec2_service
from support.served import served
from support.simulated import sim_launch, sim_task, simulated, use_home

from orch_fronts.aws.calls import AwsCall, AwsRefusal
from orch_fronts.aws.server import AwsServer
from orchestrator.engine.loop.drive import drive_cluster
from orchestrator.engine.preparation import commands
from orchestrator.engine.preparation.prepared import CommandResult
from orchestrator.engine.state.recorded import load_observed, open_reader
from orchestrator.engine.unattended.engine import UnattendedEngine, _Work
from orchestrator.errors import CredentialsError
from orchestrator.exits import Exit
from orchestrator.paths import load_paths
from orchestrator.providers.aws.provider import AwsProvider
from orchestrator.providers.aws.session import AwsSession
from orchestrator.providers.google.compute.provider import open_compute
from orchestrator.providers.google.session import SCOPE, Session
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.programs import Program
from orchestrator.simulator.scenario import Durations, Scenario
from orchestrator.slices import SliceState
from orchestrator.store.records import JobRecord

EVEN = Durations(create=4.0, end=2.0, contact=0.01, jitter=0.0)


@pytest.fixture(scope="module")
def service() -> Iterator[Ec2Service]:
    with ec2_service() as made:
        yield made


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ORCH_HOME", "ORCH_STORE"):
        monkeypatch.setenv(name, "")
    use_home(tmp_path)


@contextmanager
def expired(service: Ec2Service, first: str = "") -> Generator[None]:
    """AWS refuses every call, or every one from the first call of an operation on."""
    reached = [not first]

    class Guard:
        def admit(self, call: AwsCall, needs: object) -> None:
            reached[0] = reached[0] or call.operation == first
            if reached[0]:
                raise AwsRefusal("ExpiredToken", "The security token included in the request is expired", 400)

    service.server.guard = Guard()
    try:
        yield
    finally:
        service.server.guard = None


def home_of(service: Ec2Service) -> Ec2Home:
    access = InMemory(Scenario(zones=aws_zones(ZONE), durations=EVEN), ManualClock())
    with access.open() as cloud:
        cloud.set_program("*", Program(seconds=60.0))
    service.account.current = access
    service.server.requests.clear()
    return Ec2Home(access, client=service.client)


def only_job() -> JobRecord:
    with open_reader() as reader:
        cluster = reader.cluster("c")
        assert cluster is not None
        (job,) = reader.jobs(cluster)
        return job


def watch(home: Ec2Home) -> CommandResult:
    """Continue the job as an engine does that reads the records alone."""
    again = simulated(commands.prepare_continuation("c", only_job()), home.candidate())
    return drive_cluster(again, Listener(), services=home.services())


def test_a_running_job_outlives_expired_credentials(service: Ec2Service) -> None:
    home = home_of(service)
    drive_cluster(sim_launch(sim_task(), home.candidate()), Listener(), follow=False, services=home.services())
    for _ in range(3):  # as an unattended engine tries it
        with expired(service), pytest.raises(CredentialsError) as caught:
            watch(home)
        assert "ExpiredToken" in str(caught.value) and caught.value.exit_status == Exit.PERMISSION
        assert caught.value.next_step.startswith("aws sso login")
        assert only_job().state != "ended"
    ending = watch(home)
    assert ending.status == Exit.OK
    assert ending.attempts == (), "no attempt was lost"


@pytest.mark.parametrize(
    "first", ["DescribeInstanceTypeOfferings", "GetParameter", "CreatePlacementGroup", "RunInstances"]
)
def test_a_create_continues_after_a_login(service: Ec2Service, first: str) -> None:
    home = home_of(service)
    ready = sim_launch(sim_task(), home.candidate())
    with expired(service, first), pytest.raises(CredentialsError) as caught:
        drive_cluster(ready, Listener(), services=home.services())
    assert only_job().state != "ended"
    with open_reader() as reader:
        is_open = load_observed(reader, "c").current is not None
    assert is_open is ("orch down c" in caught.value.next_step), "an open record is named with what ends it"
    ending = watch(home)
    assert ending.status == Exit.OK, ending
    made = [call for call in service.server.requests if call.operation == "RunInstances"]
    assert len({call.params["ClientToken"] for call in made}) <= 2
    with home.access.open() as cloud:
        assert len(cloud.live()) == 1, "nothing was made twice"


def test_an_unattended_engine_reports_the_login_once_and_reads_the_credentials_again(service: Ec2Service) -> None:
    home, listener, reopened = home_of(service), Listener(), list[str]()
    services = replace(home.services(), reopen_providers=lambda: reopened.append("again"))
    engine = UnattendedEngine(where=load_paths(), services=services, narrators=lambda *_: listener)
    work = _Work(tries=3)

    def refused() -> bool:
        raise CredentialsError("aws does not accept them", "ExpiredToken", "aws sso login --profile work")

    for _ in range(2):
        engine._guarded("job c/1", work, refused)
    assert len(listener.notes) == 1 and "once you have run: aws sso login --profile work" in listener.notes[0]
    assert reopened == ["again"] * 2 and work.tries == 0, "the pauses do not grow"
    engine._guarded("job c/1", work, lambda: True)
    engine._guarded("job c/1", work, refused)
    assert len(listener.notes) == 2, "the next expiry is reported again"


def test_the_credentials_file_of_aws_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    access = InMemory(Scenario(zones=aws_zones(ZONE), durations=EVEN), ManualClock())
    file = tmp_path / "credentials"
    with AwsServer(access, secret="right") as server:
        for name in ("PROFILE", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "ENDPOINT_URL"):
            monkeypatch.delenv(f"AWS_{name}", raising=False)
        for name in ("EC2", "STS", "SSM"):
            monkeypatch.setenv(f"AWS_ENDPOINT_URL_{name}", server.url)
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

        def provider() -> AwsProvider:
            return AwsProvider(lambda profile: AwsSession(profile, tries=1), tmp_path / "aws", access.clock.now)

        file.write_text("[work]\naws_access_key_id = k\naws_secret_access_key = old\n")
        candidate = aws_candidate(profile="work")
        with pytest.raises(CredentialsError) as caught:
            provider().account(candidate)
        assert caught.value.next_step.startswith("aws sso login")
        file.write_text("[work]\naws_access_key_id = k\naws_secret_access_key = right\n")
        assert provider().account(candidate) == "aws:123456789012"


def test_a_revoked_login_and_a_busy_token_server_of_google_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import google.auth

    answers: list[tuple[int, dict[str, Any]]] = []
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with served(lambda *_: answers[0]) as url:
        account = {
            "type": "service_account", "client_email": "a@b.c", "private_key": key.decode(),
            "token_uri": f"{url}/token", "project_id": "p",
        }  # fmt: skip
        (tmp_path / "adc.json").write_text(json.dumps(account))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "adc.json"))
        monkeypatch.delenv("ORCH_GCP_ENDPOINT", raising=False)
        library: Any = google.auth

        def view() -> Any:
            credentials, project = library.default(scopes=[SCOPE])
            provider = open_compute(Session(credentials, project, url), tmp_path / "records")  # type: ignore[arg-type]  # credentials of the test
            return provider.observe("demo-1")

        answers[:] = [(400, {"error": "invalid_grant", "error_description": "Token has been expired or revoked."})]
        found = view()
        assert found.state is SliceState.UNCLEAR and "invalid_grant" in found.reason
        assert found.login == "gcloud auth application-default login"
        answers[:] = [(503, {"error": "internal_failure"})]
        found = view()
        assert (found.state, found.login) == (SliceState.UNCLEAR, ""), found
