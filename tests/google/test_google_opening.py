"""Opening the provider: records, credentials, project, and the server that stands in for Google."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from google_bench import Bench
from google_cases import candidate, spec

from orchestrator.errors import AccessError, CloudError, UserError
from orchestrator.providers.google import client, session
from orchestrator.providers.google.provider import TpuProvider, open_provider
from orchestrator.slices import SliceState


def test_record_holds_no_private_key_and_is_for_the_owner_only(bench: Bench) -> None:
    bench.created(spec())
    (file,) = (bench.state / "google").glob("*.json")
    assert file.stat().st_mode & 0o077 == 0
    body = bench.keys.host_private[0].splitlines()[2]
    assert body not in file.read_text()


def test_broken_record_is_unclear_and_no_reason_to_make_another_slice(bench: Bench) -> None:
    bench.created(spec())
    (bench.state / "google" / "demo-1.json").write_text("{")
    assert bench.provider().observe("demo-1").state is SliceState.UNCLEAR
    with pytest.raises(CloudError):
        bench.created(spec())
    assert len(bench.fake.nodes) == 1


@pytest.mark.parametrize(
    "value",
    ["https://127.0.0.1:1", "http://tpu.googleapis.com", "http://10.0.0.1:1", "http://127.0.0.1:1/x", "nonsense"],
)
def test_only_a_server_on_this_computer_may_stand_in_for_google(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(session.ENDPOINT, value)
    with pytest.raises(UserError, match=session.ENDPOINT):
        client.open_api(session.open_session())


def test_without_credentials_the_error_says_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(session.ENDPOINT, raising=False)
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CORE_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(AccessError) as caught:
        open_provider(tmp_path)
    assert caught.value.next_step == "gcloud auth application-default login"


def test_without_a_project_nothing_is_sent(bench: Bench) -> None:
    opened = replace(session.open_session(), project="")
    provider = TpuProvider(client.open_api(opened), bench.state / "google")
    with pytest.raises(UserError, match="no Google project"):
        provider.create(spec(candidate(project="")), bench.keyed(spec()))
    assert bench.fake.calls == []
