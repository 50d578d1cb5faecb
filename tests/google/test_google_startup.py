"""The scripts of the hosts, checked by shellcheck and run for real in a folder, with a metadata server beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from google_cases import keys

from orchestrator.providers.google.startup import (
    entries,
    pack_keys,
    render_end,
    render_startup,
    render_stop,
    unpack_keys,
)

KEYS = keys(8)
ENDS = ["#!/usr/bin/env bash\n" + script for script in (render_end(), render_stop())]


@dataclass(slots=True)
class Metadata:
    """values: by path below `instance/`. put: what was written there.

    deleted, posted: path, authorization and body of requests to the API.
    """

    url: str = ""
    values: dict[str, str] = field(default_factory=dict[str, str])
    put: dict[str, str] = field(default_factory=dict[str, str])
    deleted: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    posted: list[tuple[str, str, bytes]] = field(default_factory=list[tuple[str, str, bytes]])
    refuse_put: bool = False


@contextmanager
def metadata_server() -> Generator[Metadata]:
    data = Metadata()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            value = data.values.get(self.path.removeprefix("/computeMetadata/v1/instance/"))
            known = value is not None and self.headers.get("Metadata-Flavor") == "Google"
            self.send_response(200 if known else 404)
            self.end_headers()
            self.wfile.write((value or "").encode())

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            if not data.refuse_put:
                data.put[self.path.removeprefix("/computeMetadata/v1/instance/")] = body
            self.send_response(403 if data.refuse_put else 200)
            self.end_headers()

        def do_DELETE(self) -> None:
            data.deleted.append((self.path, self.headers.get("Authorization", "")))
            self.send_response(200)
            self.end_headers()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            data.posted.append((self.path, self.headers.get("Authorization", ""), body))
            self.send_response(200)
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    data.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield data
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@dataclass(slots=True)
class Host:
    """A folder that stands for /etc/ssh, a systemctl that only notes, and the metadata server."""

    folder: Path
    data: Metadata

    @property
    def key(self) -> Path:
        return self.folder / "ssh" / "ssh_host_ed25519_key"

    @property
    def restarts(self) -> list[str]:
        log = self.folder / "systemctl.log"
        return log.read_text().splitlines() if log.exists() else []

    def boot(self, hosts_per_slice: int = 4, hosts: int = 4) -> subprocess.CompletedProcess[str]:
        return self.run(render_startup(hosts_per_slice, hosts))

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "ORCH_METADATA_URL": f"{self.data.url}/computeMetadata/v1",
            "ORCH_SSH_FOLDER": str(self.folder / "ssh"),
            "ORCH_TPU_API": self.data.url,
        }
        return subprocess.run(
            ["bash", "-s"], input=script, env=environment, capture_output=True, text=True, timeout=60, check=False
        )


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    (tmp_path / "bin").mkdir()
    (tmp_path / "ssh").mkdir()
    fake = tmp_path / "bin" / "systemctl"
    fake.write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/systemctl.log\n')
    fake.chmod(0o700)
    with metadata_server() as data:
        for name, value in zip(entries(8), pack_keys(KEYS.host_private), strict=True):
            data.values[f"attributes/{name}"] = value
        data.values["attributes/agent-worker-number"] = "0"
        data.values["attributes/tpu-env"] = "ACCELERATOR_TYPE: 'v5litepod-16'\nNODE_ID: 'demo-1'\nWORKER_ID: '2'\n"
        yield Host(tmp_path, data)


@pytest.mark.parametrize("script", [render_startup(4, 4), render_startup(4, 8), *ENDS])
def test_shellcheck_has_nothing_to_say(script: str) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not here")
    done = subprocess.run(["shellcheck", "-"], input=script, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("worker", [0, 1, 3])
def test_each_worker_installs_its_own_key(worker: int, host: Host) -> None:
    host.data.values["attributes/agent-worker-number"] = str(worker)
    done = host.boot()
    assert done.returncode == 0, done.stderr
    assert host.key.read_text() == KEYS.host_private[worker]
    assert host.key.with_suffix(".pub").read_text().split()[:2] == KEYS.host_public[worker].split()[:2]
    assert host.key.stat().st_mode & 0o777 == 0o600
    assert host.key.with_suffix(".pub").stat().st_mode & 0o777 == 0o644
    assert host.restarts == ["restart ssh"]
    assert host.data.put == {"guest-attributes/hostkeys/ssh-ed25519": KEYS.host_public[worker].split()[1]}
    assert [path.name for path in sorted((host.folder / "ssh").iterdir())] == [host.key.name, f"{host.key.name}.pub"]


def test_worker_number_comes_from_the_environment_of_the_tpu_where_it_has_no_entry(host: Host) -> None:
    del host.data.values["attributes/agent-worker-number"]
    assert host.boot().returncode == 0
    assert host.key.read_text() == KEYS.host_private[2]


@pytest.mark.parametrize(
    ("lines", "rank"),
    [("MEGASCALE_SLICE_ID: '1'\nNODE_ID: 'demo-1-1'\n", 5), ("NODE_ID: 'demo-1-1'\n", 5), ("NODE_ID: 'demo-1-0'\n", 1)],
)
def test_hosts_of_a_second_slice_take_the_keys_after_those_of_the_first(lines: str, rank: int, host: Host) -> None:
    host.data.values |= {"attributes/tpu-env": lines, "attributes/agent-worker-number": "1"}
    done = host.boot(4, 8)
    assert done.returncode == 0, done.stderr
    assert host.key.read_text() == KEYS.host_private[rank]


def test_second_boot_changes_nothing_and_leaves_sshd_alone(host: Host) -> None:
    host.boot()
    assert host.boot().returncode == 0
    assert host.restarts == ["restart ssh"]


def test_key_of_another_machine_is_replaced(host: Host) -> None:
    host.key.write_text(KEYS.host_private[7])
    host.key.with_suffix(".pub").write_text(KEYS.host_public[7])
    assert host.boot().returncode == 0
    assert host.key.read_text() == KEYS.host_private[0]


def test_private_key_without_its_public_half_is_repaired(host: Host) -> None:
    """A boot that was cut short between the two."""
    host.key.write_text(KEYS.host_private[0])
    assert host.boot().returncode == 0
    assert host.key.with_suffix(".pub").read_text().split()[:2] == KEYS.host_public[0].split()[:2]


@pytest.mark.parametrize(
    "change",
    [
        {"attributes/agent-worker-number": "6"},
        {"attributes/agent-worker-number": "none"},
        {"attributes/orch-host-keys-0": "1:AAAA"},
        {"attributes/orch-host-keys-0": "0:AAAA"},
        {"attributes/orch-host-keys-0": ""},
    ],
)
def test_what_is_wrong_fails_and_leaves_the_old_key(change: dict[str, str], host: Host) -> None:
    host.key.write_text("the old key")
    host.data.values |= change
    done = host.boot()
    assert done.returncode != 0
    assert done.stderr.startswith(("orch start-up: ", "Load key")), done.stderr
    assert host.key.read_text() == "the old key"
    assert host.restarts == []
    assert host.data.put == {}


def test_no_key_is_ever_printed(host: Host) -> None:
    lines = [line for key in KEYS.host_private for line in key.splitlines()[1:-1]]
    for _ in range(2):
        done = host.boot()
        assert not any(line in done.stdout + done.stderr for line in lines)
    traced = host.run(render_startup(4, 4))
    assert not any(line in traced.stdout + traced.stderr for line in lines)
    assert not any(line in render_startup(4, 4) for line in lines)


def test_server_without_guest_attributes_fails_nothing(host: Host) -> None:
    host.data.refuse_put = True
    done = host.boot()
    assert done.returncode == 0
    assert "no guest attributes" in done.stderr


@pytest.mark.parametrize(
    "resource", ["projects/p/locations/z/nodes/demo-1", "projects/p/locations/z/queuedResources/q?force=true"]
)
def test_host_ends_what_it_belongs_to_with_its_own_token(resource: str, host: Host) -> None:
    host.data.values["attributes/orch-resource"] = resource
    host.data.values["service-accounts/default/token"] = (
        '{"access_token":"tok-en","expires_in":3599,"token_type":"Bearer"}'
    )
    done = host.run(render_end())
    assert done.returncode == 0, done.stderr
    assert host.data.deleted == [(f"/v2/{resource}", "Bearer tok-en")]


def test_host_stops_its_node_with_its_own_token(host: Host) -> None:
    host.data.values["attributes/orch-resource"] = "projects/p/locations/z/nodes/demo-1"
    host.data.values["service-accounts/default/token"] = '{"access_token":"tok-en","token_type":"Bearer"}'
    done = host.run(render_stop())
    assert done.returncode == 0, done.stderr
    assert host.data.posted == [("/v2/projects/p/locations/z/nodes/demo-1:stop", "Bearer tok-en", b"{}")]
    assert host.data.deleted == []


def test_host_without_a_token_deletes_nothing(host: Host) -> None:
    host.data.values["attributes/orch-resource"] = "projects/p/locations/z/nodes/demo-1"
    assert host.run(render_end()).returncode != 0
    assert host.data.deleted == []


def test_packed_keys_come_back_whole() -> None:
    many = (KEYS.host_private * 200)[:1300]
    packed = pack_keys(many)
    assert len(packed) == len(entries(1300)) == 3
    assert unpack_keys(packed) == dict(enumerate(many))


@pytest.mark.parametrize(
    "key", ["", "ssh-ed25519 AAAA", "-----BEGIN OPENSSH PRIVATE KEY-----\n-----END OPENSSH PRIVATE KEY-----"]
)
def test_what_is_no_key_is_not_packed(key: str) -> None:
    with pytest.raises(ValueError, match=r"not an OpenSSH private key|unpack"):
        pack_keys([key])
