"""`orch plan --compile` with the real TPU compiler, and `--rehearse-world` with the real torch."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.orch_process import Orch

pytestmark = pytest.mark.xla

ROOT = Path(__file__).resolve().parents[2]
NAMED = os.environ.get("ORCH_TPU_COMPILER")
COMPILER = Path(NAMED or ROOT / ".venv-libtpu" / "bin" / "python")
WHOLE = COMPILER if NAMED else ROOT / ".venv-libtpu" / "complete"
TPU = """
resources:
  infra: gcp
  accelerators: v5litepod-4
train:
  args: {model: tiny, model.layers: "2", batch: 8, dtype: bf16}
"""
GPU = """
resources:
  infra: aws
  accelerators: p4d.24xlarge
num_nodes: 2
train:
  args: {model: tiny, model.layers: "2", model.heads: "2", batch: 32, mesh.tensor: "2"}
"""


def plan_json(folder: Path, text: str) -> str:
    path = folder / "task.yaml"
    path.write_text(text)
    return str(path)


@pytest.mark.promise("P39")
@pytest.mark.slow
@pytest.mark.skipif(not WHOLE.exists(), reason="no TPU compiler: scripts/tpu-compiler")
def test_the_step_is_compiled_once_and_one_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    orch = Orch(tmp_path, {"ORCH_TPU_COMPILER": str(COMPILER)})
    task = plan_json(tmp_path, TPU)
    first: dict[str, Any] = json.loads(orch.ok("plan", task, "--compile", "-o", "json"))
    found = first["advice"][0]["compiled"]
    assert found["fits"] and found["devices"] == 4 and 0 < found["arguments"] < found["used"] < found["capacity"]
    assert {"all-gather", "reduce-scatter"} <= {one["kind"] for one in found["collectives"]}
    cost, timing, tokens = found["cost"], found["timing"], 8 * 128
    assert cost["cycles"] > 0 and cost["analysed_flops"] > 0 < cost["analysed_bytes"]
    assert cost["product_flops"] == pytest.approx(cost["analysed_flops"], rel=0.15)  # two layers are no loop
    assert 0 < timing["low"] < timing["typical"] < timing["high"] < 0.1
    assert first["advice"][0]["speed"]["origin"] == "compiled" and found["identity"] == first["advice"][0]["step"]
    assert json.loads(orch.ok("plan", task, "-o", "json"))["advice"][0]["speed"] == first["advice"][0]["speed"]
    offered = ("model=tiny", "model.layers=2", "batch=8", "dtype=bf16", "--tokens", str(50 * tokens))
    where = ("--only", "v5litepod-4,on-demand", "-o", "json")
    (offer,) = json.loads(orch.ok("offers", *offered, "--seq", "128", *where))["offers"]
    assert offer["speed_origin"] == "compiled" and "compiled for v5e:2x2" in offer["speed_source"]
    (kept,) = (orch.state / "compiled").glob("*.json")
    kept.write_text(json.dumps({**json.loads(kept.read_text()), "fits": False, "error": "wanted: 99 GiB"}))
    place = ("train", "v5litepod-4", "--infra", "gcp", "--bucket", "gs://bbb", "--compile")
    words = ("model=tiny", "model.layers=2", "batch=8", "dtype=bf16")
    shown = orch(*place, "--dry-run", *words)
    assert shown.returncode == 2 and "Refused: [does-not-fit]" in shown.stdout and "wanted: 99 GiB" in shown.stdout
    assert "compiled before" in shown.stdout
    begun = orch(*place, "--yes", *words)
    assert begun.returncode == 2 and "does-not-fit" in begun.stderr and "compiled before" in begun.stderr
    assert "no clusters" in orch("status").stderr


@pytest.mark.slow
@pytest.mark.skipif(not WHOLE.exists(), reason="no TPU compiler: scripts/tpu-compiler")
def test_slices_of_one_machine_are_described_as_they_are() -> None:
    """libtpu takes machines of 2x2 chips for granted: single chips, and the eight of a v5e or v6e machine, are none."""
    script = (
        "from trainer.jax_engine.ahead_of_time import describe_devices\n"
        "for slice_ in 'v5e:1x1 v5e:2x2 v5e:2x4 v5e:4x4 v6e:1x1 v6e:2x4 v4:2x2x1 v5p:2x2x2 tpu7x:1x1x1'.split():\n"
        "    found = describe_devices(slice_, 1)\n"
        "    print(slice_, len(found), len({one.process_index for one in found}))\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([COMPILER, "-P", "-c", script], env=env, capture_output=True, text=True, check=True)
    found = {name: (int(devices), int(hosts)) for name, devices, hosts in map(str.split, done.stdout.splitlines())}
    one_machine = {
        "v5e:1x1": 1,
        "v5e:2x2": 4,
        "v5e:2x4": 8,
        "v6e:1x1": 1,
        "v6e:2x4": 8,
        "v4:2x2x1": 4,
        "tpu7x:1x1x1": 2,
    }
    assert found == {
        **{name: (devices, 1) for name, devices in one_machine.items()},
        "v5e:4x4": (16, 4),
        "v5p:2x2x2": (8, 2),
    }


@pytest.mark.promise("P39")
@pytest.mark.slow
def test_all_ranks_of_two_machines_are_built_in_one_process(tmp_path: Path) -> None:
    orch = Orch(tmp_path)
    plan: dict[str, Any] = json.loads(orch.ok("plan", plan_json(tmp_path, GPU), "--rehearse-world", "-o", "json"))
    found = plan["advice"][0]["rehearsed"]
    assert (
        found["hosts"] == 2
        and found["devices"] == 8
        and found["mesh"] == {"data": 2, "fsdp": 4, "tensor": 2, "context": 1, "pipeline": 1}
    )
    assert found["first"]["peak"] > found["first"]["weights"] > 0
    assert {one["kind"] for one in found["first"]["collectives"]} >= {"all_gather", "reduce_scatter", "all_reduce"}
    last = plan["advice"][0]["text"][-1]
    assert "the first and the last of 16 ranks agree" in last and ", fits on each device" in last
    staged = GPU.replace('mesh.tensor: "2"', 'mesh.pipeline: "2", accumulate: "2"')
    plan = json.loads(orch.ok("plan", plan_json(tmp_path, staged), "--rehearse-world", "-o", "json"))
    last = plan["advice"][0]["text"][-1]
    assert "the first and the last rank of a stage agree" in last and " send" in last
    large = orch("plan", plan_json(tmp_path, GPU.replace("batch: 32", "batch: 524288")), "--rehearse-world")
    assert large.returncode == 2 and "does NOT fit" in large.stdout and "Refused: [does-not-fit]" in large.stdout
