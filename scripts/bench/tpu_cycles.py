"""Print how many cycles a second libtpu's cost model counts for each TPU generation, and record a small program.

    .venv-libtpu/bin/python scripts/bench/tpu_cycles.py [PROGRAM.txt]

A product of 8,192 x 8,192 x 8,192 in bf16 is compiled for one device of each generation. What the compiler estimates
for it is taken as done at the published peak. The result is `estimated_cycles` in
trainer/accelerators/tpu_generations.py. With a file, the optimized text of 5 scanned layers is written there, for
tests/trainer_jax/test_program_cost.py. It needs JAX with libtpu (scripts/tpu-compiler) and no TPU, and runs nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from jax.sharding import SingleDeviceSharding

from trainer.accelerators.tpu_generations import GENERATIONS
from trainer.jax_engine.ahead_of_time import describe_devices
from trainer.jax_engine.library import jax, jnp
from trainer.jax_engine.program_cost import count_cycles, measure_program

SIZE = 8192
LAYERS, WIDTH, ROWS = 5, 512, 256
SLICES: dict[str, str] = dict.fromkeys(("v4", "v5p", "tpu7x"), "2x2x1")


def layer(x: Any, weight: Any) -> tuple[Any, None]:
    """Return the rows after one layer, as `scan` takes it."""
    return jnp.tanh(x @ weight), None


def layers(x: Any, weights: Any) -> Any:
    """Return the rows after all layers, one after the other in a loop."""
    return jax.lax.scan(layer, x, weights)[0]


def describe_layers(device: Any) -> tuple[Any, Any]:
    """Return the arguments of `layers` on one device."""
    place = SingleDeviceSharding(device)
    return (
        jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.bfloat16, sharding=place),
        jax.ShapeDtypeStruct((LAYERS, WIDTH, WIDTH), jnp.bfloat16, sharding=place),
    )


def main() -> None:
    for each in GENERATIONS:
        device = describe_devices(f"{each.name}:{SLICES.get(each.name, '2x2')}", 1)[0]
        matrix = jax.ShapeDtypeStruct((SIZE, SIZE), jnp.bfloat16, sharding=SingleDeviceSharding(device))
        compiled = jax.jit(jnp.matmul).trace(matrix, matrix).lower().compile()
        counted = count_cycles(compiled.as_text() or "")
        seconds = 2 * SIZE**3 / (each.peak_flops / each.devices)
        rate = "no estimate" if counted is None else f"{counted[0] / seconds:.4g} cycles a second"
        print(each.name, rate, flush=True)
    if len(sys.argv) > 1:
        traced = jax.jit(layers).trace(*describe_layers(describe_devices("v5e:2x2", 1)[0]))
        compiled = traced.lower().compile()
        text = compiled.as_text() or ""
        Path(sys.argv[1]).write_text(text[text.index("\n\n%") + 2 :])  # without the names of files and functions
        print(measure_program(traced, compiled))


if __name__ == "__main__":
    main()
