"""A server on the loopback that writes down what it is sent, and the aws command in this process."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

_CONFIG = """\
[default]
region = us-east-1
[profile "dev profile"]
region = us-east-1
aws_access_key_id = pretend
aws_secret_access_key = pretend
"""


@dataclass(frozen=True, slots=True)
class Sent:
    """service and region: of the signature. fields: of a form or of JSON, sorted."""

    service: str
    region: str
    operation: str
    fields: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Recorder:
    """answers: by operation, what is answered; an empty answer for the others."""

    url: str = ""
    sent: list[Sent] = field(default_factory=list[Sent])
    answers: dict[str, str] = field(default_factory=dict[str, str])

    def taken(self) -> list[Sent]:
        taken, self.sent = self.sent, []
        return taken


@contextmanager
def recording() -> Generator[Recorder]:
    recorder = Recorder()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            pass

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"])).decode()
            sent = _read(self.headers["Authorization"], self.headers.get("X-Amz-Target", ""), raw)
            recorder.sent.append(sent)
            answer = recorder.answers.get(sent.operation) or _empty(sent)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-amz-json-1.1" if answer.startswith("{") else "text/xml")
            self.send_header("Content-Length", str(len(answer.encode())))
            self.end_headers()
            self.wfile.write(answer.encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    recorder.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield recorder
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def environment(url: str, folder: Path) -> Mapping[str, str]:
    """For the aws command and boto3: they know this server and no other."""
    config = folder / "config"
    config.write_text(_CONFIG)
    own = {key: os.environ[key] for key in ("PATH", "TMPDIR") if key in os.environ}
    return own | {
        "HOME": str(folder),
        "AWS_CONFIG_FILE": str(config),
        "AWS_SHARED_CREDENTIALS_FILE": str(folder / "none"),
        "AWS_ACCESS_KEY_ID": "pretend",
        "AWS_SECRET_ACCESS_KEY": "pretend",
        "AWS_ENDPOINT_URL": url,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "1",
        "AWS_PAGER": "",
        "LC_ALL": "C.UTF-8",
    }


class Cli:
    """The aws command's own entry point; one driver for each profile, as it keeps the profile that it was given."""

    def __init__(self) -> None:
        self._drivers: dict[str, Any] = {}

    def run(self, words: Sequence[str]) -> int:
        from awscli.clidriver import create_clidriver  # type: ignore[import-untyped]  # the package ships no types

        profile = words[words.index("--profile") + 1] if "--profile" in words else ""
        if profile not in self._drivers:
            self._drivers[profile] = create_clidriver()
        return int(self._drivers[profile].main(list(words[1:])))


def _read(authorization: str, target: str, raw: str) -> Sent:
    scope = authorization.split("Credential=", 1)[1].split(",", 1)[0].split("/")
    if target:
        fields = {key: json.dumps(value, sort_keys=True) for key, value in json.loads(raw).items()}
        operation = target.rpartition(".")[2]
    else:
        fields = dict(parse_qsl(raw, keep_blank_values=True, strict_parsing=True))
        operation = fields["Action"]
    return Sent(scope[3], scope[2], operation, tuple(sorted(fields.items())))


def _empty(sent: Sent) -> str:
    return (
        "{}" if sent.service in ("ssm", "servicequotas") else f"<{sent.operation}Response></{sent.operation}Response>"
    )
