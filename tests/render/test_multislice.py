"""Several slices: the variables of each host's program; those that Google sets stay."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from render_support import run_script

from orchestrator.plan.environment import HostEnvironment
from orchestrator.render.packages import Backend
from orchestrator.render.scripts import RunInputs, render_run
from orchestrator.values import to_text

NAMES = ("MEGASCALE_COORDINATOR_ADDRESS", "MEGASCALE_PORT", "MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID")
CLOSED_PORT = "127.0.0.1:9"


@contextmanager
def metadata(tpu_env: str) -> Generator[str]:
    """A metadata server on loopback, which answers only to who shows the header, as Google's does."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path == "/computeMetadata/v1/instance/attributes/tpu-env"
            self.send_response(200 if known and self.headers["Metadata-Flavor"] == "Google" else 404)
            self.end_headers()
            self.wfile.write(tpu_env.encode() if known else b"")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def place(rank: int, slices: int, hosts: int = 4) -> dict[str, str]:
    """What orch exports on one host, by its own rule."""
    ips = tuple(to_text(f"10.0.0.{number + 1}") for number in range(hosts))
    made = HostEnvironment(
        common=(),
        internal_ips=ips,
        chips_per_host=4,
        accelerator="v4-16",
        port=29500,
        task_id=to_text("id"),
        num_slices=slices,
    )
    return {name: value.reveal() for name, value in made.for_rank(rank)}


def shown(backend: Backend, home: Path, env: dict[str, str]) -> dict[str, str]:
    no_chips = {**env, "ORCH_TPU_CHECK": "0"}
    done = run_script(render_run(RunInputs(backend=backend, user_run="env -0")), home, no_chips)
    assert (done.returncode, done.stderr) == (0, "")
    return dict(pair.split("=", 1) for pair in done.stdout.split("\0") if pair)


@pytest.mark.parametrize("backend", ["xla", "jax"])
def test_ranks_go_slice_by_slice_and_all_meet_at_the_first_host(backend: Backend, tmp_path: Path) -> None:
    environments = [
        shown(backend, tmp_path / str(rank), {**place(rank, 2), "GCE_METADATA_HOST": CLOSED_PORT}) for rank in range(4)
    ]
    assert [env["MEGASCALE_SLICE_ID"] for env in environments] == ["0", "0", "1", "1"]
    for env in environments:
        assert (env["MEGASCALE_COORDINATOR_ADDRESS"], env["MEGASCALE_PORT"]) == ("10.0.0.1", "8081")
        assert env["MEGASCALE_NUM_SLICES"] == "2"
        assert env["MASTER_ADDR"] == "10.0.0.1"
    if backend == "jax":
        assert [(env["JAX_PROCESS_ID"], env["JAX_NUM_PROCESSES"]) for env in environments] == [
            (str(n), "4") for n in range(4)
        ]
        assert {env["JAX_COORDINATOR_ADDRESS"] for env in environments} == {"10.0.0.1:29500"}


@pytest.mark.parametrize("backend", ["xla", "jax"])
def test_one_slice_learns_of_no_others(backend: Backend, tmp_path: Path) -> None:
    assert not set(NAMES) & set(shown(backend, tmp_path, {**place(1, 1), "GCE_METADATA_HOST": CLOSED_PORT}))


def test_what_the_metadata_of_the_host_has_is_left_to_libtpu(tmp_path: Path) -> None:
    with metadata("ACCELERATOR_TYPE: 'v4-16'\nMEGASCALE_COORDINATOR_ADDRESS: '10.1.1.1'\n") as server:
        assert not set(NAMES) & set(shown("jax", tmp_path, {**place(2, 2), "GCE_METADATA_HOST": server}))
    with metadata("ACCELERATOR_TYPE: 'v4-16'\n") as server:
        assert shown("jax", tmp_path, {**place(2, 2), "GCE_METADATA_HOST": server})["MEGASCALE_SLICE_ID"] == "1"


@pytest.mark.parametrize("name", ["MEGASCALE_COORDINATOR_ADDRESS", "MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID"])
def test_names_of_the_users_own_are_never_mixed_with_ours(name: str, tmp_path: Path) -> None:
    env = shown("xla", tmp_path, {**place(2, 2), "GCE_METADATA_HOST": CLOSED_PORT, name: "7"})
    assert {key: env[key] for key in NAMES if key in env} == {name: "7"}
