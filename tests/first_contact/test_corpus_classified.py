"""Every answer of the corpus goes through the vendor's client library, our classifier and our message."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from first_contact_corpus import Entry, load_corpus
from first_contact_server import AnswerServer

from orchestrator.errors import CapacityError, OrchError, QuotaError, RefusalScope, RefusedError
from orchestrator.exits import Exit
from orchestrator.plan.refusals import Refusal, choose_ending
from orchestrator.providers.aws import faults, states
from orchestrator.providers.core.faults import Answer, Kind, Refused, is_final
from orchestrator.providers.google import retries
from orchestrator.providers.google.compute.api import failure_of
from orchestrator.providers.google.states import queued_view

CORPUS = load_corpus()
GOOGLE = [one for one in CORPUS if one.form in ("tpu", "compute", "operation", "compute-operation", "refresh")]
AWS = [one for one in CORPUS if one.form in ("ec2", "query", "json", "s3")]
ENDINGS = {  # of a launch that nothing but this answer ends
    Kind.PERMISSION: Exit.PERMISSION,
    Kind.API_DISABLED: Exit.PERMISSION,
    Kind.CREDENTIALS: Exit.PERMISSION,
    Kind.INVALID: Exit.USAGE,
    Kind.NOT_YET: Exit.USAGE,
    Kind.NOT_FOUND: Exit.USAGE,
}
RETRIED = (Kind.THROTTLED, Kind.UNAVAILABLE, Kind.NO_ANSWER, Kind.NOT_YET, Kind.MISMATCH, Kind.IN_USE)


@pytest.fixture(scope="module")
def server() -> Iterator[AnswerServer]:
    with AnswerServer().running() as running:
        yield running


def read_google_answer(entry: Entry, server: AnswerServer) -> Answer | None:
    """Return what the client library and our classifier make of the entry."""
    if entry.form == "operation":
        from google.rpc import status_pb2

        status: Any = status_pb2.Status(code=int(entry.code), message=entry.text)
        return retries.read_status(status.code, status.message)
    if entry.form == "compute-operation":
        return failure_of({"error": {"errors": [{"code": entry.code, "message": entry.text}]}})
    server.entry = entry
    with pytest.raises(Exception) as raised:  # of the library's many types
        {"tpu": _call_tpu, "compute": _call_compute, "refresh": _refresh}[entry.form](server.url)
    return retries.understood(cast(Exception, raised.value))


def _call_tpu(url: str) -> None:
    import requests
    from google.api_core import exceptions

    target = f"{url}/v2/projects/orch-example/locations/us-central1-a/nodes?nodeId={'a' * 60}"
    raise exceptions.from_http_response(requests.post(target, json={}, timeout=10))


def _call_compute(url: str) -> None:
    import httplib2
    from googleapiclient.http import HttpRequest
    from googleapiclient.model import JsonModel

    HttpRequest(httplib2.Http(timeout=10), JsonModel().response, f"{url}/compute/v1/projects/orch-example").execute()


def _refresh(url: str) -> None:
    from google.auth.transport.requests import Request
    from google.oauth2.credentials import Credentials

    made: Any = Credentials(None, refresh_token="r", token_uri=f"{url}/token", client_id="c", client_secret="s")
    made.refresh(Request())


def read_aws_answer(entry: Entry, server: AnswerServer) -> Answer | None:
    """Return what botocore and our classifier make of the entry."""
    import boto3
    from botocore.config import Config

    server.entry = entry
    service, method, params = {
        "ec2": ("ec2", "run_instances", {"MinCount": 1, "MaxCount": 1}),
        "query": ("sts", "get_caller_identity", {}),
        "json": ("service-quotas", "get_service_quota", {"ServiceCode": "ec2", "QuotaCode": "L-417A185B"}),
        "s3": ("s3", "get_object", {"Bucket": "b", "Key": "k"}),
    }[entry.form]
    config = Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"})
    client: Any = boto3.client(
        service, region_name="us-west-2", endpoint_url=server.url, config=config,
        aws_access_key_id="AKIAEXAMPLE", aws_secret_access_key="secret",
    )  # fmt: skip
    with pytest.raises(Exception) as raised:  # botocore makes the type at run time
        getattr(client, method)(**params)
    return faults.understood(cast(Exception, raised.value), "RunInstances" if entry.form == "ec2" else "")


def _refused(error: OrchError) -> Any:
    """Return what a launch records of it."""
    return SimpleNamespace(why=str(Refusal.from_error(error)))


def check_conclusion(entry: Entry, answer: Answer | None, error: OrchError) -> None:
    """Check the kind, whether the next candidate is tried, and the user's next step."""
    assert answer is not None
    assert answer.kind.name.lower() == entry.kind
    scope = error.scope if isinstance(error, CapacityError) else None
    final = is_final(Refused(answer))
    match entry.next:
        case "next place":
            assert scope is RefusalScope.ZONE and final
        case "next region":
            assert scope in (RefusalScope.MARKET, RefusalScope.REGION) and final
        case "next market":
            assert scope is RefusalScope.MARKET and final
        case "retry":
            assert answer.kind in RETRIED
            assert final is (answer.kind is Kind.NOT_YET)  # the driver itself waits for that, see aws/steps.py
        case _:
            # After a login the create continues.
            assert final or answer.kind in (Kind.NOT_FOUND, Kind.IN_USE, Kind.CREDENTIALS)
            assert scope in (None, RefusalScope.ACCOUNT)
    assert choose_ending([_refused(error)])[1] == ENDINGS.get(answer.kind, Exit.CAPACITY)
    shown = "\n".join(error.lines())
    assert entry.step in shown
    assert "{" not in error.next_step


@pytest.mark.parametrize("entry", GOOGLE, ids=lambda entry: entry.id)
def test_google_answer(entry: Entry, server: AnswerServer) -> None:
    answer = read_google_answer(entry, server)
    assert answer is not None
    error = retries.explain("create", "orch-mine-1", answer, "orch-example")
    check_conclusion(entry, answer, error)
    assert " ".join(entry.text.split()) in answer.words  # the whole text, however long


@pytest.mark.parametrize("entry", AWS, ids=lambda entry: entry.id)
def test_aws_answer(entry: Entry, server: AnswerServer) -> None:
    answer = read_aws_answer(entry, server)
    assert answer is not None and answer.code == entry.code
    error = faults.explain("create", "orch-mine-1", answer)
    check_conclusion(entry, answer, error)
    text = " ".join(entry.text.split()).partition(" Encoded authorization failure message")[0]
    assert text in answer.words
    assert "Encoded" not in error.why


@pytest.mark.parametrize("entry", [one for one in CORPUS if one.form == "queued-state"], ids=lambda entry: entry.id)
def test_queued_state(entry: Entry) -> None:
    from google.cloud import tpu_v2alpha1

    queued = tpu_v2alpha1.QueuedResource(state={"state": entry.state})
    assert queued_view(queued, 0.0).state.name.lower() == entry.kind


@pytest.mark.parametrize("entry", [one for one in CORPUS if one.form == "instance-state"], ids=lambda entry: entry.id)
def test_instance_state(entry: Entry) -> None:
    instance = {"State": {"Name": entry.state}, "StateReason": {"Code": entry.code, "Message": entry.text}}
    record: Any = SimpleNamespace(phase=None, market="on-demand", ends=0.0, hosts=1, power="")
    view = states.together(record, [instance], 0.0)
    assert view.state.name.lower() == entry.kind
    assert entry.text in view.reason


UNKNOWN = "Cloud TPU received an order that no one has seen before."


@pytest.mark.parametrize("kind", [Kind.UNKNOWN, Kind.WRONG_STATE])
def test_unknown_refusal_of_a_create_goes_to_the_next_candidate(kind: Kind) -> None:
    error = retries.explain("create", "orch-mine-1", Answer(kind=kind, words=UNKNOWN))
    assert isinstance(error, RefusedError) and error.scope is RefusalScope.ZONE
    assert UNKNOWN in error.why and "orch does not know this answer" in error.why
    assert is_final(Refused(Answer(kind=kind, words=UNKNOWN)))
    assert not isinstance(retries.explain("stop", "orch-mine-1", Answer(kind=kind, words=UNKNOWN)), CapacityError)


def test_long_names_do_not_hide_the_cause() -> None:
    words = f"projects/{'p' * 2000}: User does not have permission to submit requests for accelerator type"
    answer = retries.read_status(7, words)
    assert answer.kind is Kind.NOT_OFFERED


@pytest.mark.parametrize("text", ["Reservation not found", "Reservation not found."])
def test_spot_without_reservation_tries_the_next_place(text: str) -> None:
    answer = retries.read_status(5, text)
    assert isinstance(retries.explain("create", "m", answer), CapacityError)


def test_quota_of_one_zone_lets_other_zones_be_tried() -> None:
    answer = retries.read_status(
        8, "Quota 'TPUV5sLitepodServingPerProjectPerZoneForTPUAPI' exhausted. Limit 4 in zone z"
    )
    error = retries.explain("create", "m", answer)
    assert isinstance(error, QuotaError) and error.scope is RefusalScope.ZONE
