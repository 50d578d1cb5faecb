"""`/healthz` answers also when every thread is at work, and no one is asked who calls."""

from __future__ import annotations

import http.client
import threading
from pathlib import Path

import pytest
from service_here import serve_here

from orchestrator.service.gate import Gate
from orchestrator.service.host_board import HostBoard
from orchestrator.store.store import Store

CALLERS = 12  # more than the service has threads


def test_health_needs_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path / "orch.db"):
        pass
    go, waiting = threading.Event(), threading.Semaphore(0)

    def wait(_gate: Gate, **_given: str) -> None:
        waiting.release()
        go.wait(60)

    with serve_here(tmp_path / "orch.db", HostBoard()) as shown:
        monkeypatch.setattr(Gate, "identify", wait)

        def call(path: str) -> int:
            connection = http.client.HTTPConnection("127.0.0.1", shown.port, timeout=60)
            connection.request("GET", path, headers={"Authorization": "Bearer none"})
            return connection.getresponse().status

        callers = [threading.Thread(target=call, args=("/v1/me",)) for _ in range(CALLERS)]
        for caller in callers:
            caller.start()
        try:
            for _ in range(8):
                assert waiting.acquire(timeout=30), "every thread is at work"
            assert call("/healthz") == 200
            assert not go.is_set()
        finally:
            go.set()
            for caller in callers:
                caller.join()
