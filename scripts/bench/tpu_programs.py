"""Compare the trainer's step, as the TPU compiler makes it, with an independent step that XLA's partitioner shards.

    .venv-libtpu/bin/python scripts/bench/tpu_programs.py [v5e:2x4 ...]

All are the same model: scanned layers, full recomputation, products in bf16, a residual stream, weights and AdamW in
fp32, all weights sharded over all chips. `trainer` and `independent` sum gradients in fp32, and have the compiler
options of the generation. `usual` is what JAX makes of the same formulas without either: it sums gradients in bf16. It
needs JAX with libtpu (scripts/tpu-compiler) and no TPU, and runs nothing: it compiles. It prints one JSON object per
topology and step: bytes of temporaries, and the number of collectives of each kind in the optimized program, counted by
whether they are asynchronous, and by type.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from trainer.accelerators.tpu_compiler_options import choose_compiler_options
from trainer.jax_engine.ahead_of_time import describe_devices
from trainer.jax_engine.device_names import get_device_name
from trainer.jax_engine.grid import arrange_devices
from trainer.jax_engine.step import build_step
from trainer.options import parse_config
from trainer.shape import mesh as meshes

DIM, LAYERS, HEADS, HIDDEN, VOCAB, LENGTH, ROWS = 1024, 8, 16, 2816, 8192, 512, 32
SETTINGS = (
    f"model.dim={DIM} model.layers={LAYERS} model.heads={HEADS} model.kv_heads={HEADS} model.ffn={HIDDEN} "
    f"model.vocab={VOCAB} seq_len={LENGTH} batch={ROWS} remat=full dtype=bf16 engine=jax"
)
_SHAPES = {
    **dict.fromkeys(("query", "key", "value", "out"), (DIM, DIM)),
    **dict.fromkeys(("gate", "up"), (HIDDEN, DIM)),
    "down": (DIM, HIDDEN),
    **dict.fromkeys(("norm1", "norm2"), (DIM,)),
}
_COLLECTIVE = re.compile(
    r"= \(?(?P<dtype>\w+)\[[^=]*? (?P<kind>all-gather|all-reduce|reduce-scatter|collective-permute)(?P<start>-start)?\("
)
_BODY = re.compile(r"^(?:ENTRY )?%?(?P<name>[\w.\-]+) \(.*\{\s*$")
_FUSIONS = ("fused_computation", "async_collective_fusion")


def _norm(x: Any, weight: Any) -> Any:
    x = x.astype(jnp.float32)
    return (x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * weight).astype(jnp.bfloat16)


def _rotate(x: Any, angles: Any) -> Any:
    cosine, sine = angles[:, :, None, :]
    a, b = jnp.split(x.astype(jnp.float32), 2, -1)
    return jnp.concatenate((a * cosine - b * sine, b * cosine + a * sine), -1).astype(x.dtype)


def _product(y: Any, weight: Any) -> Any:
    return jnp.einsum("bsi,oi->bso", y, weight.astype(jnp.bfloat16))


def _product_backward(kept: Any, slope: Any) -> Any:
    y, weight = kept
    by_weight = jnp.einsum("bso,bsi->oi", slope, y, preferred_element_type=jnp.float32)
    return jnp.einsum("bso,oi->bsi", slope, weight.astype(jnp.bfloat16)), by_weight


_product_summed_in_fp32 = jax.custom_vjp(_product)
_product_summed_in_fp32.defvjp(lambda y, weight: (_product(y, weight), (y, weight)), _product_backward)


def _block(x: Any, own: Any, angles: Any, multiply: Any) -> Any:
    def product(y: Any, name: str) -> Any:
        return multiply(y, own[name])

    y = _norm(x, own["norm1"])
    query, key, value = (product(y, name).reshape(*y.shape[:2], HEADS, -1) for name in ("query", "key", "value"))
    scores = jnp.einsum(
        "bqhd,bkhd->bhqk", _rotate(query, angles), _rotate(key, angles), preferred_element_type=jnp.float32
    )
    seen = np.tril(np.ones((LENGTH, LENGTH), bool))
    shares = jax.nn.softmax(jnp.where(seen, scores * (DIM // HEADS) ** -0.5, -jnp.inf), -1).astype(jnp.bfloat16)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", shares, value).reshape(y.shape)
    x = x + product(mixed, "out")
    y = _norm(x, own["norm2"])
    return x + product(jax.nn.silu(product(y, "gate")) * product(y, "up"), "down")


def _loss(weights: Any, rows: Any, angles: Any, place: Any, multiply: Any) -> Any:
    x = weights["embedding"].astype(jnp.bfloat16)[rows[:, :-1]].astype(jnp.float32)
    x = jax.lax.with_sharding_constraint(x, place)
    block = jax.checkpoint(lambda x, own: (_block(x, own, angles, multiply), None), prevent_cse=False)
    x = _norm(jax.lax.scan(block, x, weights["blocks"])[0], weights["norm"])
    logits = jnp.einsum("bsi,vi->bsv", x, weights["embedding"].astype(jnp.bfloat16), preferred_element_type=jnp.float32)
    picked = jnp.take_along_axis(logits, rows[:, 1:, None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, -1) - picked).mean()


def usual_step(devices: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the independent step with gradients summed in bf16, and the compiler's own options."""
    return _partition(devices, _product, {})


def independent_step(devices: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the independent step with the sums and the compiler options of the trainer's."""
    return _partition(devices, _product_summed_in_fp32, choose_compiler_options(get_device_name(devices[0])))


def _partition(devices: Any, multiply: Any, options: dict[str, str]) -> tuple[Any, tuple[Any, ...]]:
    """Return a jitted step whose collectives XLA's partitioner chooses, and the description of its arguments."""
    grid = Mesh(np.array(devices), ("chips",))

    def array(shape: tuple[int, ...], dtype: Any, *axes: str | None) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(grid, PartitionSpec(*axes)))

    def matrix(name: str) -> Any:
        shape = (LAYERS, *_SHAPES[name])
        axes = (None, "chips", None) if name in {"out", "down"} else (None, None, "chips")
        return array(shape, jnp.float32, *axes[: len(shape)] if len(shape) == 3 else (None, "chips"))

    weights = {
        "embedding": array((VOCAB, DIM), jnp.float32, None, "chips"),
        "norm": array((DIM,), jnp.float32, "chips"),
        "blocks": {name: matrix(name) for name in _SHAPES},
    }
    rows_place = NamedSharding(grid, PartitionSpec("chips", None, None))
    places = jax.tree.map(lambda leaf: leaf.sharding, weights)

    def step(weights: Any, means: Any, squares: Any, rows: Any, angles: Any, rate: Any) -> Any:
        loss, slopes = jax.value_and_grad(_loss)(weights, rows, angles, rows_place, multiply)
        slopes = jax.lax.with_sharding_constraint(slopes, places)
        size = jnp.sqrt(sum(jnp.square(slope).sum() for slope in jax.tree.leaves(slopes)))
        slopes = jax.tree.map(lambda slope: slope * jnp.minimum(1.0, 1.0 / (size + 1e-6)), slopes)
        means = jax.tree.map(lambda old, slope: old + 0.1 * (slope - old), means, slopes)
        squares = jax.tree.map(lambda old, slope: 0.95 * old + 0.05 * slope * slope, squares, slopes)
        weights = jax.tree.map(
            lambda old, mean, square: old * (1 - 0.1 * rate) - rate * mean / (jnp.sqrt(square) + 1e-8),
            weights,
            means,
            squares,
        )
        return weights, means, squares, loss, size

    rows = array((ROWS, LENGTH + 1), jnp.int32, "chips", None)
    angles = array((2, LENGTH, DIM // HEADS // 2), jnp.float32)
    out = (places, places, places, None, None)
    arguments = (weights, weights, weights, rows, angles, array((), jnp.float32))
    return jax.jit(step, donate_argnums=(0, 1, 2), out_shardings=out, compiler_options=options or None), arguments


def trainer_step(devices: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the trainer's own step of the same model."""
    mesh = meshes.Mesh(1, len(devices), 1)
    step = build_step(parse_config(SETTINGS.split()), mesh, arrange_devices(devices, mesh))
    return step.function, step.arguments


def count_collectives(program: str) -> dict[str, int]:
    """Count the collectives of an optimized program; one in a loop's body counts once.

    What a fusion gathers while it multiplies (`AsyncCollectiveStart`) is counted as such, and not by its parts.
    """
    found: Counter[str] = Counter()
    body = ""
    for line in program.splitlines():
        body = entered["name"] if (entered := _BODY.match(line)) else body
        if 'custom_call_target="AsyncCollectiveStart"' in line:
            found["async fusion"] += 1
        elif (hit := _COLLECTIVE.search(line)) and (hit["start"] or not body.startswith(_FUSIONS)):
            found[f"{hit['kind']} {'async' if hit['start'] else 'sync'} {hit['dtype']}"] += 1
    return dict(sorted(found.items()))


def measure(step: tuple[Any, tuple[Any, ...]], keep: str) -> dict[str, Any]:
    """Compile a step, and describe its program."""
    started = time.monotonic()
    compiled = step[0].lower(*step[1]).compile()
    text = compiled.as_text()
    if folder := os.environ.get("KEEP_PROGRAMS"):
        Path(folder, f"{keep}.txt").write_text(text)
    return {
        "temporaries": compiled.memory_analysis().temp_size_in_bytes,
        "collectives": count_collectives(text),
        "seconds": round(time.monotonic() - started, 1),
    }


def main() -> None:
    steps = {"trainer": trainer_step, "independent": independent_step, "usual": usual_step}
    chosen = os.environ.get("STEPS", " ".join(steps)).split()
    for topology in sys.argv[1:] or ["v5e:2x4"]:
        devices = describe_devices(topology, 1)
        for name in chosen:
            found = measure(steps[name](devices), f"{name}-{topology}")
            print(json.dumps({"topology": topology, "step": name, **found}), flush=True)


if __name__ == "__main__":
    main()
