"""Counts the changes of one orch command, which Python loads this into, and kills it at one of them.

Points are before, during and after each request that changes the cloud, and before and after each commit of the store;
they are counted from the first such request on. What threads do and what only a lease changes is not counted.
STRUCK_LOG: file that gets their names. STRUCK_AT: number of the deadly one. STRUCK_TOGETHER: a folder and a number; the
first request waits until that many commands have come to it.
"""

from __future__ import annotations

import http.client
import os
import signal
import sys
import threading
import time
from pathlib import Path

from sqlalchemy.engine.default import DefaultDialect

from orchestrator.store import batches

_READS, _UNCOUNTED = ("GET", "HEAD", "OPTIONS"), ("acquire", "renew", "note_", "__init__", "keep")
_log, _deadly = Path(os.environ["STRUCK_LOG"]), int(os.environ.get("STRUCK_AT", "0"))
_folder, _, _number = os.environ.get("STRUCK_TOGETHER", "").rpartition(" ")
_passed: list[str] = []
_send = http.client.HTTPConnection.endheaders
_answer = http.client.HTTPConnection.getresponse


def _here(name: str) -> None:
    _passed.append(name)
    with _log.open("a") as file:
        file.write(f"{name}\n")
    if len(_passed) == _deadly:
        os.kill(os.getpid(), signal.SIGKILL)


def _is_counted() -> bool:
    return threading.current_thread() is threading.main_thread()


def _wait_for_others() -> None:
    if _folder and not _passed:
        Path(_folder, str(os.getpid())).touch()
        while len(list(Path(_folder).iterdir())) < int(_number):
            time.sleep(0.01)


def _endheaders(connection: http.client.HTTPConnection, *given: object, **named: object) -> None:
    method = str(vars(connection)["_method"])
    if method not in _READS and _is_counted():
        _wait_for_others()
        _here(f"before {method}")
    _send(connection, *given, **named)  # type: ignore[arg-type]  # handed on


def _getresponse(connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
    method = str(vars(connection)["_method"])
    if method in _READS or not _is_counted():
        return _answer(connection)
    time.sleep(0.3)  # the server has acted
    _here(f"during {method}")
    answer = _answer(connection)
    _here(f"after {method}")
    return answer


def _count_commits(kind: type, method: str) -> None:
    original = getattr(kind, method)

    def commit(*given: object) -> None:
        name = _change()
        counted = bool(_passed) and _is_counted() and not name.startswith(_UNCOUNTED)
        if counted:
            _here(f"before commit {name}")
        original(*given)
        if counted:
            _here(f"after commit {name}")

    setattr(kind, method, commit)


def _change() -> str:
    """Return the store's method that commits: the outermost function of its package on the stack."""
    frame, found = sys._getframe(2), "?"
    while frame is not None:
        file = frame.f_code.co_filename
        if "/orchestrator/store/" in file:
            found = frame.f_code.co_name
        elif found != "?":
            return found
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    return found


_count_commits(DefaultDialect, "do_commit")
_count_commits(batches._Together, "commit")  # of a change on PostgreSQL
http.client.HTTPConnection.endheaders = _endheaders  # type: ignore[method-assign, assignment]  # with its signature
http.client.HTTPConnection.getresponse = _getresponse  # type: ignore[method-assign]  # with its signature
