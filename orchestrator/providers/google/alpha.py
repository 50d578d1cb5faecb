"""Calls of the TPU API, version 2alpha1: creates that only this version can say, and what became of them.

By google-api-python-client: only its discovery document has flex-start, run durations and boot disk sizes, which no
protobuf type has (google-cloud-tpu 1.28, November 2026). Everything else is looked at and ended by version 2.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Any, cast

from orchestrator.providers.google.body import revealed
from orchestrator.providers.google.requests import split
from orchestrator.providers.google.session import Session
from orchestrator.slices import Request

VERSION = "v2alpha1"


@dataclass(frozen=True, slots=True)
class Operation:
    """What became of a request. code: a google.rpc.Code, 0 when nothing went wrong."""

    done: bool
    code: int = 0
    words: str = ""


class AlphaApi:
    """A client of its own for every call, as httplib2 serves one thread only. Raises what the library raises."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def create(self, request: Request, timeout: float) -> str:
        """Send a planned create. The name of its long-running operation.

        httplib2 may send it a second time when a connection breaks; its request id makes that one and the same.
        """
        parent, collection, query = split(request)
        body = revealed(request.body)
        with closing(self._open(timeout)) as service:
            places = service.projects().locations()
            made = getattr(places, collection)().create(parent=parent, body=body, **query)
            return str(_executed(made)["name"])

    def operation(self, path: str, timeout: float) -> Operation:
        with closing(self._open(timeout)) as service:
            found = _executed(service.projects().locations().operations().get(name=path))
        error = cast(dict[str, Any], found.get("error") or {})
        return Operation(bool(found.get("done")), int(error.get("code", 0)), str(error.get("message", "")))

    def _open(self, timeout: float) -> Any:
        return self._session.service("tpu", VERSION, timeout=timeout)


def _executed(call: Any) -> dict[str, Any]:
    """The answer. What breaks on its way is a ConnectionError, whatever the library calls it."""
    try:
        found: object = call.execute(num_retries=0)
    except (TimeoutError, ConnectionError):
        raise
    except OSError as error:  # no route, no TLS
        raise ConnectionError(f"{type(error).__name__}: {error}") from error
    if not isinstance(found, dict):  # what was cut off is no JSON, and the library hands it on as it is
        raise ConnectionError("the answer is incomplete")
    return cast(dict[str, Any], found)
