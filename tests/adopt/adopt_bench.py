"""A TPU VM that somebody made without orch, in a pretend Google, and the command line that adopts it."""

from __future__ import annotations

import io
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.api_core.exceptions import NotFound
from google.auth.credentials import AnonymousCredentials
from google.cloud import tpu_v2
from google.oauth2.credentials import Credentials

from orch_fronts.google.cloud import SimulatedGoogle
from orch_fronts.google.server import PROJECT, TpuServer
from orchestrator.__main__ import main

ZONE = "us-west4-a"
PARENT = f"projects/{PROJECT}/locations/{ZONE}"
THEIR_KEY = "me:ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA me@laptop"
THEIRS = {"ssh-keys": THEIR_KEY, "proxy-mode": "project_editors"}
QUICK = """
[durations]
create = 0.1
end = 0.1
queue = 0.1
stop = 0.1
start = 0.1
detect = 0.1
contact = 0
jitter = 0
"""


@dataclass(frozen=True)
class Said:
    status: int
    out: str
    err: str


def orch(*words: str) -> Said:
    """One command line, in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        status = main(words)
    texts = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]  # BytesIO
    return Said(status, *texts)


def ok(*words: str) -> Said:
    said = orch(*words)
    assert said.status == 0, (words, said)
    return said


@dataclass(frozen=True)
class Maker:
    """Whoever made the TPU VMs: Google's own client."""

    client: tpu_v2.TpuClient

    @classmethod
    def at(cls, server: TpuServer) -> Maker:
        options = {"api_endpoint": server.url}
        credentials = Credentials(server.token) if server.token else AnonymousCredentials()
        return cls(tpu_v2.TpuClient(credentials=credentials, transport="rest", client_options=options))

    def make(self, name: str, *, wait: bool = True, **fields: Any) -> None:
        given = {"accelerator_type": "v5litepod-8", "runtime_version": "v2-alpha-tpuv5-lite", "labels": {"team": "ml"}}
        node = tpu_v2.Node({**given, "metadata": THEIRS, **fields})
        self.client.create_node(parent=PARENT, node_id=name, node=node, timeout=10)
        if wait:
            self.until(name, "READY")

    def queue(self, name: str, node: str, *, wait: bool = True, **fields: Any) -> None:
        """A queued resource with one node, or with `fields["count"]` of them."""
        given = tpu_v2.Node(accelerator_type="v5litepod-8", runtime_version="v2-alpha-tpuv5-lite", metadata=THEIRS)
        spec: dict[str, Any] = {"parent": PARENT, "node": given, "node_id": node}
        if count := fields.pop("count", None):
            del spec["node_id"]
            spec["multislice_params"] = {"node_count": count, "node_id_prefix": node}
        resource = {"tpu": {"node_spec": [spec]}, **fields}
        asked = {"parent": PARENT, "queued_resource_id": name, "queued_resource": resource}
        self.client.create_queued_resource(tpu_v2.CreateQueuedResourceRequest(asked), timeout=10)
        if wait:
            self.until(f"{node}-0" if count else node, "READY")

    def node(self, name: str) -> tpu_v2.Node | None:
        try:
            return self.client.get_node(name=f"{PARENT}/nodes/{name}", timeout=10)
        except NotFound:
            return None

    def queued(self, name: str) -> tpu_v2.QueuedResource | None:
        try:
            return self.client.get_queued_resource(name=f"{PARENT}/queuedResources/{name}", timeout=10)
        except NotFound:
            return None

    def until(self, name: str, state: str) -> None:
        end = time.monotonic() + 30
        while (there := self.state(name)) != state:
            assert time.monotonic() < end, f"{name} is {there}, not {state}"
            time.sleep(0.05)

    def state(self, name: str) -> str:
        node = self.node(name)
        return "ABSENT" if node is None else node.state.name

    def labels(self, name: str) -> dict[str, str]:
        node = self.node(name)
        assert node is not None
        return dict(node.labels)

    def metadata(self, name: str) -> dict[str, str]:
        node = self.node(name)
        assert node is not None
        return dict(node.metadata)

    def remove(self, name: str) -> None:
        self.client.delete_node(name=f"{PARENT}/nodes/{name}", timeout=10)


def sent(google: SimulatedGoogle, method: str) -> list[str]:
    """Paths of the requests with this method, in order."""
    return [path for each, path, _ in google.server.requests if each == method]


def pretend(folder: Path) -> SimulatedGoogle:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scenario.toml").write_text(QUICK)
    return SimulatedGoogle(folder)
