"""The TPU API over gRPC on the loopback: each call is turned into its REST form and answered by the same functions.

The library's client needs a ready-made channel, as an endpoint alone makes it use TLS (google-cloud-tpu 1.28):

    transports.TpuGrpcTransport(channel=grpc.insecure_channel(server.address))
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import TracebackType
from typing import Any
from urllib.parse import urlencode

from orch_fronts.google.api import TpuApi
from orch_fronts.google.messages import V2, V2ALPHA1
from orch_fronts.google.status import INTERNAL, Refusal

_THREADS = 8
_LRO = "google.longrunning.Operations"
_PLACES = "google.cloud.location.Locations"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """A call's REST form. subject: the field with the path; suffix: what follows it. body: the field sent as the body,
    "*" for all that is no path, "" for none; the fields that are left are the query."""

    method: str
    subject: str
    suffix: str = ""
    body: str = ""


_FORMS = {
    "CreateNode": _Form(method="POST", subject="parent", suffix="/nodes", body="node"),
    "GetNode": _Form(method="GET", subject="name"),
    "ListNodes": _Form(method="GET", subject="parent", suffix="/nodes"),
    "DeleteNode": _Form(method="DELETE", subject="name"),
    "StopNode": _Form(method="POST", subject="name", suffix=":stop", body="*"),
    "StartNode": _Form(method="POST", subject="name", suffix=":start", body="*"),
    "UpdateNode": _Form(method="PATCH", subject="node.name", suffix="", body="node"),
    "GetGuestAttributes": _Form(method="POST", subject="name", suffix=":getGuestAttributes", body="*"),
    "CreateQueuedResource": _Form(method="POST", subject="parent", suffix="/queuedResources", body="queuedResource"),
    "GetQueuedResource": _Form(method="GET", subject="name"),
    "ListQueuedResources": _Form(method="GET", subject="parent", suffix="/queuedResources"),
    "DeleteQueuedResource": _Form(method="DELETE", subject="name"),
    "ResetQueuedResource": _Form(method="POST", subject="name", suffix=":reset", body="*"),
    "ListAcceleratorTypes": _Form(method="GET", subject="parent", suffix="/acceleratorTypes"),
    "GetAcceleratorType": _Form(method="GET", subject="name"),
    "ListRuntimeVersions": _Form(method="GET", subject="parent", suffix="/runtimeVersions"),
    "GetRuntimeVersion": _Form(method="GET", subject="name"),
}
_OF_OPERATIONS = {
    "GetOperation": _Form(method="GET", subject="name"),
    "ListOperations": _Form(method="GET", subject="name", suffix="/operations"),
    "CancelOperation": _Form(method="POST", subject="name", suffix=":cancel", body="*"),
    "DeleteOperation": _Form(method="DELETE", subject="name"),
}
_OF_PLACES = {
    "ListLocations": _Form(method="GET", subject="name", suffix="/locations"),
    "GetLocation": _Form(method="GET", subject="name"),
}
_ANSWERS_OPERATION = ("Create", "Delete", "Stop", "Start", "Update", "Reset")


class TpuRpcServer:
    """Serves while the block lasts, beside a TpuServer or alone. What went wrong inside is raised at its end."""

    def __init__(self, api: TpuApi) -> None:
        grpc: Any = import_module("grpc")
        self.errors: list[BaseException] = []
        self._api = api
        self._grpc = grpc
        self._server = grpc.server(ThreadPoolExecutor(_THREADS))
        for version in (V2, V2ALPHA1):
            self._add(f"google.cloud.tpu.{version}.Tpu", _FORMS, partial(_types, version))
        self._add(_LRO, _OF_OPERATIONS, _operation_types)
        self._add(_PLACES, _OF_PLACES, _place_types)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> TpuRpcServer:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(None).wait()
        if error is None and self.errors:
            raise self.errors[0]

    def _add(self, service: str, forms: dict[str, _Form], types: Callable[[str], tuple[Any, Any]]) -> None:
        handlers = {
            name: self._grpc.unary_unary_rpc_method_handler(self._handler(service, form, *types(name)))
            for name, form in forms.items()
        }
        self._server.add_generic_rpc_handlers((self._grpc.method_handlers_generic_handler(service, handlers),))

    def _handler(self, service: str, form: _Form, asked: Any, answered: Any) -> Callable[[bytes, Any], bytes]:
        json_format: Any = import_module("google.protobuf.json_format")

        def handle(raw: bytes, context: Any) -> bytes:
            message = asked()
            message.ParseFromString(raw)
            fields: dict[str, Any] = json_format.MessageToDict(message)
            try:
                version = service.split(".")[3] if service.startswith("google.cloud.tpu.") else self._version(fields)
                found = self._api.handle(*_transcoded(form, version, fields))
            except Refusal as refusal:
                return self._refuse(context, refusal)
            except Exception as error:  # a fault of the simulator, or a cloud where nothing may change
                self.errors.append(error)
                return self._refuse(context, Refusal(INTERNAL, f"{type(error).__name__}: {error}"))
            answer = json_format.ParseDict(found, answered(), ignore_unknown_fields=True)
            whole: bytes = answer.SerializeToString()
            return whole

        return handle

    def _version(self, fields: dict[str, Any]) -> str:
        """An operation is shown in the version that began it, as its name does not say which."""
        return self._api.version_of(str(fields.get("name", "")))

    def _refuse(self, context: Any, refusal: Refusal) -> bytes:
        """Never returns: abort raises what grpc turns into the status."""
        code = next(each for each in self._grpc.StatusCode if each.value[0] == refusal.canonical.number)
        context.abort(code, refusal.words)
        return b""


def _transcoded(form: _Form, version: str, fields: dict[str, Any]) -> tuple[str, str, bytes]:
    """HTTP method, path with query, and body."""
    holder, _, leaf = form.subject.rpartition(".")
    subject = (fields.get(holder, {}) if holder else fields).pop(leaf, "")
    body: object = {}
    if form.body == "*":
        body, fields = fields, {}
    elif form.body:
        body = fields.pop(form.body, {})
    query = {key: str(value) for key, value in fields.items()}
    return form.method, f"/{version}/{subject}{form.suffix}?{urlencode(query)}", json.dumps(body).encode()


def _types(version: str, name: str) -> tuple[Any, Any]:
    """Protobuf types of a request and its answer."""
    module: Any = import_module(f"google.cloud.tpu_{version}")
    asked = getattr(module, f"{name}Request").pb()
    if name.startswith(_ANSWERS_OPERATION):
        return asked, import_module("google.longrunning.operations_pb2").Operation
    plain = name.removeprefix("Get")
    answer = f"{name}Response" if name.startswith("List") or name == "GetGuestAttributes" else plain
    return asked, getattr(module, answer).pb()


def _operation_types(name: str) -> tuple[Any, Any]:
    module: Any = import_module("google.longrunning.operations_pb2")
    empty: Any = import_module("google.protobuf.empty_pb2").Empty
    answers = {"GetOperation": module.Operation, "ListOperations": module.ListOperationsResponse}
    return getattr(module, f"{name}Request"), answers.get(name, empty)


def _place_types(name: str) -> tuple[Any, Any]:
    module: Any = import_module("google.cloud.location.locations_pb2")
    return getattr(module, f"{name}Request"), getattr(
        module, name.removeprefix("Get"), None
    ) or module.ListLocationsResponse
