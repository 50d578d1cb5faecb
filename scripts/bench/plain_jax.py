"""A minimal jitted JAX step of the trainer's model, without mesh or sharding, for comparison by throughput.py.

    python scripts/bench/plain_jax.py DIM LAYERS HEADS KV_HEADS SEQ BATCH STEPS THREADS [bf16] [cpu]

bf16 applies to the factors of matrix products and to the layers' results; the residual stream, norms, scores, softmax
and loss stay float32. cpu measures CPU time. It prints the number of weights, tokens/s of each window of five steps
and the versions, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np

VOCAB = 256
WINDOW = 5
THREADS = int(sys.argv[8])
NARROW = "bf16" in sys.argv
if THREADS == 1:
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])

import jax
import jax.numpy as jnp

TYPE = jnp.bfloat16 if NARROW else jnp.float32


def normed(x: Any, weight: Any) -> Any:
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * weight


def rotated(x: Any, cos: Any, sin: Any) -> Any:
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate((a * cos - b * sin, b * cos + a * sin), -1)


def product(x: Any, weight: Any, out: Any = TYPE) -> Any:
    return jnp.matmul(x.astype(TYPE), weight.astype(TYPE), preferred_element_type=out)


def loss_of(weights: Any, rows: Any, heads: int, kv_heads: int, cos: Any, sin: Any) -> Any:
    x = weights["embedding"][rows[:, :-1]]
    batch, length, dim = x.shape
    mask = jnp.tril(jnp.ones((length, length), bool))
    for block in weights["blocks"]:
        y = normed(x, block["norm1"])
        q, k, v = (product(y, block[name]).reshape(batch, length, -1, dim // heads).swapaxes(1, 2) for name in "qkv")
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        k, v = (jnp.repeat(t, heads // kv_heads, axis=1) for t in (k, v))
        scores = product(q, k.swapaxes(2, 3), jnp.float32) / (dim // heads) ** 0.5
        mixed = product(jax.nn.softmax(jnp.where(mask, scores, -1e30), -1), v)
        x = x + product(mixed.swapaxes(1, 2).reshape(batch, length, dim), block["out"])
        y = normed(x, block["norm2"])
        x = x + product(jax.nn.silu(product(y, block["gate"])) * product(y, block["up"]), block["down"])
    logits = jax.nn.log_softmax(product(normed(x, weights["norm"]), weights["embedding"].T, jnp.float32))
    return -jnp.take_along_axis(logits, rows[:, 1:, None], -1).mean()


def main() -> None:
    dim, layers, heads, kv_heads, seq, batch, steps = map(int, sys.argv[1:8])
    hidden, head = -(-dim * 8 // 3 // 8) * 8, dim // heads
    draw = np.random.default_rng(0)

    def matrix(*shape: int) -> Any:
        return jnp.asarray(draw.normal(0, 0.02, shape), jnp.float32)

    weights = {
        "embedding": matrix(VOCAB, dim),
        "norm": jnp.ones(dim),
        "blocks": [
            {
                "norm1": jnp.ones(dim),
                "norm2": jnp.ones(dim),
                "q": matrix(dim, dim),
                "k": matrix(dim, kv_heads * head),
                "v": matrix(dim, kv_heads * head),
                "out": matrix(dim, dim),
                "gate": matrix(dim, hidden),
                "up": matrix(dim, hidden),
                "down": matrix(hidden, dim),
            }
            for _ in range(layers)
        ],
    }
    angles = np.outer(np.arange(seq), 10_000.0 ** -(np.arange(0, head, 2) / head))
    cos, sin = jnp.asarray(np.cos(angles), jnp.float32), jnp.asarray(np.sin(angles), jnp.float32)
    zeros = jax.tree.map(jnp.zeros_like, weights)

    def step(state: Any, rows: Any, count: Any) -> Any:
        weights, first, second = state
        loss, grads = jax.value_and_grad(loss_of)(weights, rows, heads, kv_heads, cos, sin)
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
        grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, 1.0 / (norm + 1e-6)), grads)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
        second = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, second, grads)

        def moved(w: Any, m: Any, v: Any) -> Any:
            return w * (1 - 1e-4) - 1e-3 * (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.95**count)) + 1e-8)

        return (jax.tree.map(moved, weights, first, second), first, second), loss

    jitted = jax.jit(step, donate_argnums=0)
    state: Any = (weights, zeros, jax.tree.map(jnp.zeros_like, weights))
    rows = draw.integers(0, VOCAB, (steps, batch, seq + 1), dtype=np.int32)
    clock = time.process_time if "cpu" in sys.argv else time.perf_counter
    speeds: list[float] = []
    began = clock()
    for at in range(steps):
        state, loss = jitted(state, rows[at], at + 1.0)
        if (at + 1) % WINDOW == 0:
            loss.block_until_ready()
            now = clock()
            speeds.append(WINDOW * batch * seq / (now - began))
            began = now
    count = sum(leaf.size for leaf in jax.tree.leaves(state[0]))
    print(json.dumps({"weights": count, "tokens_per_s": speeds, "versions": f"JAX {jax.__version__}"}))


if __name__ == "__main__":
    main()
