"""A store with runs, a bucket with their curves, and the real service over both, in another process."""

from __future__ import annotations

import hashlib
import io
import json
import re
import signal
import subprocess
import tempfile
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from support.orch_process import Orch

from orchestrator.engine.state.tree_archives import write_archive
from orchestrator.formatting import format_utc
from orchestrator.next_step import NextStep
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import EndedAttempt, IntentState, Outcome
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.remote.tree import make_tree, read_tree
from orchestrator.slices import Candidate, OnDemand
from orchestrator.store.leases import Lease
from orchestrator.store.records import ClusterRecord, NewJob
from orchestrator.store.store import Store

PRICE = 7.2  # dollars an hour
CANDIDATE = Candidate(
    provider="gcp", accelerator="v5litepod-16", hosts=4, chips_per_host=4, market=OnDemand(), region="us-west4",
    zone="us-west4-a", price_per_hour=PRICE,
)  # fmt: skip
OUTCOMES = {
    0: Outcome(status=0, code="ok", what="it succeeded"),
    3: Outcome(status=3, code="program-failed", what="program failed on host 1", why="CUDA out of memory",
               next_step=NextStep("orch logs first 1")),
}  # fmt: skip


EMPTY = make_tree(Path(), ()).digest


def pack(files: dict[str, bytes]) -> bytes:
    """Return files as the archive that a client sends."""
    archive = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        write_archive(read_tree(write_files(Path(folder), files)), archive)
    return archive.getvalue()


def write_files(folder: Path, files: dict[str, bytes]) -> Path:
    """Write files below a folder, and return it."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@dataclass(frozen=True, kw_only=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def document(self) -> Any:
        return json.loads(self.body)


@dataclass(kw_only=True)
class Served:
    """The running service."""

    orch: Orch
    port: int
    link: str
    process: subprocess.Popen[str] = field(repr=False)
    patience: float = 30.0  # seconds for an answer
    source: str = "127.0.0.1"  # the address from which requests come

    @property
    def token(self) -> str:
        return (self.orch.state / "service" / "token").read_text()

    def open(
        self, path: str, *, method: str = "GET", body: bytes = b"", **headers: str
    ) -> tuple[HTTPConnection, HTTPResponse]:
        """Send a request, and return the connection with its answer unread. A `host` replaces the real one."""
        connection = HTTPConnection("127.0.0.1", self.port, self.patience, (self.source, 0))
        connection.putrequest(method, path, skip_host="host" in headers, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        if body:
            connection.putheader("content-length", str(len(body)))
        connection.endheaders(body or None)
        return connection, connection.getresponse()

    def ask(self, path: str, *, method: str = "GET", signed: bool = True, body: bytes = b"", **headers: str) -> Reply:
        """Send a request, with the token unless `signed` is False, and return its answer."""
        mine = {"authorization": f"Bearer {self.token}"} if signed else {}
        connection, answer = self.open(path, method=method, body=body, **(mine | headers))
        try:
            named: dict[str, str] = {}
            for name, value in answer.getheaders():  # there may be several cookies
                named[name.lower()] = f"{named[name.lower()]}, {value}" if name.lower() in named else value
            return Reply(status=answer.status, headers=named, body=answer.read())
        finally:
            connection.close()

    def send_form(self, path: str, cookie: str = "", **fields: str) -> Reply:
        """Send a form as a browser does that shows this server's page."""
        token = hashlib.sha256(f"form\0{cookie.partition('=')[2]}".encode()).hexdigest()
        return self.ask(
            path,
            method="POST",
            signed=False,
            body=urlencode({"_token": token} | fields).encode(),
            content_type="application/x-www-form-urlencoded",
            sec_fetch_site="same-origin",
            **({"cookie": cookie} if cookie else {}),
        )

    def sign_in(self, link: str = "") -> str:
        """Open a link, or a new one for this user, and return the cookie of its session."""
        code = link.partition("#")[2] or self.ask("/v1/links", method="POST", content_length="0").document["link"]
        opened = self.send_form("/login", code=code)
        assert (opened.status, opened.headers["location"]) == (303, "/"), opened.text
        return opened.headers["set-cookie"].partition(";")[0]


@contextmanager
def serve(orch: Orch, *words: str, page_only: bool = True) -> Generator[Served]:
    """Run `orch serve` on a free port until the end of the block."""
    command = orch.command("serve", "--port", "0", *(["--page-only"] if page_only else []), *words)
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, env=orch.env, cwd=orch.folder, stdout=pipe, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert re.fullmatch(r"https?://[\w.:-]+/login#\S+\n", line), line
        files = (orch.state / "service").glob("*.address.json")
        newest = max(files, key=lambda file: file.stat().st_mtime_ns)
        yield Served(orch=orch, port=json.loads(newest.read_text())["port"], link=line.strip(), process=process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        process.stdout.close()


def log_in(site: Served, folder: Path, port: int, role: str = "member") -> Orch:
    """Return a computer whose commands go to the service."""
    folder.mkdir()
    url, orch = f"http://127.0.0.1:{port}", Orch(folder)
    secret = site.orch.ok("token", "create", folder.name, "--member", folder.name, "--role", role)
    orch.ok("login", url, "--token-stdin", stdin=secret)
    return Orch(folder, {"ORCH_SERVER": url})


def record_run(
    store: Store, name: str, run_id: str, bucket: str = "", *, attempts: int = 1, ended: bool = True,
    candidate: Candidate | None = None, task: str = "", status: int = 0,
) -> ClusterRecord:  # fmt: skip
    """Record a cluster with a run of some attempts, each but the last preempted at host 2."""
    candidate = candidate or CANDIDATE
    cluster = store.open_cluster(name, f"{candidate.accelerator} on {candidate.provider}")
    lease = store.acquire(f"cluster:{name}", "a test")
    assert isinstance(lease, Lease)
    job = NewJob(
        kind="launch", run_id=run_id, digest="d", task=task, bucket=bucket, ranks=None, after_end=TeardownPolicy.KEEP
    )
    made = store.open_job(cluster, job)
    store.write_intent(lease, cluster, 1, f"{name}-1", candidate, "token", "request")
    store.update_intent(lease, cluster, f"{name}-1", IntentState.ACCEPTED)
    store.note_state(cluster, "ready")
    for number in range(1, attempts + 1):
        store.start_attempt(cluster, made.id)
        if number < attempts:
            lost = EndedAttempt(
                attempt=number, cause=EndCause.PREEMPTED, why="the provider took host 2", generation=1, rank=2,
                evidence='{"step": 30}', at=made.created,
            )  # fmt: skip
            store.next_attempt(cluster, made.id, lost, number + 1)
    if ended:
        store.record_outcome(cluster, made.id, OUTCOMES[status])
    store.release(lease)
    return cluster


def write_points(
    bucket: Path, run_id: str, attempt: int, points: Iterable[tuple[int, float, float]], *, eta_s: float = 60.0
) -> None:
    """Write a part of metrics: step, time in epoch seconds, and loss of each point."""
    folder = bucket / run_id / "metrics" / f"attempt-{attempt:04d}"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps(
            {"step": step, "loss": loss, "time": format_utc(at), "tokens": step * 1000, "tokens_per_s": 5000.0,
             "mfu": 0.4, "memory": None, "eta_s": eta_s, "failed_saves": 0, "checkpoint_stall_s": 0.1}
        )
        for step, at, loss in points
    ]  # fmt: skip
    (folder / f"part-{len(list(folder.iterdir())) + 1:05d}.jsonl").write_text("\n".join(lines) + "\n")


def save_steps(bucket: Path, run_id: str, steps: Sequence[int]) -> None:
    """Make the folders of checkpoints."""
    for step in steps:
        (bucket / run_id / "checkpoints" / f"step-{step:08d}-e0001-a0001").mkdir(parents=True)
        (bucket / run_id / "checkpoints" / f"step-{step:08d}-e0001-a0001" / "manifest.json").write_text("{}")


def make_certificate(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "crt.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=orch.test", "-addext", "subjectAltName=DNS:orch.test", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key
