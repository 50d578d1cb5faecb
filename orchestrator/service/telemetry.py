"""Sends the numbers of the service, and spans of what ended, to an OpenTelemetry collector (OTLP over HTTP).

The standard variables of OpenTelemetry switch it on and configure it; the exporters read most of them themselves
(https://opentelemetry.io/docs/specs/otel/protocol/exporter, read 2026-11-27). Spans come from events, past a number in
a file: none is lost while the collector or the service is away, and one that is sent twice has the same ids.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from orchestrator.distribution import install_command
from orchestrator.errors import UserError
from orchestrator.private_files import write_whole
from orchestrator.service.measures import Delivery, Measure, read_measures
from orchestrator.service.spans import Span, read_spans
from orchestrator.service.telemetry_settings import TelemetrySettings, check_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from opentelemetry.sdk.metrics.export import Metric, MetricExportResult, MetricsData
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

    from orchestrator.store.read import Reader

_POLL_SECONDS = 5.0
_PAGE = 200  # events
_JOIN_SECONDS = 3.0  # that the end of the service waits for a request


@contextmanager
def send_telemetry(
    settings: TelemetrySettings | None,
    *,
    open_reader: Callable[[], Reader],
    delivery: Delivery,
    place: Path,
    version: str,
    report: Callable[[str], None],
) -> Generator[None]:
    """Send in the background while the context lasts.

    Args:
        settings: What is sent; None for nothing.
        open_reader: Opens the store.
        delivery: Where the requests are counted.
        place: The file with the number of the last event whose spans were sent.
        version: The version of orch.
        report: Prints a line when requests begin to fail, and when they succeed again.

    Raises:
        UserError: OpenTelemetry is not installed, or a variable has a wrong value.
    """
    if settings is None:
        yield
        return
    try:
        sender = _make_sender(settings, open_reader, delivery, place, version, report)
    except ModuleNotFoundError as error:
        raise UserError("OpenTelemetry is not installed", str(error), install_command("otlp")) from error
    delivery.is_on = True
    thread = threading.Thread(target=sender.run, name="telemetry", daemon=True)
    thread.start()
    try:
        yield
    finally:
        sender.stop.set()
        sender.shut_down()
        thread.join(_JOIN_SECONDS)


def _make_sender(
    settings: TelemetrySettings,
    open_reader: Callable[[], Reader],
    delivery: Delivery,
    place: Path,
    version: str,
    report: Callable[[str], None],
) -> _Sender:
    import logging

    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    # It logs each failure, which is counted here, and a wrong header with its value.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    check_headers(os.environ)
    return _Sender(
        settings=settings,
        open_reader=open_reader,
        delivery=delivery,
        place=place,
        report=report,
        resource=_name_service(version),
        metrics=OTLPMetricExporter(),
        spans=OTLPSpanExporter(),
        stop=threading.Event(),
    )


class _MetricExporter(Protocol):
    """The part of OpenTelemetry's MetricExporter that is used; it also takes arguments without types."""

    def export(self, metrics_data: MetricsData, /) -> MetricExportResult: ...

    def shutdown(self) -> None: ...


def _name_service(version: str) -> Resource:
    """Return how the service is called: as the environment says, else orch."""
    from opentelemetry.sdk.resources import Resource

    found = Resource.create({"service.version": version})
    unnamed = str(found.attributes.get("service.name", "")).startswith("unknown_service")
    return found.merge(Resource({"service.name": "orch"})) if unnamed else found


@dataclass(kw_only=True)
class _Sender:
    settings: TelemetrySettings
    open_reader: Callable[[], Reader]
    delivery: Delivery
    place: Path
    report: Callable[[str], None]
    resource: Resource
    metrics: _MetricExporter
    spans: SpanExporter
    stop: threading.Event
    failing: set[str] = field(default_factory=set[str])

    def run(self) -> None:
        """Send until the service ends."""
        due = time.monotonic()
        while True:
            if self.settings.traces:
                self._try("spans", self._send_spans)
            if self.settings.metrics and time.monotonic() >= due:
                due = time.monotonic() + self.settings.metric_seconds
                self._try("metrics", self._send_metrics)
            if self.stop.wait(min(_POLL_SECONDS, self.settings.metric_seconds)):
                return

    def _try(self, what: str, send: Callable[[], None]) -> None:
        """Send one signal; an error, also a defect, ends neither the thread nor the other signal."""
        try:
            send()
        except Exception as error:
            self._note(what, failure=f"{what} cannot be read: {type(error).__name__}: {error}")

    def shut_down(self) -> None:
        """End a request that waits for the next try."""
        self.metrics.shutdown()
        self.spans.shutdown()

    def _send_metrics(self) -> None:
        from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, ResourceMetrics, ScopeMetrics
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        with self.open_reader() as store:
            measures = read_measures(store, self.delivery)
        now = time.time_ns()
        scope = ScopeMetrics(InstrumentationScope("orch"), [_to_metric(one, now) for one in measures], "")
        sent = self.metrics.export(MetricsData([ResourceMetrics(self.resource, [scope], "")]))
        taken = sent is MetricExportResult.SUCCESS
        self._note("metrics", failure="" if taken else "the collector did not take metrics")

    def _send_spans(self) -> None:
        """Send what has ended since the last time, a page of events at a time."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        while not self.stop.is_set():
            with self.open_reader() as store:
                after = self._read_place(store)
                events = store.events_after(after, _PAGE)
                spans = read_spans(store, events)
            if not events:
                return
            if spans:
                sent = self.spans.export([_to_otel_span(one, self.resource) for one in spans])
                if sent is not SpanExportResult.SUCCESS:
                    self._note("spans", failure="the collector did not take spans")
                    return
                self._note("spans", failure="")
            self._write_place(events[-1].seq, events[-1].hash)

    def _read_place(self, store: Reader) -> int:
        """Return the last event whose spans were sent; at first, and in a store that was restored, the newest one."""
        try:
            number, known = self.place.read_text(encoding="ascii").split()
            if (store.find_hash(int(number)) or "-") == known:
                return int(number)
            self.report("note: telemetry: the store was restored or replaced: spans begin with its newest event")
        except (FileNotFoundError, ValueError):
            pass  # the first start
        newest = store.head().seq
        self._write_place(newest, store.find_hash(newest))
        return newest

    def _write_place(self, number: int, known: str) -> None:
        write_whole(self.place, f"{number} {known or '-'}\n")

    def _note(self, what: str, *, failure: str) -> None:
        if failure:
            self.delivery.failed += 1
        else:
            self.delivery.sent += 1
        if bool(failure) != (what in self.failing) and not self.stop.is_set():
            (self.failing.add if failure else self.failing.discard)(what)
            self.report(
                f"note: telemetry: {failure}; it is tried again (orch_telemetry_requests_total counts)"
                if failure
                else f"note: telemetry: the collector takes {what} again"
            )


def _to_metric(one: Measure, now: int) -> Metric:
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Metric, NumberDataPoint, Sum

    points = [
        NumberDataPoint({one.label: value} if one.label else {}, 0, now, float(number))
        for value, number in sorted(one.values.items())
    ]
    # The name of a counter ends with _total in Prometheus alone.
    name = one.name.removesuffix("_total") if one.is_counter else one.name
    data = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True) if one.is_counter else Gauge(points)
    return Metric(name, one.meaning, "", data)


def _to_otel_span(one: Span, resource: Resource) -> ReadableSpan:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

    def name_context(key: str) -> SpanContext:
        sampled = TraceFlags(TraceFlags.SAMPLED)
        return SpanContext(_to_number(one.trace, 16), _to_number(f"{one.trace} {key}", 8), False, sampled)

    return ReadableSpan(
        name=one.name,
        context=name_context(one.key),
        parent=name_context(one.parent) if one.parent else None,
        resource=resource,
        attributes=one.attributes,
        status=Status(StatusCode.ERROR, one.failure) if one.failure else Status(StatusCode.OK),
        start_time=round(one.begin * 1e9),
        end_time=round(one.end * 1e9),
    )


def _to_number(text: str, size: int) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:size], "big")
