"""A real moto server on a free loopback port, as S3 for tests.

It enforces conditional writes, pages and multipart rules (shared facts of 2026-11); it accepts any signature, so
refused credentials are tested elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "test-key", "AWS_SECRET_ACCESS_KEY": "test-secret", "AWS_REGION": "us-east-1"}


@dataclass(frozen=True)
class S3Server:
    url: str
    client: Any
    """A boto3 client: the second opinion on what our code stored."""

    @property
    def environment(self) -> dict[str, str]:
        return {**ENVIRONMENT, "AWS_ENDPOINT_URL": self.url}

    def create_bucket(self, name: str) -> None:
        self.client.create_bucket(Bucket=name)


@contextmanager
def s3_server() -> Iterator[S3Server]:
    import logging

    import boto3
    from botocore.config import Config
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = _one_condition_at_a_time(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=MotoRequestHandler)
    thread = threading.Thread(target=server.serve_forever, name="moto", daemon=True)
    thread.start()
    try:
        host, port = server.server_address[:2]
        url = f"http://{host!s}:{port}"
        client = boto3.client(
            "s3",
            endpoint_url=url,
            region_name=ENVIRONMENT["AWS_REGION"],
            aws_access_key_id=ENVIRONMENT["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=ENVIRONMENT["AWS_SECRET_ACCESS_KEY"],
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, proxies={}),
        )
        yield S3Server(url, client)
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def _one_condition_at_a_time(app: WSGIApplication) -> WSGIApplication:
    """Let requests with a condition pass one by one.

    S3 compares and writes in one step ("Add preconditions to S3 operations with conditional requests", Amazon S3 User
    Guide, read 2026-11-25); moto 5.2.5 compares, and writes later, so that two writers can both succeed.
    """
    lock = threading.Lock()

    def serve(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if "HTTP_IF_MATCH" in environ or "HTTP_IF_NONE_MATCH" in environ:
            with lock:
                return list(app(environ, start_response))
        return app(environ, start_response)

    return serve
