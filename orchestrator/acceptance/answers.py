"""Record what a cloud refuses, as it came over the wire, and write it in the form of tests/first_contact.

Every client library of the clouds reads its answers through http.client. The record is kept by the process that is
observed (cli/commands/before/acceptance_process.py), so that it survives a kill.
"""

from __future__ import annotations

import gzip
import http.client
import io
import json
import re
import sys
import time
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

_HEAD = re.compile(rb"([A-Z]+) (\S+) HTTP/1\.\d\r\n")
_TARGET = re.compile(rb"(?i)\r\nx-amz-target: *\S*?(\w+)\r\n")
_EXPECTED = frozenset({"DryRunOperation"})  # the answer to a permitted request that asks not to be carried out
_MOST_OF_REQUEST = 8192
_MOST_OF_ANSWER = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One refusal, with the fields of tests/first_contact.

    Attributes:
        call: The operation, or method and path where the path names it.
        form: How the answer reaches the client.
        http: Status of the answer.
        code: The vendor's own code.
        status: Name of the code in google.rpc.
        reason: Of the answer's details.
        text: Verbatim.
        date: Of the day on which it came.
        step: During which it came.
    """

    call: str
    form: str
    http: int
    text: str
    date: str
    code: str = ""
    status: str = ""
    reason: str = ""
    step: str = ""


def record_answers(file: Path) -> None:
    """Record from now on, for the whole life of this process, what HTTP servers refuse. It cannot be undone."""
    requests: dict[int, bytes] = {}

    def hear(event: str, args: tuple[Any, ...]) -> None:
        if event == "http.client.send":
            connection, data = args
            if isinstance(data, bytes):
                key = id(connection.sock)
                before = b"" if _HEAD.match(data) else requests.get(key, b"")
                requests[key] = (before + data)[:_MOST_OF_REQUEST]

    class RecordedResponse(http.client.HTTPResponse):
        """An answer whose body is kept, then read again by the client library."""

        def __init__(self, sock: Any, *args: Any, **options: Any) -> None:
            super().__init__(sock, *args, **options)
            self._request = requests.get(id(sock), b"")

        def begin(self) -> None:
            super().begin()
            if self.status >= 400 or b"/operations/" in self._request.partition(b"\r\n")[0]:
                _write_line(file, self._request, self.status, _decode(self.headers, self._buffer_body()))

        def _buffer_body(self) -> bytes:
            body = self.read()
            self.fp = io.BufferedReader(cast(Any, io.BytesIO(body)))
            self.chunked, self.length = False, len(body)
            if self.headers.get("Transfer-Encoding"):
                del self.headers["Transfer-Encoding"]
                self.headers["Content-Length"] = str(len(body))
            return body

    sys.addaudithook(hear)
    http.client.HTTPConnection.response_class = RecordedResponse


def _decode(headers: http.client.HTTPMessage, body: bytes) -> str:
    try:
        if headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
    except (OSError, EOFError, zlib.error):
        return ""
    return body[:_MOST_OF_ANSWER].decode(errors="replace")


def _write_line(file: Path, request: bytes, status: int, body: str) -> None:
    """Append one answer; a line of a single write is complete, also when the process is killed after it."""
    line = json.dumps({"at": time.time(), "request": request.decode(errors="replace"), "http": status, "body": body})
    with file.open("a", encoding="utf-8") as out:
        out.write(line + "\n")


def read_refusals(file: Path, step: str) -> list[Refusal]:
    """Return what was refused during a step; nothing where no file was written."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    found = list[Refusal]()
    for line in lines:
        try:
            recorded = json.loads(line)
        except ValueError:  # the process was killed within the line
            continue
        refusal = parse_refusal(recorded["request"], recorded["http"], recorded["body"], recorded["at"], step)
        if refusal is not None and refusal not in found:
            found.append(refusal)
    return found


def parse_refusal(request: str, status: int, body: str, at: float, step: str = "") -> Refusal | None:
    """Return the refusal in an answer; None where it is none, or is what a look for something absent gets."""
    method, call = _name_call(request.encode())
    if method in {"GET", "HEAD"} and status == 404:
        return None
    read = _read_xml(body) if body.lstrip().startswith("<") else _read_json(body, status)
    if read is None and status < 400:
        return None
    fields = read or {"form": "text", "text": body.strip()[:1000] or http.client.responses.get(status, "")}
    if fields.get("code") in _EXPECTED:
        return None
    day = time.strftime("%Y-%m-%d", time.gmtime(at))
    return Refusal(**cast(Any, {"call": call, "http": status, "date": day, "step": step, **fields}))


def _name_call(request: bytes) -> tuple[str, str]:
    head = _HEAD.match(request)
    if head is None:
        return "", "unknown"
    method, target = head[1].decode(), head[2].decode(errors="replace")
    if named := _TARGET.search(request):
        return method, named[1].decode()
    action = parse_qs(request.rpartition(b"\r\n\r\n")[2].decode(errors="replace")).get("Action")
    return method, action[0] if action else f"{method} {urlsplit(target).path}"


def _read_xml(body: str) -> dict[str, str] | None:
    try:
        root = ElementTree.fromstring(body)  # noqa: S314  # of the cloud that the user pays; expat has its own limits
    except ElementTree.ParseError:
        return None
    plain = {element.tag.rpartition("}")[2]: (element.text or "").strip() for element in root.iter()}
    form = {"Response": "ec2", "ErrorResponse": "query"}.get(root.tag.rpartition("}")[2], "s3")
    return {"form": form, "code": plain.get("Code", ""), "text": plain.get("Message", "")}


def _read_json(body: str, http_status: int) -> dict[str, str] | None:
    try:
        document = json.loads(body)
    except ValueError:
        return None
    if not isinstance(document, dict):
        return None
    fields = cast(dict[str, Any], document)
    error = fields.get("error")
    if isinstance(error, dict):
        return _read_error(cast(dict[str, Any], error), http_status)
    if isinstance(error, str):
        return {"form": "refresh", "code": error, "text": str(fields.get("error_description", ""))}
    if "__type" in fields:
        text = str(fields.get("message") or fields.get("Message") or "")
        return {"form": "json", "code": str(fields["__type"]).rpartition("#")[2], "text": text}
    return None


def _read_error(error: dict[str, Any], http_status: int) -> dict[str, str]:
    """Read an error of google.rpc: as the answer of a request, or as the result of an operation."""
    errors = _list(error.get("errors"))
    details = [*_list(error.get("details")), *errors]
    reason = next((str(one["reason"]) for one in details if one.get("reason")), "")
    if http_status < 400 and errors:
        first = errors[0]
        return {"form": "compute-operation", "code": str(first.get("code", "")), "text": str(first.get("message", ""))}
    said = {"text": str(error.get("message", "")), "status": str(error.get("status", "")), "reason": reason}
    if http_status < 400:
        return {"form": "operation", "code": str(error.get("code", "")), **said}
    return {"form": "compute" if errors else "tpu", **said}


def _list(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        return []
    return [cast(dict[str, Any], one) for one in cast(list[object], value) if isinstance(one, dict)]


def write_corpus(refusals: Iterable[Refusal]) -> str:
    """Return refusals as entries of tests/first_contact; a maintainer adds id, source, kind and next."""
    return "\n".join(_entry(one) for one in refusals)


def _entry(refusal: Refusal) -> str:
    fields: dict[str, str | int] = {"id": ""}
    fields |= {key: value for key, value in asdict(refusal).items() if value and key != "step"}
    if refusal.form == "operation":
        fields["code"] = int(refusal.code) if refusal.code.isdecimal() else refusal.code
    fields |= {"source": "", "kind": "", "next": ""}
    # a JSON string is a basic string of TOML (toml.io/en/v1.0.0#string), but for DEL
    return "[[answer]]\n" + "".join(
        f"{key} = {json.dumps(value, ensure_ascii=False).replace(chr(127), '')}\n" for key, value in fields.items()
    )
