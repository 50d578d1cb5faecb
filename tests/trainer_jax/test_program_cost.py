"""The cost of a compiled program: loops count as often as they run, which XLA's own analysis does not do.

data/scanned_layers_v5e.txt is what libtpu 0.0.43.2 made of five scanned layers for v5e on 2026-11-27:
`scripts/bench/tpu_cycles.py PROGRAM.txt`, which also printed 134,479,872 FLOPs by `cost_analysis()`: of one layer.
data/ring_of_sums_v5e.txt is one loop of the trainer's step of 300m, two layers, on v5e 2x2, by the same libtpu on the
same day: lines with cycles, constants, counters and results.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from jax_cases import settings

from trainer.accelerators.tpu_generations import GENERATIONS
from trainer.jax_engine.ahead_of_time import count_collectives
from trainer.jax_engine.grid import arrange_devices
from trainer.jax_engine.library import jax, jnp
from trainer.jax_engine.program_cost import count_cycles, count_product_flops
from trainer.jax_engine.step import build_step
from trainer.shape.architecture import count_flops_per_token
from trainer.shape.compiled_timing import sum_traffic
from trainer.shape.mesh import Mesh
from trainer.shape.timing import Traffic

ROOT = Path(__file__).resolve().parents[2]
RECORDED = (Path(__file__).parent / "data" / "scanned_layers_v5e.txt").read_text(encoding="utf-8")
RING = (Path(__file__).parent / "data" / "ring_of_sums_v5e.txt").read_text(encoding="utf-8")
LAYERS, ROWS, WIDTH = 5, 256, 512
COMPILER = Path(os.environ.get("ORCH_TPU_COMPILER") or ROOT / ".venv-libtpu" / "bin" / "python")
KERNEL = """
  %kernel = bf16[8]{0} custom-call(%x), custom_call_target="tpu_custom_call", frontend_attributes={kernel_metadata={
"xprof_metadata":"{}"
}}, metadata={op_name="attention"}
"""


def test_the_body_of_a_loop_counts_as_often_as_it_runs() -> None:
    found = count_cycles(RECORDED)
    assert found is not None and found == (49_790, 0)
    more = count_cycles(RECORDED.replace("constant(5)", "constant(50)"))
    once = count_cycles(RECORDED.replace("constant(5)", "constant(1)"))
    assert more is not None and once is not None
    assert more[0] - found[0] == 45 * (found[0] - once[0]) / 4 > 45 * 9000
    assert count_cycles(RECORDED.replace("constant(5)", "add(5)")) is None, "a loop without a constant bound"
    assert count_cycles("") is None


def test_a_ring_of_sums_runs_half_as_often_as_its_counter_says() -> None:
    found = count_cycles(RING)
    assert found is not None and found == (2 * (8_207 + 1_834 + 378_063) + 30_357 + 36_405, 0), (
        "its body has two turns, and adds 2"
    )
    longer = RING.replace("%constant.373 = u32[]{:T(128)} constant(2)", "%constant.373 = u32[]{:T(128)} constant(8)")
    assert longer != RING and count_cycles(longer) == (4 * found[0], 0)
    assert count_cycles(RING.replace("add(%get-tuple-element.1407, %constant.378)", "add(%a, %b)")) is None, "no step"


def test_kernels_are_counted_and_their_metadata_do_not_end_a_computation() -> None:
    end = RECORDED.index("\n}\n", RECORDED.index("%wide.region_0.3.sunk "))
    assert count_cycles(RECORDED[:end] + KERNEL.rstrip() + RECORDED[end:]) == (49_790, LAYERS)
    body = RECORDED.index("\n", RECORDED.index("%wide.region_0.3.sunk "))
    assert count_cycles(RECORDED[:body] + KERNEL.rstrip() + RECORDED[body:]) == (49_790, LAYERS)


def test_products_of_loops_count_as_often_as_they_run() -> None:
    def layer(x: Any, weight: Any) -> tuple[Any, None]:
        return jnp.tanh(x @ weight), None

    def layers(x: Any, weights: Any) -> Any:
        return jax.lax.scan(layer, x, weights)[0]

    shapes = (
        jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.bfloat16),
        jax.ShapeDtypeStruct((LAYERS, WIDTH, WIDTH), jnp.bfloat16),
    )
    traced = jax.jit(layers).trace(*shapes)
    one = 2 * ROWS * WIDTH * WIDTH
    assert count_product_flops(traced.jaxpr.jaxpr) == LAYERS * one
    assert traced.lower().compile().cost_analysis()["flops"] < 2 * one, "XLA counts the body of a loop once"


@pytest.mark.parametrize(
    ("mesh", "model"),
    [
        (Mesh(fsdp=4), ""),
        (Mesh(data=2, fsdp=2), ""),
        (Mesh(fsdp=2, tensor=2), ""),
        (Mesh(data=2, fsdp=2, context=2), ""),
        (Mesh(fsdp=4, context=4), ""),
        (Mesh(fsdp=4), "model.experts=4 model.expert_hidden=192"),
    ],
)
def test_products_and_traffic_of_a_traced_step_are_those_of_the_plan(mesh: Mesh, model: str) -> None:
    axes = f"mesh.data={mesh.data} mesh.fsdp={mesh.fsdp} mesh.tensor={mesh.tensor} mesh.context={mesh.context} {model}"
    shape = "model.dim=64 model.layers=12 model.heads=4 model.ffn=192 seq_len=64 batch=16 accumulate=2"
    config = settings(f"{shape} remat=none dtype=bf16 engine=jax {axes}")
    step = build_step(config, mesh, arrange_devices(jax.devices()[:4], mesh))
    program = step.function.trace(*step.arguments).jaxpr.jaxpr
    tokens = config.batch * config.seq_len
    causal = count_flops_per_token(config.model, config.seq_len)
    whole = 2 * causal - count_flops_per_token(config.model, 0)  # plain attention computes all scores
    assert causal * tokens < 4 * count_product_flops(program) < 1.05 * whole * tokens
    sizes = {"data": mesh.data, "fsdp": mesh.fsdp, "tensor": mesh.tensor}
    found = sum_traffic(((one.kind, one.axes, one.bytes) for one in count_collectives(program, sizes)), mesh)
    planned = Traffic.of(config, mesh)
    assert dataclasses.astuple(found) == pytest.approx(dataclasses.astuple(planned), rel=0.05)


@pytest.mark.slow
@pytest.mark.skipif(not COMPILER.exists(), reason="no TPU compiler: scripts/tpu-compiler")
def test_the_compiler_still_states_its_cycles(tmp_path: Path) -> None:
    """The real compiler, for each generation: the table of rates is what it prints."""
    script = ROOT / "scripts" / "bench" / "tpu_cycles.py"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "true"}
    for name in ("JAX_NUM_CPU_DEVICES", "XLA_FLAGS"):
        env.pop(name, None)
    made = tmp_path / "program.txt"
    done = subprocess.run([COMPILER, "-P", script, made], env=env, capture_output=True, text=True, check=True)
    rates = {line.split()[0]: float(line.split()[1]) for line in done.stdout.splitlines() if "cycles a second" in line}
    assert rates == pytest.approx({each.name: each.estimated_cycles for each in GENERATIONS}, rel=0.05)
    found, recorded = count_cycles(made.read_text()), count_cycles(RECORDED)
    assert found is not None and recorded is not None and found[0] == pytest.approx(recorded[0], rel=0.2)
