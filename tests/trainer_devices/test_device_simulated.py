"""The tpu and neuron traits on a simulated device that torch does not know: equal losses, only known operations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import simulated_process

REPOSITORY = Path(__file__).resolve().parents[2]
WORDS = ["model.dim=32", "model.layers=1", "model.heads=4", "model.kv_heads=2", "model.vocab=64", "seq_len=16"]
WORDS += ["batch=8", "threads=1", "engine=torch", "accumulate=2", "optim.ema=0.9"]

# What the trainer asks of a device, by aten's names. A new one is a new demand on every backend: look whether torch_tpu
# and TorchNeuron have it before you add it here.
ALLOWED = """
_copy_from _local_scalar_dense _log_softmax _log_softmax_backward_data _softmax _softmax_backward_data add addcmul all
as_strided bmm cat clamp div embedding_dense_backward empty empty_strided fill_ index_select isneginf lerp
linalg_vector_norm mean mm mul neg nll_loss_backward nll_loss_forward pow reciprocal rsqrt sigmoid silu sqrt sub sum
tril view where zero_
"""


def train(name: str, *more: str) -> dict[str, Any]:
    script = Path(__file__).with_name("simulated_process.py")
    env = {**os.environ, "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'tests'}"}
    done = subprocess.run(
        [sys.executable, script, name, *WORDS, *more], env=env, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def on_processor() -> dict[str, Any]:
    """In this process; a simulated device needs its own, since torch takes a name for one only once."""
    return simulated_process.main("cpu", WORDS)


@pytest.mark.promise("P31")
@pytest.mark.parametrize("name", ["tpu", "neuron"])
def test_a_native_device_trains_as_the_processor_does(on_processor: dict[str, Any], name: str) -> None:
    found = train(name)
    assert found["losses"] == pytest.approx(on_processor["losses"], abs=1e-5)
    assert f"{name}:0" in found["headline"]
    assert found["device"] == name
    assert found["synchronized"] >= 1
    # Said, since the processor's fast kernels are not there.
    assert f"AdamW on {name} is the plain one, not a fused kernel" in found["notes"]
    # TorchNeuron's attention without the matrix of scores wants sequences of 512, 1024, ...
    assert (f"attention on {name} goes through" in " ".join(found["notes"])) is (name == "neuron")
    assert set(found["ops"]) <= set(ALLOWED.split())
    # The rows come; nothing else makes the processor wait, so that it stays ahead of the device.
    assert found["waits"] == {"from the processor": 1}
    # That all of it really was on the device: nothing of the processor's may be mixed in unseen.
    assert {"mm", "bmm", "embedding_dense_backward", "lerp"} <= set(found["ops"])
    assert "same device" in found["mixed"]
