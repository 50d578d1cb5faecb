"""Hosts that boot as Google's images do: sshd answers with the image's own key before our start-up script has run.

The script is the one that came in the node's metadata. It really runs, against a metadata server on the loopback, with
a separate folder in place of /etc/ssh; what it installs becomes the key of the host's sshd. Before that the host has
no guest attributes ("Guest attributes", Compute Engine documentation; images of TPU VMs, read November 2026).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from orch_fronts.google.keys import image_key
from orchestrator.providers.local.layout import HostFolder, SlicePaths
from orchestrator.simulator.bodies import LocalBodies, body_name
from orchestrator.simulator.calls import Look
from orchestrator.simulator.scenario import Boot
from orchestrator.simulator.state import Phase

_INSTANCE = "/computeMetadata/v1/instance/"
_RESTART_LIMIT = 10.0  # seconds
_KEY = "ssh_host_ed25519_key"


class BootingBodies(LocalBodies):
    """Local hosts that boot late.

    Attributes:
        speed: Of the scenario; the delays are divided by it.
    """

    def __init__(self, folder: Path, boot: Boot, speed: float = 1.0) -> None:
        super().__init__(folder)
        self._hosts = folder.absolute() / "local"
        self._boot = boot
        self._speed = speed

    def sync_hosts(self, looks: Sequence[Look]) -> None:
        super().sync_hosts([_with_image_keys(look) for look in looks])
        for look in looks:
            for rank in range(look.size) if look.phase is Phase.READY else ():
                folder = self._host(look, rank)
                if folder.guard.exists() and not _marker(folder).exists() and self._is_due(folder, rank):
                    _run_start_up(look, rank, folder)

    def is_booted(self, look: Look, rank: int) -> bool:
        """Return whether the start-up script has run on the host, and well."""
        marker = _marker(self._host(look, rank))
        return marker.exists() and marker.read_text(encoding="utf-8") == "0"

    def _host(self, look: Look, rank: int) -> HostFolder:
        return SlicePaths(self._hosts / body_name(look)).host(rank)

    def _is_due(self, folder: HostFolder, rank: int) -> bool:
        delay = (self._boot.delay + rank * self._boot.stagger) / self._speed
        return time.time() >= folder.guard.stat().st_mtime + delay


def console(folder: HostFolder) -> Path:
    """Return the file with what the start-up script wrote: the serial console of the host."""
    return folder.path / "console.log"


def _marker(folder: HostFolder) -> Path:
    """Return the file with the exit status of the start-up script."""
    return folder.path / "booted"


def _with_image_keys(look: Look) -> Look:
    keys = dict(look.extra.get("keys", {}))
    private = [image_key(look, rank) for rank in range(look.size)]
    return replace(look, extra={**look.extra, "keys": keys | {"host_private": private}})


def _run_start_up(look: Look, rank: int, folder: HostFolder) -> None:
    """Run the script of the metadata; without one, or when it fails, the host keeps the image's key."""
    metadata: Mapping[str, Any] = look.extra.get("node", {}).get("metadata", {})
    ssh, tools = folder.path / "etc-ssh", folder.path / "tools"
    for made in (ssh, tools):
        made.mkdir(exist_ok=True, mode=0o700)
    (ssh / _KEY).write_text(folder.host_key.read_text(encoding="utf-8"), encoding="utf-8")
    (tools / "systemctl").write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    (tools / "systemctl").chmod(0o700)
    with _metadata_server(_attributes(look, rank, metadata)) as url, console(folder).open("ab") as log:
        environment = {
            "PATH": f"{tools}:/usr/local/bin:/usr/bin:/bin",
            "ORCH_METADATA_URL": f"{url}/computeMetadata/v1",
            "ORCH_SSH_FOLDER": str(ssh),
        }
        script = str(metadata.get("startup-script", ""))
        argv = ["bash", "-s"]
        done = subprocess.run(
            argv, input=script.encode(), env=environment, stdout=log, stderr=log, timeout=60, check=False
        )
        log.write(f"startup-script exit status {done.returncode}\n".encode())
    if done.returncode == 0:
        folder.host_key.write_text((ssh / _KEY).read_text(encoding="utf-8"), encoding="utf-8")
        _reload(folder)
    _marker(folder).write_text(str(done.returncode), encoding="utf-8")


def _reload(folder: HostFolder) -> None:
    """Let sshd read its key again. It restarts and removes its pid file, without which a host is taken for dead."""
    pid = int(folder.sshd_pid.read_text(encoding="utf-8"))
    before = folder.sshd_pid.stat().st_mtime_ns
    os.kill(pid, signal.SIGHUP)
    until = time.monotonic() + _RESTART_LIMIT
    while time.monotonic() < until:
        with contextlib.suppress(FileNotFoundError):
            if folder.sshd_pid.stat().st_mtime_ns != before:
                return
        time.sleep(0.01)


def _attributes(look: Look, rank: int, metadata: Mapping[str, Any]) -> dict[str, str]:
    """What the metadata server tells a worker, beside what the caller sent."""
    env = {"ACCELERATOR_TYPE": look.accelerator, "NODE_ID": look.name, "WORKER_ID": str(rank)}
    if look.queued:
        env["MEGASCALE_SLICE_ID"] = str(look.extra.get("slice", 0))
    lines = "".join(f"{name}: '{value}'\n" for name, value in env.items())
    plain = {name: str(value) for name, value in metadata.items()}
    return plain | {"agent-worker-number": str(rank), "tpu-env": lines}


@contextmanager
def _metadata_server(attributes: Mapping[str, str]) -> Generator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            value = attributes.get(self.path.removeprefix(f"{_INSTANCE}attributes/"))
            self._answer(200 if value is not None else 404, (value or "").encode())

        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self._answer(200, b"")

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # name of the base class
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
