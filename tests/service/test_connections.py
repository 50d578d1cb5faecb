"""TLS connections whose caller left during the handshake keep no one out."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn
from support.service_site import make_certificate

from orchestrator.service.connections import MOST_HANDSHAKES, limit_connections


async def answer(_scope: Any, _receive: Any, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


def test_callers_that_left_are_forgotten(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    listening = socket.create_server(("127.0.0.1", 0), backlog=2 * MOST_HANDSHAKES)
    port: int = listening.getsockname()[1]
    config = uvicorn.Config(
        answer, http=limit_connections(2000, sees_callers=True), ssl_certfile=certificate, ssl_keyfile=key,
        log_level="critical", lifespan="off",
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.02)
        for _ in range(MOST_HANDSHAKES):
            socket.create_connection(("127.0.0.1", port), timeout=30).close()
        time.sleep(0.5)  # until the server has seen that they left
        context = ssl.create_default_context(cafile=str(certificate))
        context.check_hostname = False
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=30)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        connection.close()
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
