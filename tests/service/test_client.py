"""The client in Python and `orch login`, against a service with its engine."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.orch_process import Orch
from support.service_site import Served, record_run, serve

import orchestrator
from orchestrator.client.http import Client
from orchestrator.client.transport import ServiceError
from orchestrator.errors import AccessError, CloudError, UserError
from orchestrator.store.store import Store

TASK = "name: mine\nresources: {infra: 'local:1'}\nrun: 'true'\n"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    orch = Orch(tmp_path_factory.mktemp("service"))
    with Store(orch.state / "orch.db") as store:
        for number in range(130):
            record_run(store, f"c{number}", f"run-{number}", ended=number < 129)
    with serve(orch) as served:
        yield served


@pytest.fixture
def client(service: Served) -> Iterator[Client]:
    with orchestrator.Client(f"http://127.0.0.1:{service.port}", service.token) as found:
        yield found


def test_lists_are_read_to_their_end(client: Client) -> None:
    runs = [run["run_id"] for run in client.list_runs()]
    assert len(runs) == len(set(runs)) == 130
    assert client.show_run(runs[0])["run"]["run_id"] == runs[0]
    assert client.read_curves(runs[0])["points"] == []
    numbers = [event["seq"] for event in client.list_events()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(client.list_clusters()) == 130 and client.show_queue()["kind"] == "queue"


def test_the_text_of_a_plan_says_which_jobs_end_with_the_machines(client: Client) -> None:
    text = client.make_plan("down", cluster="c129").text
    assert (
        text.startswith("note: job 1 (launch) is running on 'c129'; it ends with the machines\n") and "c129-1" in text
    )
    assert "note:" not in client.make_plan("down", cluster="c0").text


def test_what_is_ordered_is_done(client: Client) -> None:
    plan = client.make_plan("launch", task=TASK)
    assert "local:1" in plan.text
    order = client.wait_for_order(client.order(plan), 60)
    assert order["status"] == 0, order
    down = client.make_plan("down", cluster="mine")
    assert client.wait_for_order(client.order(down), 60)["what"] == "cluster 'mine' is deleted"
    with pytest.raises(ServiceError) as refused:
        client.make_plan("down", cluster="none")
    assert (refused.value.code, refused.value.exit_status, refused.value.http_status) == ("not-found", 3, 404)


class CutsAnswers(threading.Thread):
    """A relay that takes the answer to the first order away, after the service has made it."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port, self.to, self.cut = self.listening.getsockname()[1], port, 0

    def run(self) -> None:
        while True:
            try:
                near = self.listening.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.relay, args=(near,), daemon=True).start()

    def relay(self, near: socket.socket) -> None:
        with near, socket.create_connection(("127.0.0.1", self.to)) as far:
            while request := read_message(near):
                far.sendall(request.replace(f":{self.port}".encode(), f":{self.to}".encode(), 1))
                answer = read_message(far)
                if request.startswith(b"POST /v1/orders") and not self.cut:
                    self.cut += 1
                    return
                near.sendall(answer)


def read_message(near: socket.socket) -> bytes:
    """Return a request or an answer with its body; b"" at the end of the connection."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        if not (more := near.recv(1)):
            return b""
        head += more
    size = re.search(rb"content-length: (\d+)", head.lower())
    return head + (near.recv(int(size[1]), socket.MSG_WAITALL) if size else b"")


def test_a_lost_answer_to_an_order_makes_no_second_one(service: Served) -> None:
    relay = CutsAnswers(service.port)
    relay.start()
    with Client(f"http://127.0.0.1:{relay.port}", service.token) as client:
        plan = client.make_plan("down", cluster="c7")
        before = len([one for one in client.list_events(cluster="c7") if one["kind"] == "order"])
        order = client.order(plan)
        assert relay.cut == 1
        made = [one for one in client.list_events(cluster="c7") if one["what"].endswith("asked: down 'c7'")]
    relay.listening.close()
    assert (before, len(made)) == (0, 1) and made[0]["subject"] == f"order {order['id']}"


@pytest.mark.slow
def test_an_answer_that_is_cut_anywhere_and_requested_again_is_of_one_order(service: Served, client: Client) -> None:
    """The connection ends after so many bytes of the answer; the same key again gives the whole of the same one."""
    size = 600
    for number, cut in enumerate([*range(0, size, 29), size - 1]):
        cluster, key = f"c{20 + number}", f"cut-after-{cut:03}"
        plan = client.make_plan("down", cluster=cluster)
        content = json.dumps(plan.request | {"plan": plan.document["plan"]}).encode()
        head = (
            f"POST /v1/orders HTTP/1.1\r\nHost: 127.0.0.1:{service.port}\r\nAuthorization: Bearer {service.token}\r\n"
            f"Content-Type: application/json\r\nIdempotency-Key: {key}\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", service.port)) as first:
            first.sendall(head.encode() + content)
            if cut:
                first.recv(cut, socket.MSG_WAITALL)
        with socket.create_connection(("127.0.0.1", service.port)) as again:
            again.sendall(head.encode() + content)
            answer = read_message(again)
        assert answer.startswith(b"HTTP/1.1 202"), answer
        assert len(answer) > size
        found = [one for one in client.list_events(cluster=cluster) if one["what"].endswith(f"asked: down '{cluster}'")]
        assert len(found) == 1, f"cut after {cut} bytes"


@pytest.mark.parametrize("url", ["orch.example.org", "ftp://x", "https://x/path", "http://orch.example.org", ""])
def test_an_address_that_is_wrong_or_readable_is_refused(url: str) -> None:
    with pytest.raises(UserError):
        Client(url, "orch_x")


def test_no_service_is_an_error_with_a_next_step(service: Served) -> None:
    with Client("http://127.0.0.1:9", "orch_x") as client, pytest.raises(CloudError, match="does not answer"):
        client.show_member()
    with Client(f"http://127.0.0.1:{service.port}", "orch_x") as client, pytest.raises(ServiceError) as refused:
        client.show_member()
    assert refused.value.http_status == 401


def test_a_login_keeps_the_token_for_this_user_alone(
    service: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, ada = f"http://127.0.0.1:{service.port}", Orch(tmp_path)
    secret = service.orch.ok("token", "create", f"ada-{os.getpid()}", "--member", "ada")
    link = ada.ok("login", url, "--token-stdin", stdin=secret)
    assert link.startswith(f"{url}/login#")
    kept = ada.state / "service" / "logins.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert ada.ok("login").startswith(f"{url}/login#")
    wrong = ada("login", url, "--token-stdin", stdin="orch_wrong\n")
    assert wrong.returncode == 4 and "orch_wrong" not in wrong.stderr, wrong.stderr
    assert ada("login", url, "--token-stdin", stdin="").returncode == 2
    missing = ada("login", url, stdin=secret)
    assert missing.returncode == 2 and f"next: orch login {url} --token-stdin < FILE" in missing.stderr
    monkeypatch.setenv("ORCH_HOME", str(tmp_path / "orch"))
    with Client.connect() as client:
        assert client.show_member()["member"] == "ada"
    with pytest.raises(AccessError, match="no token is kept"):
        Client.connect("https://other.example.org")
