"""Without credentials, or at an address without buckets, a start ends for good; a role that is away may come back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.served import served

from trainer.checkpoint.claim import hold_epoch
from trainer.checkpoint.store import open_store
from trainer.environment import Run
from trainer.errors import LastingStorageError

# In another network namespace, where the address of the metadata server is ours, or no one's.
CLAIM = """\
import sys, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from trainer.checkpoint.claim import hold_epoch
from trainer.checkpoint.store import open_store
from trainer.environment import Run
from trainer.errors import StorageError

class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(int(sys.argv[2]))
        self.send_header("content-length", "0")
        self.end_headers()
    do_PUT = do_GET
    def log_message(self, *_): pass

if sys.argv[2].isdigit():
    threading.Thread(target=HTTPServer(("169.254.169.254", 80), Answer).serve_forever, daemon=True).start()
try:
    hold_epoch(open_store(sys.argv[1] + "://bucket/run", retry_seconds=0.1), Run())
except StorageError as error:
    print(type(error).__name__, int(error.exit_status), error)
"""
ADDRESS = "ip addr add 169.254.169.254/32 dev lo && "


@pytest.mark.parametrize("scheme", ["s3", "gs"])
@pytest.mark.parametrize(
    ("machine", "status"), [("unreachable", 16), ("refused", 16), ("404", 16), ("403", 16), ("503", 10), ("429", 10)]
)
def test_missing_credentials_do_not_pass_and_a_metadata_server_in_trouble_does(
    tmp_path: Path, scheme: str, machine: str, status: int
) -> None:
    script = tmp_path / "claim.py"
    script.write_text(CLAIM)
    own = [
        "unshare",
        "--net",
        "sh",
        "-c",
        f'ip link set lo up && {"" if machine == "unreachable" else ADDRESS} exec "$@"',
    ]
    environment = {"HOME": str(tmp_path), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": str(Path.cwd())}
    words = [*own, "sh", sys.executable, str(script), scheme, machine]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    if "unshare" in done.stderr or "ip: " in done.stderr:
        pytest.skip("no right to make a network")
    kind, found, text = done.stdout.split(" ", 2)
    assert int(found) == status, done.stdout + done.stderr
    assert "no credentials: set AWS_ACCESS_KEY_ID" in text and "bucket/run/epoch.json" in text
    assert (kind == "LastingStorageError") == (status == 16)


def test_an_address_that_has_no_buckets_is_not_changed_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(lambda *_: (404, {})) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
        with pytest.raises(LastingStorageError, match="correct AWS_ENDPOINT_URL"):
            hold_epoch(open_store("s3://bucket/run", retry_seconds=0.1), Run())
