"""Where a bucket is: asked with the real client over a real socket, from a server that knows the JSON API's answer."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

import pytest

from orchestrator.catalog.buckets import BucketPlace
from orchestrator.errors import CloudError
from orchestrator.providers.google.buckets import place_of

BUCKETS = {
    "west": {"location": "US-WEST4"},
    "multi": {"location": "US"},
    "pair": {"location": "US", "customPlacementConfig": {"dataLocations": ["US-EAST1", "US-WEST1"]}},
}


@contextmanager
def storage() -> Generator[str]:
    """buckets.get (Cloud Storage JSON API v1): the fields that are asked for, 404 for a bucket that is not there."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            name = parts.path.removeprefix("/storage/v1/b/")
            asked = parse_qs(parts.query).get("fields") == ["location,customPlacementConfig/dataLocations"]
            found = BUCKETS.get(name) if asked else None
            body = json.dumps(found or {"error": {"code": 404, "message": "The specified bucket does not exist."}})
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_bucket_tells_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    with storage() as endpoint:
        monkeypatch.setenv("ORCH_GCP_ENDPOINT", endpoint)
        assert place_of("west") == BucketPlace("US-WEST4")
        assert place_of("multi") == BucketPlace("US")
        assert place_of("pair") == BucketPlace("US", ("us-east1", "us-west1"))
        with pytest.raises(CloudError) as caught:
            place_of("absent")
        assert "gs://absent" in caught.value.what


def test_a_server_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_GCP_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(CloudError):
        place_of("west")
