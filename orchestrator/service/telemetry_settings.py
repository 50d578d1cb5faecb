"""OpenTelemetry's variables, checked before the service starts: its exporters only log a wrong one, and go without it.

Source: https://opentelemetry.io/docs/specs/otel/protocol/exporter, read 2026-11-27.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from orchestrator.errors import UserError

_METRIC_SECONDS = 60.0
_MOST_SECONDS = 600.0  # of a request
_LEAST_PAUSE, _MOST_PAUSE = 0.1, 86_400  # seconds
_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_SIGNALS = ("METRICS", "TRACES")
_COMPRESSIONS = ("none", "gzip", "deflate")


@dataclass(frozen=True, kw_only=True)
class TelemetrySettings:
    """What the environment asks for."""

    metrics: bool
    traces: bool
    metric_seconds: float


def read_telemetry_settings(environ: Mapping[str, str]) -> TelemetrySettings | None:
    """Return what is sent; None for nothing.

    Raises:
        UserError: A variable has a value that is wrong or not supported.
    """
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    sent = {signal: _is_sent(environ, signal) for signal in _SIGNALS}
    if not any(sent.values()):
        return None
    for name, value in _list_given(environ, "ENDPOINT"):
        _check_endpoint(name, value)
    for name, value in _list_given(environ, "PROTOCOL"):
        if value != "http/protobuf":
            raise UserError(
                f"{name}={value} is not supported",
                "orch sends OTLP as http/protobuf, to which collectors listen on port 4318",
                f"unset {name}, and name that port in OTEL_EXPORTER_OTLP_ENDPOINT",
            )
    for name, value in _list_given(environ, "TIMEOUT"):
        if not 0 < _parse_number(value) <= _MOST_SECONDS:
            why = "OpenTelemetry's exporters for Python read it as seconds"
            raise UserError(f"{name}={value} is not a number of seconds up to {_MOST_SECONDS:g}", why, f"unset {name}")
    for name, value in _list_given(environ, "COMPRESSION"):
        if value.lower().strip() not in _COMPRESSIONS:
            raise UserError(f"{name}={value} is none of {', '.join(_COMPRESSIONS)}", "", f"unset {name}")
    _check_certificates(environ)
    interval = environ.get("OTEL_METRIC_EXPORT_INTERVAL") or str(_METRIC_SECONDS * 1000)
    seconds = _parse_number(interval) / 1000
    if not _LEAST_PAUSE <= seconds <= _MOST_PAUSE:
        what = f"OTEL_METRIC_EXPORT_INTERVAL={interval} is not a number of milliseconds that can be"
        raise UserError(what, f"metrics are sent every {_LEAST_PAUSE} to {_MOST_PAUSE} s", "unset it")
    return TelemetrySettings(metrics=sent["METRICS"], traces=sent["TRACES"], metric_seconds=seconds)


def check_headers(environ: Mapping[str, str]) -> None:
    """Check the headers of requests, with the parser of the exporters. Messages leave values out: they are secrets.

    Raises:
        UserError: A part would be left out, or no request could carry it.
        ModuleNotFoundError: OpenTelemetry is not installed.
    """
    from opentelemetry.util.re import parse_env_headers

    for name, value in _list_given(environ, "HEADERS"):
        for number, part in enumerate(value.split(","), 1):
            found = parse_env_headers(part, liberal=True)
            if part.strip() and not (found and all(one.isascii() and one.isprintable() for one in found.values())):
                raise UserError(
                    f"{name} has a wrong header, number {number}",
                    "headers are NAME=VALUE, divided by commas; other characters of a value are percent-encoded",
                    f"correct it, or unset {name}",
                )


def _is_sent(environ: Mapping[str, str], signal: str) -> bool:
    variable = f"OTEL_{signal}_EXPORTER"
    exporter = environ.get(variable) or "otlp"
    if not (environ.get(_ENDPOINT) or environ.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")):
        return False
    if exporter not in ("otlp", "none"):
        raise UserError(f"{variable}={exporter} is not supported", "orch sends OTLP", "write otlp or none")
    return exporter == "otlp"


def _list_given(environ: Mapping[str, str], kind: str) -> Iterator[tuple[str, str]]:
    """Yield the variables of a kind that have a value: that of all signals, and those of one."""
    for signal in ("", *(f"{one}_" for one in _SIGNALS)):
        name = f"OTEL_EXPORTER_OTLP_{signal}{kind}"
        if environ.get(name):
            yield name, environ[name]


def _check_endpoint(name: str, value: str) -> None:
    shown = "..." if "@" in value else value  # it may have a password
    if not value.startswith(("http://", "https://")):
        raise UserError(f"{name}={shown} has no scheme", "", "write http://HOST:4318 or https://")
    try:
        parts = urlsplit(value)
        known = bool(parts.hostname) and parts.port != 0 and not any(map(str.isspace, value))
    except ValueError:
        known = False
    if not known:
        raise UserError(f"{name}={shown} is not an address", "", "write http://HOST:4318 or https://")


def _check_certificates(environ: Mapping[str, str]) -> None:
    """Load each file as a request will."""
    for name, value in _list_given(environ, "CERTIFICATE"):
        if Path(value).is_dir():  # OpenSSL reads it when it needs a certificate
            continue
        try:
            ssl.create_default_context(cafile=value)
        except OSError as error:  # SSLError is one
            raise UserError(f"{name}={value} is not a file of certificates", str(error), "name a PEM file") from error
    for signal in _SIGNALS:
        certificate, key = (
            environ.get(f"OTEL_EXPORTER_OTLP_{signal}_{kind}") or environ.get(f"OTEL_EXPORTER_OTLP_{kind}", "")
            for kind in ("CLIENT_CERTIFICATE", "CLIENT_KEY")
        )
        _check_client_certificate(certificate, key)


def _check_client_certificate(certificate: str, key: str) -> None:
    if key and not certificate:
        raise UserError(
            "OTEL_EXPORTER_OTLP_CLIENT_KEY is given without OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "", "give both"
        )
    if not certificate:
        return
    try:
        # Without one, OpenSSL would ask at the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate, key or None, password=lambda: "")
    except (OSError, ValueError) as error:
        raise UserError(
            f"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE={certificate} cannot be used",
            str(error),
            "name PEM files of a certificate and of its key, without a password",
        ) from error


def _parse_number(text: str) -> float:
    """Return the number; 0 where there is none."""
    try:
        return float(text)
    except ValueError:
        return 0.0
