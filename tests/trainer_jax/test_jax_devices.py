"""JAX's errors about devices are translated with the next step, and unconnected slices are noticed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from jaxlib.xla_client import generate_pjrt_gpu_plugin_options

from trainer.accelerators.usable_memory import find_usable_bytes
from trainer.environment import World
from trainer.errors import DeviceError
from trainer.jax_engine.devices import check_processes, explain_refusal, reserve_gpu_memory

pytestmark = pytest.mark.jax

# As libtpu gives them (jax issues 22070 and 10192), and JAX hands them on.
IN_USE = (
    "Unable to initialize backend 'tpu': ABORTED: The TPU is already in use by process with pid 176028. Not attempting "
    "to load libtpu.so in this process. (set JAX_PLATFORMS='' to automatically choose an available backend)"
)
LOCKED = (
    "Unable to initialize backend 'tpu': ABORTED: Internal error when accessing libtpu multi-process lockfile. Run \"$ "
    "sudo rm /tmp/libtpu_lockfile\". (set JAX_PLATFORMS='' to automatically choose an available backend)"
)


@pytest.mark.parametrize(
    ("refusal", "step"), [(IN_USE, "end that process"), (LOCKED, "when no process uses the chips"), ("odd", "odd")]
)
def test_a_tpu_in_use_is_reported_with_the_next_step(refusal: str, step: str) -> None:
    words = explain_refusal(refusal)
    assert step in words and "JAX_PLATFORMS" not in words


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ({}, 0.94),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.5"}, 0.5),
        ({"XLA_CLIENT_MEM_FRACTION": "0.8"}, 0.8),
    ],
    ids=["default", "deprecated", "given"],
)
def test_jax_may_use_the_gpu_memory_that_estimates_count_on(
    given: dict[str, str], used: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As jaxlib reads the variables when it creates the device."""
    environ = dict(given)
    reserve_gpu_memory(environ)
    for name in ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"):
        monkeypatch.setenv(name, environ.get(name, ""))
    assert generate_pjrt_gpu_plugin_options()["memory_fraction"] == pytest.approx(used)
    assert find_usable_bytes("cuda", "H100", 1000) == 940


def test_ranks_that_see_another_number_of_processes_do_not_train() -> None:
    world = World(rank=1, size=4, coordinator="10.0.0.1:80", launcher="orch")
    check_processes("tpu", world, 4)
    with pytest.raises(DeviceError, match=r"sees 2 processes where the run has 4: .*MEGASCALE_SLICE_ID"):
        check_processes("tpu", world, 2)
    with pytest.raises(DeviceError, match=r"sees 2 processes where the run has 1"):
        check_processes("cpu", World(), 2)


@pytest.mark.slow
def test_a_run_of_two_ranks_does_not_start_where_jax_sees_one_process() -> None:
    script = """
import jax
from jax_cases import settings
from trainer.config import DistConfig
from trainer.accelerators.usable_memory import find_usable_bytes
from trainer.environment import World
from trainer.jax_engine.devices import open_devices
from trainer.tcp_team import join_team
jax.distributed.initialize("127.0.0.1:%d", 1, 0, cluster_detection_method="deactivate")
open_devices(settings(), World(size=2, coordinator="127.0.0.1:1"), join_team(World(), DistConfig()))
"""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        script %= listener.getsockname()[1]
    here = Path(__file__).resolve().parent
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (here.parents[1], here)))}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
    assert "DeviceError: device=cpu: JAX sees 1 processes where the run has 2" in done.stderr
