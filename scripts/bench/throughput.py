"""Tokens/s of both engines against the plainest loops of the same model, each in a process of its own, in turn.

    python scripts/bench/throughput.py [model=10m batch=8 steps=40 threads=1 rounds=3]

`ours` is the whole program, `python -m trainer`, by its own metrics with data, clipping and a line every five steps.
The best window of each arm counts, and only ratios are worth comparing between machines. ORCH_HF_PYTHON names an
interpreter that has `transformers` and `accelerate`; without it that arm is left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from trainer.config import Config  # noqa: E402
from trainer.options import parse  # noqa: E402

WINDOW = 5
Arm = Callable[[Config], list[float]]


def ours(engine: str, *more: str, config: Config, words: tuple[str, ...]) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        metrics = Path(folder, "metrics.jsonl")
        command = [sys.executable, "-m", "trainer", *words, *more, f"engine={engine}", "device=cpu"]
        command += [f"log_every={WINDOW}", f"metrics.file={metrics}", "checkpoint.uri=", "resume=never"]
        _run(command, config)
        return [json.loads(line)["tokens_per_s"] for line in metrics.read_text().splitlines()]


def plain(script: str, *more: str, config: Config, python: str = sys.executable) -> list[float]:
    model = config.model
    shape = (model.dim, model.layers, model.heads, model.kv_heads, config.seq_len, config.batch, config.steps)
    return json.loads(_run([python, str(HERE / script), *map(str, shape), str(config.threads), *more], config))


def _run(command: list[str], config: Config) -> str:
    environ = {**os.environ, "PYTHONPATH": str(HERE.parents[1]), "OMP_NUM_THREADS": str(config.threads)}
    # The same cores for every arm: else a library that ignores the number of threads has an unfair share.
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[: config.threads]))
    done = subprocess.run(["taskset", "-c", cores, *command], env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout.strip().splitlines()[-1]


def main() -> None:
    given = dict(word.split("=", 1) for word in sys.argv[1:])
    rounds = int(given.pop("rounds", "3"))
    settings = {"model": "10m", "batch": "8", "steps": "40", "threads": "1", **given}
    words = tuple(f"{key}={value}" for key, value in settings.items())
    config = parse(words)
    torch_words, jax_words = partial(ours, "torch", words=words), partial(ours, "jax", words=words)
    arms: dict[str, dict[str, Callable[..., list[float]]]] = {
        "torch fp32": {"plain loop": partial(plain, "plain_torch.py"), "ours": torch_words},
        "torch bf16": {
            "plain loop": partial(plain, "plain_torch.py", "bf16"),
            "ours": partial(ours, "torch", "dtype=bf16", words=words),
        },
        "JAX fp32": {"plain loop": partial(plain, "plain_jax.py"), "ours": jax_words},
    }
    if hugging_face := os.environ.get("ORCH_HF_PYTHON"):
        arms["torch fp32"]["Hugging Face Trainer"] = partial(plain, "plain_hf.py", python=hugging_face)
    best: dict[tuple[str, str], float] = {}
    for _ in range(rounds):
        for family, members in arms.items():
            for name, arm in members.items():
                speed = max(arm(config=config)[1:])
                best[family, name] = max(speed, best.get((family, name), 0.0))
    print(f"{'engine':<12} {'loop':<22} {'tokens/s':>10} {'ratio to plain':>15}")
    for (family, name), speed in best.items():
        print(f"{family:<12} {name:<22} {speed:>10,.0f} {speed / best[family, 'plain loop']:>15.2f}")


if __name__ == "__main__":
    main()
