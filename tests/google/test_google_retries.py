"""The error table: from code and words to what it is."""

from __future__ import annotations

import pytest

from orchestrator.providers.core.faults import Answer, Kind
from orchestrator.providers.google.retries import by_code, explain


@pytest.mark.parametrize(
    ("code", "words", "expected"),
    [
        (8, 'There is no more capacity in the zone "us-central1-c"; you can try in another zone', Kind.CAPACITY),
        (8, "Insufficient reserved capacity. Contact customer support to increase your reservation.", Kind.CAPACITY),
        (8, "the zone does not have enough resources available to fulfill the request (state:STOCKOUT)", Kind.CAPACITY),
        (8, "whatever else is exhausted", Kind.CAPACITY),
        (14, "no available resources", Kind.CAPACITY),
        (
            8,
            "Quota limit 'TPUV6EPerProjectPerZoneForTPUAPI' has been exceeded. Limit: 0 in us-east5-a.",
            Kind.QUOTA,
        ),
        (7, "Quota 'TPUS' exceeded", Kind.QUOTA),
        (7, "The tpu.googleapis.com API requires a quota project, which is not set by default.", Kind.PERMISSION),
        (8, "Quota exceeded for quota metric 'Read requests' and limit 'Read requests per minute'", Kind.THROTTLED),
        (7, "Rate Limit Exceeded", Kind.THROTTLED),
        (7, "Cloud TPU API has not been used in project 123 before or it is disabled", Kind.API_DISABLED),
        (7, "anything SERVICE_DISABLED", Kind.API_DISABLED),
        (7, "Permission 'tpu.nodes.create' denied on resource", Kind.PERMISSION),
        (7, "Location europe-west1-b is not found or access is unauthorized.", Kind.NOT_OFFERED),
        (3, "Accelerator type v6e-8 is not available in zone us-west4-a", Kind.NOT_OFFERED),
        (16, "Request had invalid authentication credentials", Kind.CREDENTIALS),
        (5, "node was not found", Kind.NOT_FOUND),
        (6, "exists", Kind.TAKEN),
        (3, "bad", Kind.UNKNOWN),
        (3, "Invalid value for field", Kind.INVALID),
        (9, "not in this state", Kind.WRONG_STATE),
        (1, "cancelled", Kind.NO_ANSWER),
        (4, "deadline", Kind.NO_ANSWER),
        (10, "aborted", Kind.UNAVAILABLE),
        (13, "internal", Kind.UNAVAILABLE),
        (14, "unavailable", Kind.UNAVAILABLE),
        (99, "a code of tomorrow", Kind.UNAVAILABLE),
    ],
)
def test_code_and_words_say_what_it_is(code: int, words: str, expected: Kind) -> None:
    assert by_code(code, words) is expected


def test_what_may_have_acted_is_never_called_a_refusal() -> None:
    assert {kind for kind in Kind if kind.may_have_acted} == {Kind.UNAVAILABLE, Kind.NO_ANSWER}
    assert all(kind.worth_asking_again for kind in Kind if kind.may_have_acted)


def test_a_mistake_of_ours_is_not_taken_for_an_answer() -> None:
    from orchestrator.providers.google.retries import understood

    assert understood(TypeError("ours")) is None
    assert understood(KeyError("ours")) is None


def test_every_kind_is_explained_with_something_to_do() -> None:
    from orchestrator.providers.core.faults import Answer
    from orchestrator.providers.google.retries import explain

    for kind in Kind:
        for verb in ("create", "end", "list", "stop"):
            error = explain(verb, "demo-1", Answer(kind=kind, words="words of Google"), "my-project")
            assert "words of Google" in f"{error}"
            assert error.next_step


@pytest.mark.parametrize(
    ("status", "content", "expected"),
    [
        (400, b'{"error": {"code": 400, "message": "bad", "status": "FAILED_PRECONDITION"}}', Kind.WRONG_STATE),
        (400, b'{"error": {"code": 400, "message": "bad", "status": "INVALID_ARGUMENT"}}', Kind.UNKNOWN),
        (409, b'{"error": {"code": 409, "message": "busy", "status": "ABORTED"}}', Kind.UNAVAILABLE),
        (403, b'{"error": {"message": "no", "errors": [{"reason": "rateLimitExceeded"}]}}', Kind.THROTTLED),
        (403, b'{"error": {"message": "no", "details": [{"reason": "SERVICE_DISABLED"}]}}', Kind.API_DISABLED),
        (404, b"<html>no</html>", Kind.NOT_FOUND),
        (502, b"", Kind.UNAVAILABLE),
        (503, b'["odd"]', Kind.UNAVAILABLE),
    ],
)
def test_answers_to_the_discovery_client_are_in_the_same_table(status: int, content: bytes, expected: Kind) -> None:
    from googleapiclient.errors import HttpError
    from httplib2 import Response

    from orchestrator.providers.google.retries import understood

    answer = understood(HttpError(Response({"status": status, "retry-after": "7"}), content))
    assert answer is not None
    assert (answer.kind, answer.wait) == (expected, 7.0)


def test_what_breaks_below_the_discovery_client_is_no_answer() -> None:
    import http.client

    import httplib2

    from orchestrator.providers.google.retries import understood

    for error in (httplib2.ServerNotFoundError("dns"), http.client.IncompleteRead(b""), TimeoutError()):
        answer = understood(error)
        assert answer is not None
        assert answer.kind is Kind.NO_ANSWER


def test_refused_credentials_of_google_itself_are_renewed_with_gcloud(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORCH_GCP_ENDPOINT", raising=False)
    error = explain("create", "demo-1", Answer(kind=Kind.CREDENTIALS, words="expired"))
    assert error.next_step == "gcloud auth application-default login"
