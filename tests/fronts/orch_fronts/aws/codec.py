"""The query protocols of AWS, both ways, from botocore's own service model: requests to values, answers to XML.

"ec2" and "query" are siblings: lists are `Name.1` in one and `Name.member.1` in the other, an answer stands in
`<ActionResponse>` or, further inside, in `<ActionResult>`. Source: botocore 1.44 (serialize.py, parsers.py), which all
clients here use. Times are seconds since the epoch, so that what was asked can be kept as JSON.

What each shape needs is worked out once and kept as closures: a request with 33 interfaces takes about a millisecond.
"""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from typing import Any, cast
from xml.sax.saxutils import escape

from orch_fronts.aws.calls import AwsRefusal
from orch_fronts.aws.refusals import REQUEST_ID
from orchestrator.distribution import install_command
from orchestrator.errors import UserError

_Decoder = Callable[[Any, str], Any]
_Encoder = Callable[[Any, list[str]], None]


class Codec:
    """Of one service. Use `codec_of`: a model takes a quarter of a second to read."""

    def __init__(self, service: str) -> None:
        self.model = _model(service)
        self.flat = self.model.metadata["protocol"] == "ec2"
        self._decoders: dict[str, _Decoder] = {}
        self._encoders: dict[str, _Encoder] = {}
        self._operations = frozenset(self.model.operation_names)
        # Another thread must not find a shape whose closure is being made.
        self._making = threading.Lock()

    def decode(self, operation: str, flat: Mapping[str, str]) -> dict[str, Any]:
        """The parameters by their names in the model. flat: as sent, with or without Action and Version.

        Raises AwsRefusal: InvalidAction, UnknownParameter, InvalidParameterValue, MissingParameter.
        """
        if operation not in self._operations:
            raise AwsRefusal("InvalidAction", f"The action {operation} is not valid for this web service.")
        shape = self.model.operation_model(operation).input_shape
        tree = _tree({name: value for name, value in flat.items() if name not in ("Action", "Version")})
        if shape is None:
            return {}
        with self._making:
            decode = self._decoder(shape)
        found: dict[str, Any] = decode(tree, "")
        for name in shape.required_members:
            if name not in found:
                raise AwsRefusal("MissingParameter", f"The request must contain the parameter {name}")
        return found

    def encode(self, operation: str, value: Mapping[str, Any]) -> bytes:
        """Raises KeyError for a member that the answer does not have: a fault of the simulator."""
        shape = self.model.operation_model(operation).output_shape
        parts: list[str] = []
        if shape is not None:
            with self._making:
                write = self._encoder(shape)
            write(value, parts)
        inner = "".join(parts)
        if self.flat:
            inner = f"<requestId>{REQUEST_ID}</requestId>{inner}"
        else:
            wrapper = shape.serialization.get("resultWrapper", f"{operation}Result") if shape is not None else ""
            result = f"<{wrapper}>{inner}</{wrapper}>" if wrapper else ""
            inner = f"{result}<ResponseMetadata><RequestId>{REQUEST_ID}</RequestId></ResponseMetadata>"
        return f'<?xml version="1.0" encoding="UTF-8"?>\n<{operation}Response>{inner}</{operation}Response>'.encode()

    # --- requests -----------------------------------------------------------------------------------------

    def _decoder(self, shape: Any) -> _Decoder:
        """Of a shape, by its name; one that contains itself finds the decoder that is being made."""
        key = str(shape.name)
        if key not in self._decoders:

            def later(node: Any, where: str) -> Any:
                return self._decoders[key](node, where)

            self._decoders[key] = later
            self._decoders[key] = self._make_decoder(shape)
        return self._decoders[key]

    def _make_decoder(self, shape: Any) -> _Decoder:
        if shape.type_name == "structure":
            members = {self._sent_as(member, name): (name, self._decoder(member))
                       for name, member in shape.members.items()}  # fmt: skip
            return lambda node, where: _structure(node, where, members)
        if shape.type_name == "list":
            inside = self._decoder(shape.member)
            between = "" if self.flat or shape.serialization.get("flattened") else _list_name(shape)
            return lambda node, where: _list(node, where, inside, between)
        if shape.type_name == "map":
            return _map_decoder(self._decoder(shape.key), self._decoder(shape.value))
        return _SCALARS[shape.type_name]

    def _sent_as(self, shape: Any, name: str) -> str:
        traits = shape.serialization
        if self.flat:
            given = str(traits.get("queryName") or traits.get("name") or name)
            return given if "queryName" in traits else given[0].upper() + given[1:]
        return str(traits.get("name") or name)

    # --- answers ------------------------------------------------------------------------------------------

    def _encoder(self, shape: Any) -> _Encoder:
        """Of what stands inside a shape's element, by its name."""
        key = str(shape.name)
        if key not in self._encoders:

            def later(value: Any, parts: list[str]) -> None:
                self._encoders[key](value, parts)

            self._encoders[key] = later
            self._encoders[key] = self._make_encoder(shape)
        return self._encoders[key]

    def _make_encoder(self, shape: Any) -> _Encoder:
        if shape.type_name == "structure":
            members = {name: (str(member.serialization.get("name") or name), self._encoder(member))
                       for name, member in shape.members.items()}  # fmt: skip
            return lambda value, parts: _write_structure(value, parts, members)
        if shape.type_name == "list":
            inside, name = self._encoder(shape.member), _list_name(shape)
            return lambda value, parts: _write_list(value, parts, inside, name)
        if shape.type_name == "map":
            return _write_map(self._encoder(shape.key), self._encoder(shape.value))
        write = _WRITERS.get(shape.type_name, _text)
        return lambda value, parts: parts.append(write(value))


@cache
def codec_of(service: str) -> Codec:
    """Raises UserError without botocore."""
    return Codec(service)


def iso(seconds: float) -> str:
    """As AWS writes a time, with milliseconds."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{round(seconds % 1 * 1000) % 1000:03d}Z"


def _model(service: str) -> Any:
    try:
        loaders, model = import_module("botocore.loaders"), import_module("botocore.model")
    except ImportError as error:
        words = "the pretend AWS reads the forms of requests from botocore, which is not installed"
        raise UserError(words, str(error), install_command("aws")) from error
    return model.ServiceModel(loaders.Loader().load_service_model(service, "service-2"), service)


def _list_name(shape: Any) -> str:
    return str(shape.member.serialization.get("name") or "member")


def _tree(flat: Mapping[str, str]) -> dict[str, Any]:
    """`A.1.B=x` as {"A": {"1": {"B": "x"}}}."""
    root: dict[str, Any] = {}
    for name, value in flat.items():
        *path, last = name.split(".")
        node: Any = root
        for part in path:
            node = cast(dict[str, Any], node).setdefault(part, {}) if isinstance(node, dict) else None
        if not isinstance(node, dict) or isinstance(cast(dict[str, Any], node).get(last), dict):
            raise AwsRefusal("InvalidParameter", f"The parameter {name} stands for a value and for a list")
        node[last] = value
    return root


def _structure(node: Any, where: str, members: Mapping[str, tuple[str, _Decoder]]) -> dict[str, Any]:
    if not isinstance(node, dict):
        raise AwsRefusal("InvalidParameterValue", f"{where} is not a structure")
    found: dict[str, Any] = {}
    for name, value in cast(dict[str, Any], node).items():
        path = f"{where}.{name}" if where else name
        if name not in members:
            raise AwsRefusal("UnknownParameter", f"The parameter {path} is not recognized")
        known, decode = members[name]
        found[known] = decode(value, path)
    return found


def _list(node: Any, where: str, inside: _Decoder, between: str) -> list[Any]:
    if node == "" and between:  # the query protocol sends an empty list
        return []
    items: Any = cast(dict[str, Any], node).get(between) if between and isinstance(node, dict) else node
    if not isinstance(items, dict) or not all(each.isdecimal() for each in cast(dict[str, Any], items)):
        raise AwsRefusal("InvalidParameterValue", f"{where} is not a list")
    ordered = sorted(cast(dict[str, Any], items).items(), key=lambda pair: int(pair[0]))
    return [inside(value, f"{where}.{number}") for number, value in ordered]


def _map_decoder(key: _Decoder, inside: _Decoder) -> _Decoder:
    """`Name.entry.1.key` and `Name.entry.1.value`."""
    pair = {"key": ("key", key), "value": ("value", inside)}

    def decode(node: Any, where: str) -> dict[str, Any]:
        entries = _list(node, where, lambda each, path: _structure(each, path, pair), "entry")
        return {each["key"]: each.get("value", "") for each in entries}

    return decode


def _scalar(read: Callable[[str], Any], kind: str) -> _Decoder:
    def decode(node: Any, where: str) -> Any:
        if not isinstance(node, str):
            raise AwsRefusal("InvalidParameterValue", f"{where} is not a {kind}")
        try:
            return read(node)
        except ValueError as error:
            words = f"Invalid value '{node}' for {where}: it is not a {kind}"
            raise AwsRefusal("InvalidParameterValue", words) from error

    return decode


def _read_boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _read_time(text: str) -> float:
    when = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def _read_blob(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(text) from error


def _write_structure(value: Mapping[str, Any], parts: list[str], members: Mapping[str, tuple[str, _Encoder]]) -> None:
    for name, each in value.items():
        tag, encode = members[name]
        if each is not None:
            parts.append(f"<{tag}>")
            encode(each, parts)
            parts.append(f"</{tag}>")


def _write_list(value: list[Any], parts: list[str], inside: _Encoder, name: str) -> None:
    opening, closing = f"<{name}>", f"</{name}>"
    for each in value:
        parts.append(opening)
        inside(each, parts)
        parts.append(closing)


def _write_map(key: _Encoder, inside: _Encoder) -> _Encoder:
    def write(value: Mapping[str, Any], parts: list[str]) -> None:
        for name, each in value.items():
            parts.append("<entry><key>")
            key(name, parts)
            parts.append("</key><value>")
            inside(each, parts)
            parts.append("</value></entry>")

    return write


def _text(value: object) -> str:
    return escape(str(value))


_INTEGER = _scalar(int, "whole number")
_FLOAT = _scalar(float, "number")
_STRING = _scalar(str, "string")
_SCALARS: Mapping[str, _Decoder] = {
    "string": _STRING,
    "character": _STRING,
    "integer": _INTEGER,
    "long": _INTEGER,
    "float": _FLOAT,
    "double": _FLOAT,
    "boolean": _scalar(_read_boolean, "boolean"),
    "timestamp": _scalar(_read_time, "time"),
    "blob": _scalar(_read_blob, "base64 text"),
}
_WRITERS: Mapping[str, Callable[[Any], str]] = {
    "boolean": lambda value: "true" if value else "false",
    "timestamp": iso,
    "blob": lambda value: base64.b64encode(value).decode(),
}
