"""Refusals are recorded as they come over the wire, from a real server, and written in the form of the corpus."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from orchestrator.acceptance.answers import Refusal, parse_refusal, read_refusals, write_corpus

STOCKOUT = 'There is no more capacity in the zone "us-central1-b"; you can try in another zone [EID: 0x1]'
EC2 = """<?xml version="1.0" encoding="UTF-8"?><Response><Errors><Error><Code>VcpuLimitExceeded</Code>
<Message>You have requested more vCPU capacity than your current vCPU limit of 0 allows.</Message></Error></Errors>
<RequestID>0d5b4f4c</RequestID></Response>"""
GOOGLE = json.dumps({"error": {"code": 429, "message": STOCKOUT, "status": "RESOURCE_EXHAUSTED",
                               "details": [{"@type": "x", "reason": "stockout"}]}})  # fmt: skip
OPERATION = json.dumps({"name": "o", "status": "DONE", "error": {"errors": [
    {"code": "ZONE_RESOURCE_POOL_EXHAUSTED", "message": "The zone does not have enough resources"}]}})  # fmt: skip
PLAYED = {
    "/v2/projects/p/locations/us-central1-b/nodes": (429, GOOGLE, "plain"),
    "/ec2": (400, EC2, "chunked"),
    "/compute/v1/projects/p/zones/z/operations/o": (200, OPERATION, "gzip"),
    "/v2/projects/p/locations/z/nodes/absent": (404, GOOGLE, "plain"),
    "/fine": (200, '{"error": {"code": 8}}', "plain"),
}
CLIENT = """
import sys
from pathlib import Path
from orchestrator.acceptance.answers import record_answers
record_answers(Path(sys.argv[2]))
import {library}
url = sys.argv[1]
{calls}
"""
CALLS = {
    "requests": """
s = requests.Session()
for _ in range(2):
    print(s.post(url + "/v2/projects/p/locations/us-central1-b/nodes?nodeId=n", json={}).text)
    print(s.post(url + "/ec2", data={"Action": "RunInstances", "Version": "1"}).text)
    print(s.get(url + "/compute/v1/projects/p/zones/z/operations/o").text)
    print(s.get(url + "/v2/projects/p/locations/z/nodes/absent").status_code, s.get(url + "/fine").text)
""",
    "httplib2": """
s = httplib2.Http()
for _ in range(2):
    print(s.request(url + "/v2/projects/p/locations/us-central1-b/nodes?nodeId=n", "POST", body="{}")[1].decode())
    print(s.request(url + "/ec2", "POST", body="Action=RunInstances&Version=1")[1].decode())
    print(s.request(url + "/compute/v1/projects/p/zones/z/operations/o")[1].decode())
    print(s.request(url + "/v2/projects/p/locations/z/nodes/absent")[0].status, s.request(url + "/fine")[1].decode())
""",
}


class Played(BaseHTTPRequestHandler):
    """Answers by the path: whole, in chunks, or compressed; connections stay open."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, text, how = PLAYED[self.path.partition("?")[0]]
        body = gzip.compress(text.encode()) if how == "gzip" else text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        if how == "chunked":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for part in (body[:50], body[50:], b""):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            return
        self.send_header("Content-Length", str(len(body)))
        if how == "gzip":
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815  # the name that http.server looks for

    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def served() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Played) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("library", CALLS)
def test_refusals_are_recorded_and_the_client_reads_them_unchanged(library: str, tmp_path: Path) -> None:
    file = tmp_path / "refusals"
    program = CLIENT.format(library=library, calls=CALLS[library])
    with served() as url:
        done = subprocess.run(
            [sys.executable, "-c", program, url, str(file)], capture_output=True, text=True, check=False, timeout=60
        )
    assert done.returncode == 0, done.stderr
    for text in (GOOGLE, EC2, OPERATION, '{"error": {"code": 8}}'):
        assert done.stdout.count(text) == 2
    found = read_refusals(file, "launch")
    assert [(one.call, one.form, one.http, one.code, one.status, one.reason) for one in found] == [
        ("POST /v2/projects/p/locations/us-central1-b/nodes", "tpu", 429, "", "RESOURCE_EXHAUSTED", "stockout"),
        ("RunInstances", "ec2", 400, "VcpuLimitExceeded", "", ""),
        ("GET /compute/v1/projects/p/zones/z/operations/o", "compute-operation", 200, "ZONE_RESOURCE_POOL_EXHAUSTED",
         "", ""),
    ]  # fmt: skip
    assert found[0].text == STOCKOUT and {one.step for one in found} == {"launch"}


def test_entries_of_the_corpus_are_toml_with_its_fields() -> None:
    tricky = "said \"no\"\\ to 'x'\nsecond line \t \x7f é"
    refusal = Refusal(
        call="RunInstances", form="ec2", http=400, text=tricky, date="2026-11-26", code="X", step="launch"
    )
    operation = Refusal(call="o", form="operation", http=200, text="t", date="2026-11-26", code="8")
    first, second = tomllib.loads(write_corpus([refusal, operation]))["answer"]
    assert first == {
        "id": "", "call": "RunInstances", "form": "ec2", "http": 400, "text": tricky.replace("\x7f", ""),
        "date": "2026-11-26", "code": "X", "source": "", "kind": "", "next": "",
    }  # fmt: skip
    assert second["code"] == 8, "the number of a google.rpc.Code"


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ('{"__type": "com.amazonaws.ssm#AccessDeniedException", "message": "not you"}',
         ("json", "AccessDeniedException", "not you")),
        ("<ErrorResponse xmlns='https://iam'><Error><Code>Gone</Code><Message>gone</Message></Error></ErrorResponse>",
         ("query", "Gone", "gone")),
        ("<Error><Code>NoSuchBucket</Code><Message>none</Message></Error>", ("s3", "NoSuchBucket", "none")),
        ('{"error": "invalid_grant", "error_description": "Token expired"}',
         ("refresh", "invalid_grant", "Token expired")),
        ("<html>502 Bad Gateway", ("text", "", "<html>502 Bad Gateway")),
        ("", ("text", "", "Bad Gateway")),
    ],
)  # fmt: skip
def test_each_form_of_an_answer_is_read(body: str, fields: tuple[str, str, str]) -> None:
    found = parse_refusal("POST / HTTP/1.1\r\n\r\n", 502, body, 0.0)
    assert found is not None and (found.form, found.code, found.text) == fields


def test_a_request_that_is_not_to_be_carried_out_is_no_refusal() -> None:
    body = EC2.replace("VcpuLimitExceeded", "DryRunOperation")
    assert parse_refusal("POST / HTTP/1.1\r\n\r\nAction=RunInstances", 412, body, 0.0) is None


def test_a_line_that_a_kill_has_cut_is_left_out(tmp_path: Path) -> None:
    line = json.dumps({"at": 0.0, "request": "POST / HTTP/1.1\r\n\r\nAction=StopInstances", "http": 400, "body": EC2})
    (tmp_path / "f").write_text(f"{line}\n{line[:40]}")
    assert [one.call for one in read_refusals(tmp_path / "f", "x")] == ["StopInstances"]
    assert read_refusals(tmp_path / "none", "x") == []
