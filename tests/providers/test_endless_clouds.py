"""A server in place of a cloud's that never ends its answers: a call ends in its time, in little memory."""

from __future__ import annotations

import resource
import time

import pytest
from botocore.exceptions import BotoCoreError
from support.endless_server import endless_server

from orchestrator.catalog.ec2 import list_machines
from orchestrator.errors import CloudError
from orchestrator.providers import caller
from orchestrator.providers.aws import session as aws_session
from orchestrator.providers.aws.endpoint import ENDPOINT
from orchestrator.providers.aws.prices import read_prices
from orchestrator.providers.aws.session import AwsSession
from orchestrator.providers.google import session as google_session
from orchestrator.providers.google.session import Session, open_session
from orchestrator.providers.price_refresh import PriceRequest, Progress

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
DRIPPING = {
    "100 Continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"A: b\r\n"),
    "content": (HEAD + b"Content-Length: 100000\r\n\r\n", b" "),
    "chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
}
FLOODS = {
    "100 Continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 2000),
    "chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b" " * 0x10000 + b"\r\n"),
    "content": (HEAD + b"\r\n", b" " * 65536),
}


def ask_aws(url: str) -> None:
    with pytest.raises(BotoCoreError):
        AwsSession(endpoint=url, tries=1).client("ec2", "us-east-1").describe_regions()


def ask_google(url: str, monkeypatch: pytest.MonkeyPatch, timeout: float) -> None:
    monkeypatch.setenv(google_session.ENDPOINT, url)
    service = open_session().service("compute", "v1", timeout=timeout)
    with pytest.raises(OSError, match="its answer"):
        service.machineTypes().aggregatedList(project="p").execute()


@pytest.mark.parametrize("kind", DRIPPING)
@pytest.mark.parametrize("cloud", ["aws", "google"])
def test_an_answer_that_drips_is_cut_off_at_its_time(kind: str, cloud: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aws_session, "ANSWER_SECONDS", 0.5)
    with endless_server(*DRIPPING[kind]) as server:
        began = time.monotonic()
        if cloud == "aws":
            ask_aws(server.url)
        else:
            ask_google(server.url, monkeypatch, 0.5)
        assert time.monotonic() - began < 20.0, "and not after the 100 headers, or 100,000 bytes, of the answer"
        assert server.connections == 1


@pytest.mark.parametrize("kind", FLOODS)
@pytest.mark.parametrize("cloud", ["aws", "google"])
def test_an_answer_that_floods_is_cut_off_at_its_bytes(kind: str, cloud: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aws_session, "MOST_BYTES", 8 << 20)
    monkeypatch.setattr(google_session, "MOST_BYTES", 8 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with endless_server(*FLOODS[kind], 0.0) as server:
        if cloud == "aws":
            ask_aws(server.url)
        else:
            ask_google(server.url, monkeypatch, 60.0)
        assert server.sent < 32 << 20, "of which the most are in buffers of the system"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 128 << 10, "KiB"


def test_a_price_list_that_does_not_answer_is_asked_about_few_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    with endless_server(b"", b"") as server:
        monkeypatch.setenv(ENDPOINT, server.url)
        monkeypatch.setattr(aws_session, "READ_SECONDS", 0.3)
        found = read_prices(PriceRequest(now=1_800_000_000.0, today="2027-01-15"), Progress(lambda *_: None))
        assert not found.rows and "no answer" in found.unread[0].why
        tries = server.connections
    assert tries < len(list_machines()), "a silent server is asked by each thread once, and not about each machine"


@pytest.mark.parametrize("kind", DRIPPING)
def test_a_service_that_tells_the_own_address_is_left_at_its_time(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller, "ASK_SECONDS", 0.5)
    monkeypatch.setattr(caller, "_LONGEST_ANSWER", 1 << 20)
    with endless_server(*DRIPPING[kind]) as server, pytest.raises(CloudError) as refused:
        caller.caller_address(Session(None, "p"), [server.url])
    assert "its answer did not come within" in refused.value.why
