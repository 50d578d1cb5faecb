"""Calls by google-api-python-client: sent, waited for, and their errors told apart."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any, TypeVar, cast

from orchestrator.providers.core.faults import Kind, Refused
from orchestrator.providers.google.client import CHANGE_SECONDS, READ_SECONDS
from orchestrator.providers.google.retries import reading, understood
from orchestrator.providers.google.session import Session

_Result = TypeVar("_Result")


class Discovery:
    """One service, such as ("compute", "v1"), opened on first use.

    Thread-safe: httplib2 serves one thread only, so each call has a connection of its own; the service's description,
    which takes a tenth of a second to read, is kept.
    """

    def __init__(self, session: Session, name: str, version: str) -> None:
        self._session, self._name, self._version = session, name, version
        self._service: Any = None
        self._lock = threading.Lock()

    def read(self, ask: Callable[[Any], Any]) -> dict[str, Any]:
        """What `ask` makes of the service, executed; again when that may help. Raises Refused."""
        return _told_apart(lambda: reading(lambda: self._once(ask, READ_SECONDS)))

    def find(self, ask: Callable[[Any], Any]) -> dict[str, Any] | None:
        """As read; None only when Google says that there is none."""
        try:
            return self.read(ask)
        except Refused as refused:
            if refused.answer.kind is Kind.NOT_FOUND:
                return None
            raise

    def change(self, ask: Callable[[Any], Any]) -> dict[str, Any]:
        """As read, asked once. httplib2 may send it again when a connection breaks before the answer: a caller has to
        take "exists already" and "not found" for what its own first request may have done. Raises Refused."""
        return _told_apart(lambda: self._once(ask, CHANGE_SECONDS))

    def _once(self, ask: Callable[[Any], Any], timeout: float) -> dict[str, Any]:
        from google.auth.exceptions import GoogleAuthError

        call = ask(self._opened())
        with closing(self._session.http(timeout)) as http:
            try:
                return cast(dict[str, Any], call.execute(http=http, num_retries=0) or {})
            except (TimeoutError, ConnectionError, GoogleAuthError):
                raise
            except OSError as error:  # no route, no TLS
                raise ConnectionError(f"{type(error).__name__}: {error}") from error
            except ValueError as error:  # an answer that was cut off is no JSON
                raise ConnectionError(f"the answer cannot be read: {error}") from error

    def _opened(self) -> Any:
        with self._lock:
            if self._service is None:
                self._service = self._session.service(self._name, self._version)
            return self._service


def _told_apart(call: Callable[[], _Result]) -> _Result:
    try:
        return call()
    except Exception as error:
        answer = understood(error)
        if answer is None:
            raise
        raise Refused(answer) from error
