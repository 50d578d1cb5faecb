"""OpenTelemetry: who takes OTLP over HTTP gets the numbers and spans, and never holds the service up."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from service_site import make_certificate

from orchestrator.errors import UserError
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import EndedAttempt, IntentState, Outcome
from orchestrator.service.telemetry_settings import check_headers, read_telemetry_settings
from orchestrator.slices import Candidate, OnDemand
from orchestrator.store.leases import Lease
from orchestrator.store.records import NewJob
from orchestrator.store.store import Store

CANDIDATE = Candidate(
    provider="gcp", accelerator="v5e-8", hosts=2, chips_per_host=4, market=OnDemand(), region="us-west4",
    zone="us-west4-a", price_per_hour=9.6,
)  # fmt: skip


@dataclass(kw_only=True)
class Collector:
    """What a collector was sent; `answer` is its status."""

    url: str = ""
    answer: int = 200
    delay: float = 0.0
    headers: list[dict[str, str]] = field(default_factory=list)
    metrics: list[ExportMetricsServiceRequest] = field(default_factory=list)
    traces: list[ExportTraceServiceRequest] = field(default_factory=list)
    requests: int = 0

    def values(self) -> dict[str, float]:
        """Return the numbers of the newest export, by name and labels. An earlier one may have states that ended."""
        found: dict[str, float] = {}
        for request in self.metrics[-1:]:
            for metric in request.resource_metrics[0].scope_metrics[0].metrics:
                data: Any = metric.gauge if metric.HasField("gauge") else metric.sum
                for point in data.data_points:
                    labels = ",".join(one.value.string_value for one in point.attributes)
                    found[f"{metric.name}{{{labels}}}" if labels else metric.name] = point.as_double
        return found

    def spans(self) -> list[Any]:
        return [span for request in self.traces for span in request.resource_spans[0].scope_spans[0].spans]


@pytest.fixture
def collector() -> Generator[Collector]:
    kept = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            kept.requests += 1
            time.sleep(kept.delay)
            if kept.answer == 200:
                kept.headers.append(dict(self.headers))
                if self.path.endswith("/v1/metrics"):
                    kept.metrics.append(ExportMetricsServiceRequest.FromString(body))
                else:
                    kept.traces.append(ExportTraceServiceRequest.FromString(body))
            with contextlib.suppress(OSError):
                self.send_response(kept.answer)
                self.send_header("Content-Length", "0")
                self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield kept
    server.shutdown()
    thread.join()
    server.server_close()


def wait_until(true: Callable[[], object], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "it does not become true"
        time.sleep(0.05)


def make_history(store: Store) -> None:
    """Record a launch whose first attempt was preempted, whose slice ended, and which then failed."""
    record = store.open_cluster("mine", "")
    lease = store.acquire(f"cluster:{record.qualified_name}", "test")
    assert isinstance(lease, Lease)
    new = NewJob(kind="launch", run_id="run-7", digest="d", task="{}", bucket="", ranks=None, after_end="keep")
    job = store.open_job(record, new)
    store.write_intent(lease, record, 1, "mine-1", CANDIDATE, "key-of-the-create", "request", run_id="run-7")
    store.update_intent(lease, record, "mine-1", IntentState.ACCEPTED)
    now = time.time()
    ended = EndedAttempt(attempt=1, cause=EndCause.PREEMPTED, why="taken back", generation=1, at=now)
    store.next_attempt(record, job.id, ended, 2, started_at=now - 60, lease=lease)
    store.update_intent(lease, record, "mine-1", IntentState.DELETED)
    outcome = Outcome(status=1, code="program-failed", what="the program failed")
    store.record_outcome(record, job.id, outcome, lease=lease)


@contextlib.contextmanager
def served(home: Path, **environ: str) -> Generator[str]:
    """Run `orch serve` without an engine until the block ends; yield the link that it prints."""
    given = {"HOME": str(home), "ORCH_HOME": str(home), "ORCH_MEMBER": "ada", **environ}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    log = (home / "serve.log").open("w")
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestrator", "serve", "--page-only", "--port", "0"],
        env=kept | given, stdout=subprocess.PIPE, stderr=log, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield process.stdout.readline()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        log.close()


def read_numbers(link: str, home: Path) -> str:
    """Return what the service answers to Prometheus."""
    origin = re.match(r"http://[^/]+", link)
    assert origin, (home / "serve.log").read_text()
    token = (home / "state/service/token").read_text().strip()
    request = urllib.request.Request(f"{origin[0]}/metrics", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.read().decode())


def make_home(path: Path) -> Path:
    (path / "state").mkdir()
    with Store(path / "state/orch.db") as store:
        store.open_cluster("there", "")
    return path


def test_a_collector_gets_the_numbers_and_what_ends(tmp_path: Path, collector: Collector) -> None:
    home = make_home(tmp_path)
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_EXPORTER_OTLP_HEADERS": "api-key=of-the-collector",
        "OTEL_METRIC_EXPORT_INTERVAL": "200", "OTEL_EXPORTER_OTLP_COMPRESSION": "GZip",
    }  # fmt: skip
    with served(home, **environ) as link:
        wait_until((home / "state/service/telemetry").exists)
        with Store(home / "state/orch.db") as store:
            make_history(store)
        wait_until(lambda: len(collector.spans()) == 3)
        wait_until(lambda: collector.values().get("orch_jobs{ended}") == 1)
        assert 'orch_telemetry_requests_total{result="failed"} 0' in read_numbers(link, home)
        token = (home / "state/service/token").read_text().strip()
    assert collector.headers[0]["api-key"] == "of-the-collector"
    assert {one.get("Content-Encoding") for one in collector.headers} == {"gzip"}
    resource = collector.metrics[0].resource_metrics[0].resource.attributes
    assert {one.key: one.value.string_value for one in resource}["service.name"] == "orch"
    assert sum(number for name, number in collector.values().items() if name.startswith("orch_clusters{")) == 2
    spans = {span.name: span for span in collector.spans()}
    assert set(spans) == {"slice", "attempt 1", "launch"}
    attempt, job, machines = spans["attempt 1"], spans["launch"], spans["slice"]
    assert attempt.parent_span_id == job.span_id and attempt.trace_id == job.trace_id != machines.trace_id
    assert 59e9 < attempt.end_time_unix_nano - attempt.start_time_unix_nano < 61e9
    assert "taken back" in attempt.status.message and job.status.message == "the program failed"
    given = {one.key: one.value.string_value for one in machines.attributes}
    assert given["orch.idempotency_key"] == "key-of-the-create" and given["cloud.region"] == "us-west4"
    everything = b"".join(one.SerializeToString() for one in (*collector.metrics, *collector.traces))
    assert token.encode() not in everything and b"of-the-collector" not in everything


def test_spans_wait_for_a_collector_that_refuses_and_for_a_service_that_was_ended(
    tmp_path: Path, collector: Collector
) -> None:
    home = make_home(tmp_path)
    collector.answer = 400  # which no exporter tries again by itself
    with served(home, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{collector.url}/v1/traces") as link:
        wait_until((home / "state/service/telemetry").exists)
        with Store(home / "state/orch.db") as store:
            make_history(store)
        wait_until(lambda: collector.requests)
        wait_until(lambda: 'result="failed"} 0' not in read_numbers(link, home))
    assert (home / "serve.log").read_text().count("the collector did not take spans") == 1
    collector.answer = 200
    with served(home, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{collector.url}/v1/traces"):
        wait_until(lambda: len(collector.spans()) == 3)
    assert not collector.metrics, "only an address for traces is named"


def test_a_store_that_was_replaced_is_noticed_and_followed(tmp_path: Path, collector: Collector) -> None:
    home = make_home(tmp_path)
    (home / "state/service").mkdir()
    (home / "state/service/telemetry").write_text("9000 0123456789abcdef\n")
    with served(home, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{collector.url}/v1/traces"):
        wait_until(lambda: not (home / "state/service/telemetry").read_text().startswith("9000"))
        with Store(home / "state/orch.db") as store:
            make_history(store)
        wait_until(lambda: len(collector.spans()) == 3)
    assert "the store was restored or replaced" in (home / "serve.log").read_text()


def test_a_collector_that_does_not_answer_delays_neither_answers_nor_the_end(
    tmp_path: Path, collector: Collector
) -> None:
    home = make_home(tmp_path)
    collector.delay = 60.0
    with served(home, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url) as link:
        wait_until(lambda: collector.requests)
        assert "orch_clusters" in read_numbers(link, home)
        began = time.monotonic()
    assert time.monotonic() - began < 25, "the end waits for the collector"
    collector.delay = 0.0


def test_without_an_address_nothing_is_sent_and_the_library_is_not_needed() -> None:
    assert read_telemetry_settings({}) is None
    assert read_telemetry_settings({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "true"}) is None
    none = {"OTEL_METRICS_EXPORTER": "none", "OTEL_TRACES_EXPORTER": "none"}
    assert read_telemetry_settings({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", **none}) is None
    names = "any(name.startswith('opentelemetry.sdk') for name in sys.modules)"
    code = f"import sys, orchestrator.service.server; sys.exit({names})"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "soon"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0.001"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "inf"),
        ("OTEL_TRACES_EXPORTER", "console"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector:4318"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://:4318"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:port"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector :4318"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "-1"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "nan"),
        ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "10000"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/absent/ca.pem"),
        ("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", __file__),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/absent/client.pem"),
    ],
)
def test_a_setting_that_is_not_supported_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(UserError, match=f"^{name}={value}"):
        read_telemetry_settings({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", name: value})


@pytest.mark.parametrize("address", ["http://me:hidden@collector:port", "me:hidden@collector:4318"])
def test_a_wrong_address_is_refused_without_its_password(address: str) -> None:
    with pytest.raises(UserError, match=r"^OTEL_EXPORTER_OTLP_ENDPOINT") as refused:
        read_telemetry_settings({"OTEL_EXPORTER_OTLP_ENDPOINT": address})
    assert "hidden" not in f"{refused.value} {refused.value.why} {refused.value.next_step}"


def lock_key(folder: Path) -> tuple[Path, Path]:
    """Return the files of a certificate and of its key, which has a password."""
    certificate, key = make_certificate(folder)
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    kind, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    locked = folder / "locked.key"
    locked.write_bytes(loaded.private_bytes(kind, form, serialization.BestAvailableEncryption(b"word")))
    return certificate, locked


def test_certificates_are_loaded_before_the_start(tmp_path: Path) -> None:
    certificate, locked = lock_key(tmp_path)
    key = tmp_path / "key.pem"

    def read(**variables: str) -> None:
        names = {f"OTEL_EXPORTER_OTLP_{name}": str(tmp_path / value) for name, value in variables.items()}
        read_telemetry_settings({"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c", **names})

    read(
        CERTIFICATE=certificate.name,
        CLIENT_CERTIFICATE=certificate.name,
        TRACES_CLIENT_KEY=key.name,
        METRICS_CLIENT_KEY=key.name,
    )
    read(CERTIFICATE=".")
    with pytest.raises(UserError, match="without OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"):
        read(CLIENT_KEY=key.name)
    for wrong in (certificate.name, locked.name):
        with pytest.raises(UserError, match="pem cannot be used"):
            read(CLIENT_CERTIFICATE=certificate.name, CLIENT_KEY=wrong)


def test_a_locked_key_opens_no_prompt_at_the_terminal(tmp_path: Path) -> None:
    certificate, key = lock_key(tmp_path)
    settings = {"ENDPOINT": "https://c", "CLIENT_CERTIFICATE": str(certificate), "CLIENT_KEY": str(key)}
    environ = {f"OTEL_EXPORTER_OTLP_{name}": value for name, value in settings.items()}
    master, slave = os.openpty()
    code = (
        "import fcntl, os, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
        "from orchestrator.service.telemetry_settings import read_telemetry_settings\n"
        "read_telemetry_settings(os.environ)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=os.environ | environ, stdin=slave, stdout=slave, stderr=slave,
        start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    shown = b""
    try:
        while b"cannot be used" not in shown and b"pass phrase" not in shown:
            shown += os.read(master, 1 << 16)
    finally:
        process.kill()
        process.wait(30)
        os.close(master)
    assert b"pass phrase" not in shown


@pytest.mark.parametrize(
    "value", ["secret", "a=1,secret", "a b=secret", "a=secret%0Ax", "a=secret%E2%82%AC", "=secret"]
)
def test_headers_that_would_be_left_out_are_refused_without_their_values(value: str) -> None:
    name = "OTEL_EXPORTER_OTLP_TRACES_HEADERS"
    with pytest.raises(UserError, match=f"{name} has a wrong header, number {1 + value.count(',')}") as caught:
        check_headers({name: value})
    assert "secret" not in str(caught.value)


def test_headers_that_exporters_send_are_accepted() -> None:
    for value in ("", "a=1", "a=1, b=2,", "authorization=Basic eDp5=", "authorization=Bearer%20x", "a="):
        check_headers({"OTEL_EXPORTER_OTLP_HEADERS": value})


def test_a_wrong_header_ends_orch_serve(tmp_path: Path) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_HEADERS": "of-a-key"}
    with served(make_home(tmp_path), **environ) as link:
        assert not link
    shown = (tmp_path / "serve.log").read_text()
    assert "OTEL_EXPORTER_OTLP_HEADERS has a wrong header" in shown and "of-a-key" not in shown


def test_a_missing_library_is_named_with_what_installs_it(tmp_path: Path) -> None:
    blocked = tmp_path / "opentelemetry"
    blocked.mkdir()
    (blocked / "__init__.py").write_text("raise ModuleNotFoundError('No module named opentelemetry')")
    environ = {
        **os.environ, "PYTHONPATH": str(tmp_path), "ORCH_HOME": str(tmp_path / "home"), "ORCH_MEMBER": "ada",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
    }  # fmt: skip
    argv = [sys.executable, "-m", "orchestrator", "serve", "--page-only", "--port", "0"]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "OpenTelemetry is not installed" in done.stderr and "[otlp]" in done.stderr
