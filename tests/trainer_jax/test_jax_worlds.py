"""Several JAX processes on loopback: the same losses as one, each with its rows; a lost process is noticed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax_cases import SMALL, jax_engine, run, settings

from trainer.errors import DeviceError, Exit
from trainer.jax_engine.all_reduce import check_local_devices
from trainer.shape.architecture import count_parameters

HERE = Path(__file__).resolve().parent
pytestmark = [pytest.mark.jax, pytest.mark.slow, pytest.mark.timeout(300)]


@dataclass(frozen=True, slots=True)
class Rank:
    status: int
    lines: list[str]

    @property
    def seen(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(next(line for line in self.lines if line.startswith("{")))
        return found


@pytest.mark.promise("P31")
def test_two_processes_with_two_devices_each_agree_with_one() -> None:
    ranks = _world(2, 2, "mesh.fsdp=2 mesh.tensor=2")
    assert [rank.status for rank in ranks] == [0, 0], ranks
    expected = [loss for loss, _ in run(jax_engine(), steps=3)]
    for rank in ranks:
        np.testing.assert_allclose(rank.seen["losses"], expected, rtol=1e-5)
        assert rank.seen["stops"] == [0, 1, 0]
        assert not [line for line in rank.lines if "proxy" in line]
        assert rank.seen["programs"] == 1
    assert [rank.seen["rows"] for rank in ranks] == [[0, 4], [4, 4]]
    # Weights and two moments, each written by one of them.
    assert sum(rank.seen["written"] for rank in ranks) == 3 * count_parameters(settings().model)


@pytest.mark.promise("P35")
def test_processes_that_share_rows_agree_and_notice_a_killed_one() -> None:
    ranks = _world(4, 1, "mesh.data=2 mesh.tensor=2 accumulate=2", LAST_WORDS="die")
    expected = [loss for loss, _ in run(jax_engine(), steps=3)]
    for rank in ranks:
        np.testing.assert_allclose(rank.seen["losses"], expected, rtol=1e-5)
        assert rank.seen["stops"] == [0, 3, 0]
    assert [rank.seen["rows"] for rank in ranks] == [[0, 4], [0, 4], [4, 4], [4, 4]]
    # Copies of every weight lie on several of them; each is written once, and every process writes some.
    written = [rank.seen["written"] for rank in ranks]
    assert sum(written) == 3 * count_parameters(settings().model)
    assert min(written) > 0
    assert ranks[3].status == -signal.SIGTERM
    for rank in ranks[:3]:
        assert rank.status == 1, rank
        assert any(line.startswith("peer: lost another rank") for line in rank.lines), rank


def test_processes_of_one_device_and_of_two_divide_the_tokens_of_a_row() -> None:
    expected = [loss for loss, _ in run(jax_engine(), steps=3)]
    for size, devices in ((2, 1), (2, 2)):
        ranks = _world(size, devices, f"mesh.fsdp={size * devices} mesh.context={size * devices}")
        for rank in ranks:
            np.testing.assert_allclose(rank.seen["losses"], expected, rtol=1e-5)
            assert rank.seen["rows"] == [0, 8]
        assert sum(rank.seen["written"] for rank in ranks) == 3 * count_parameters(settings().model)


def _world(size: int, devices: int, words: str, **more: str) -> list[Rank]:
    return _run_world(size, devices, [str(HERE / "jax_world.py"), *words.split()], **more)


def _run_world(size: int, devices: int, command: list[str], **more: str) -> list[Rank]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    path = os.pathsep.join([str(HERE.parents[1]), str(HERE), os.environ.get("PYTHONPATH", "")])
    processes = [
        subprocess.Popen(
            [sys.executable, *command],
            env={
                **os.environ,
                **more,
                # Nothing listens there: ranks connect directly.
                "http_proxy": "http://127.0.0.1:9",
                "PYTHONPATH": path,
                "JAX_NUM_CPU_DEVICES": str(devices),
                "ORCH_NUM_HOSTS": str(size),
                "ORCH_RANK": str(rank),
                "ORCH_COORDINATOR": f"127.0.0.1:{port}",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        outputs = [process.communicate(timeout=240)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [Rank(process.returncode, out.splitlines()) for process, out in zip(processes, outputs, strict=True)]


def test_the_network_command_measures_all_devices_of_all_processes() -> None:
    ranks = _run_world(2, 2, ["-m", "trainer", "network", *SMALL.split(), "engine=jax"], ORCH_NETWORK_GBPS="100")
    assert [rank.status for rank in ranks] == [0, 0], ranks
    (line,) = [line for rank in ranks for line in rank.lines if line.startswith("network: ")]
    assert re.match(r"network: all-reduce of 4 MiB over 4 devices: \d+\.\d GB/s \(jax\); ", line), line
    assert line.endswith("of one host's 100 Gbit/s")


def test_a_rate_below_the_floor_ends_every_process() -> None:
    ranks = _run_world(2, 1, ["-m", "trainer", "network", *SMALL.split(), "engine=jax"], ORCH_NETWORK_FLOOR="100000")
    assert [rank.status for rank in ranks] == [Exit.DEVICE, Exit.DEVICE], ranks
    assert all("is below ORCH_NETWORK_FLOOR=100000" in rank.lines[-1] for rank in ranks), ranks


def test_a_host_whose_chips_jax_does_not_all_see_is_refused() -> None:
    check_local_devices("tpu", 4, 4)
    check_local_devices("cpu", 1, 4)
    with pytest.raises(DeviceError, match="JAX sees 3 devices on this host, which should have 4 chips"):
        check_local_devices("tpu", 3, 4)
