"""Tokens per second and MFU of both engines on GPUs, beside torchtitan and Hugging Face on one.

    python scripts/bench/gpu.py [model=1b vocab=32768 rows=8,16,32 steps=20 limit=300 "arms=ours; torchtitan"] [--quick]

It first measures the best rate of bf16 products of several sizes on one device. Then it runs the complete program,
`python -m trainer`, on all devices (torchrun for several), each arm in its own processes and for at most `limit`
seconds; an arm that fails prints the reason, and the others continue. `rows` is the number per micro-batch and
device: the first value is used by all arms, the others only by the arm that should be fastest, the last also by the
arm that needs least memory. The best window of five steps counts. No network is needed: the data are Python's own
sources. torchtitan (0.2) and Hugging Face's Trainer run on one GPU, where they are installed, and must have the same
number of weights: torchtitan's head is never the embedding, so say tied=false. `MFU` is of the published peak, `of
product` of the best product; `data`, `comp` and `other` are shares of a step's time, of which the second is the
engine's. `device=cpu model=tiny` tests this program without a GPU; `--quick` without a GPU says so and ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from context import print_context

from trainer.accelerators.peaks import PEAKS
from trainer.options import parse_config
from trainer.shape.architecture import count_flops_per_token, count_parameters

WINDOW = 5
OPTIONS = {
    "device": "cuda",
    "model": "1b",
    "vocab": "",
    "tied": "",
    "remat": "",
    "rows": "",
    "steps": "20",
    "limit": "300",
    "arms": "",
}
ARMS = {
    "ours": ("engine=torch",),
    "ours, exact": ("engine=torch", "exact=true"),
    "ours, uncompiled": ("engine=torch", "compile=false"),
    "ours, TF32": ("engine=torch", "dtype=fp32"),
    "ours, remat": ("engine=torch", "remat=true"),
    "ours, documents": ("engine=torch", "data.document_mask=true"),
    "ours, Muon": ("engine=torch", "optim.kind=muon"),
    "ours, LoRA": ("engine=torch", "lora.rank=16"),
    "ours, float8": ("engine=torch", "float8=tensorwise"),
    "ours, float8 by row": ("engine=torch", "float8=rowwise"),
    "ours, jax": ("engine=jax",),
    "ours, jax, remat": ("engine=jax", "remat=true"),
}
OTHERS = {
    "torchtitan": ("plain_titan.py", "compile"),
    "torchtitan, selective": ("plain_titan.py", "compile", "selective"),
    "torchtitan, float8": ("plain_titan.py", "compile", "float8"),
    "torchtitan, full": ("plain_titan.py", "compile", "full"),
    "Hugging Face": ("plain_hf.py", "bf16"),
    "Hugging Face, compiled": ("plain_hf.py", "bf16", "compile"),
}
NEEDS = {"plain_titan.py": "torchtitan", "plain_hf.py": "transformers"}
FASTEST, SMALLEST = "ours", "ours, remat"
ON_CPU = ("ours", "ours, uncompiled", "ours, jax")  # a C++ compiler is slow

# Runs in its own process, which releases the device's memory when it ends.
PROBE = """
import json, sys, time
import torch
kind = sys.argv[1]
device = torch.device(kind)
if kind == "cuda" and not torch.cuda.is_available():
    raise SystemExit(f"torch {torch.__version__} finds no GPU")
wait = torch.cuda.synchronize if kind == "cuda" else lambda: None
rates = {}
for m, k, n in [tuple(map(int, word.split("x"))) for word in sys.argv[2:]]:
    a, b = (torch.randn(shape, device=device).to(torch.bfloat16) for shape in ((m, k), (k, n)))
    best, end = 0.0, time.perf_counter() + (1.0 if kind == "cuda" else 0.3)
    while time.perf_counter() < end:
        wait()
        begun = time.perf_counter()
        for _ in range(10):
            a @ b
        wait()
        best = max(best, 10 * 2 * m * k * n / (time.perf_counter() - begun))
    rates[f"{m} x {k} x {n}"] = best
name = torch.cuda.get_device_name() if kind == "cuda" else "CPU"
count = torch.cuda.device_count() if kind == "cuda" else 1
print(json.dumps({"name": name, "count": count, "torch": torch.__version__, "rates": rates}))
"""


class Failed(Exception):
    pass


@dataclass(frozen=True)
class Machine:
    """The devices of the machine; `rate` is the FLOP/s of one in its best product."""

    device: str
    name: str
    count: int
    rate: float


@dataclass(frozen=True)
class Arm:
    name: str
    rows: int

    @property
    def label(self) -> str:
        return f"{self.name} ({self.rows} rows)"

    def words(self, options: dict[str, str], count: int) -> list[str]:
        cpu = options["device"] == "cpu"
        vocab = options["vocab"] or ("256" if cpu else "32768")
        words = [f"device={options['device']}", f"model={options['model']}", f"model.vocab={vocab}"]
        words += [f"model.tied={options['tied']}"] if options["tied"] else []
        words += [f"remat={options['remat']}"] if options["remat"] else []
        words += [*ARMS.get(self.name, ()), *(["threads=1"] if cpu else [])]
        return [*words, f"batch={self.rows * count}", f"steps={options['steps']}"]


def measure(options: dict[str, str]) -> Machine:
    config = parse_config([f"model={options['model']}"])
    cpu = options["device"] == "cpu"
    sizes = ["256x256x256", "512x512x512"] if cpu else ["4096x4096x4096", "8192x8192x8192", "16384x8192x8192"]
    tokens = 512 if cpu else 16384
    sizes += [f"{tokens}x{config.model.dim}x{config.model.hidden}"]
    found = json.loads(run([sys.executable, "-c", PROBE, options["device"], *sizes], float(options["limit"])))
    print(f"{found['count']} x {found['name']}, torch {found['torch']}; bf16 products of one device, TFLOP/s:")
    for size, rate in found["rates"].items():
        print(f"  {size:<22} {rate / 1e12:>8.1f}")
    return Machine(options["device"], found["name"], found["count"], max(found["rates"].values()))


def train(arm: Arm, options: dict[str, str], machine: Machine) -> list[dict[str, Any]]:
    """Train, and return the lines of metrics after those that compile.

    Raises:
        Failed: The run failed or was too short.
    """
    if arm.name in OTHERS:
        return train_other(arm, options, machine)
    launcher = [sys.executable, "-m", "trainer"]
    if machine.count > 1 and "engine=jax" not in ARMS[arm.name]:  # JAX takes all devices of a host in one process
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        launcher += ["--nproc-per-node", str(machine.count), "-m", "trainer"]
    with tempfile.TemporaryDirectory() as folder:
        metrics = Path(folder, "metrics.jsonl")
        words = [
            *arm.words(options, machine.count),
            f"log_every={WINDOW}",
            f"metrics.file={metrics}",
            "checkpoint.uri=",
        ]
        run([*launcher, *words], float(options["limit"]))
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    if len(lines) < 3:
        raise Failed(f"only {len(lines)} lines of metrics: use more steps")
    return lines[2:]


def train_other(arm: Arm, options: dict[str, str], machine: Machine) -> list[dict[str, Any]]:
    """Train the same model by another program, and return lines like ours.

    Raises:
        Failed: As for `train`, or the models differ.
    """
    if machine.count > 1:
        raise Failed("runs on one device only")
    config = parse_config(arm.words(options, 1))
    model = config.model
    script, *more = OTHERS[arm.name]
    shape = (model.dim, model.layers, model.heads, model.kv_heads, config.seq_len, config.batch, config.steps)
    words = [*more, f"vocab={model.tokens}", f"ffn={model.hidden}", *(() if model.tied else ("untied",))]
    command = [sys.executable, str(Path(__file__).with_name(script)), *map(str, shape), str(os.cpu_count())]
    command += [*words, *(["remat"] if config.remat == "full" else []), options["device"]]
    found = run(command, float(options["limit"]))
    report = json.loads(next(line for line in found.splitlines() if line.startswith('{"weights"')))
    if report["weights"] != count_parameters(model):
        raise Failed(f"has {report['weights']:,} weights, the trainer's model {count_parameters(model):,}")
    peak = PEAKS.get(machine.name)
    step = config.batch * config.seq_len
    flops = count_flops_per_token(model, config.seq_len)
    print(f"  {report['versions']}", file=sys.stderr)
    return [
        {"tokens_per_s": speed, "mfu": flops * speed / peak.flops if peak else None, "step_s": step / speed}
        | {"memory": report["memory"], "data_s": 0.0, "compute_s": step / speed, "other_s": 0.0}
        for speed in report["tokens_per_s"][1:]
    ]


def run(command: Sequence[str], limit: float) -> str:
    """Run a command, and return its output.

    Raises:
        Failed: It failed or exceeded the limit, in seconds.
    """
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
    for name in ("ORCH_CHECKPOINT_URI", "ORCH_RESUME_FROM", "RANK", "WORLD_SIZE"):
        environ.pop(name, None)
    process = subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        output, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its own session: with all ranks
        process.communicate()
        raise Failed(f"not finished after {limit:g} s") from None
    if process.returncode:
        lines = [line for line in (errors or output).splitlines() if line.strip()] or ["no output"]
        why = next((line for line in lines if line.startswith("error[")), lines[-1])
        raise Failed(f"ended with {process.returncode}: {why[:300]}")
    return output


def row(arm: Arm, lines: Sequence[dict[str, Any]], options: dict[str, str], machine: Machine) -> str:
    best = max(lines, key=lambda line: line["tokens_per_s"])
    config = parse_config(arm.words(options, machine.count))
    flops = count_flops_per_token(config.model, config.seq_len) * best["tokens_per_s"] / machine.count
    published = "-" if best["mfu"] is None else f"{best['mfu']:.1%}"
    memory = "-" if best["memory"] is None else f"{best['memory'] / 2**30:.1f}"
    split = [best["data_s"], best["compute_s"] or 0.0, best["other_s"]]
    shares = " ".join(f"{part / best['step_s']:>4.0%}" for part in split)
    return (
        f"{arm.label:<34} {best['tokens_per_s']:>11,.0f} {published:>9} {flops / machine.rate:>10.1%} "
        f"{memory:>11} {best['step_s'] * 1e3:>9.1f}  {shares}"
    )


def arms_of(options: dict[str, str]) -> list[Arm]:
    cpu = options["device"] == "cpu"
    every = [*ARMS, *(name for name, (script, *_) in OTHERS.items() if find_spec(NEEDS[script]))]
    names = [word.strip() for word in options["arms"].split(";") if word.strip()] or (ON_CPU if cpu else every)
    unknown = [name for name in names if name not in {**ARMS, **OTHERS}]
    if unknown:
        raise SystemExit(f"arms={';'.join(unknown)}: none of {'; '.join((*ARMS, *OTHERS))}")
    first, *more = [int(word) for word in (options["rows"] or ("2" if cpu else "8,16,32")).split(",")]
    larger = [Arm(FASTEST, count) for count in more] + [Arm(SMALLEST, count) for count in more[-1:]]
    return [Arm(name, first) for name in names] + larger


def main() -> None:
    quick = "--quick" in sys.argv
    options = dict(OPTIONS) | ({"model": "tiny", "rows": "2", "steps": "15", "arms": "ours"} if quick else {})
    for word in sys.argv[1:]:
        if word == "--quick":
            continue
        key, _, value = word.partition("=")
        if key not in options:
            raise SystemExit(f"{word}: not one of {', '.join(f'{name}=' for name in options)}")
        options[key] = value
    arms = arms_of(options)
    print_context(quick=quick)
    try:
        machine = measure(options)
    except Failed as error:
        if quick and "finds no GPU" in str(error):
            print(f"skipped: {error}")
            return
        raise SystemExit(str(error)) from None
    config = parse_config(arms[0].words(options, machine.count))
    print(f"model={options['model']}, {count_parameters(config.model):,} parameters, rows of {config.seq_len} tokens")
    print(
        f"{'arm':<34} {'tokens/s':>11} {'MFU':>9} {'of product':>10} {'memory GiB':>11} {'step ms':>9}  data comp other"
    )
    failures = 0
    for arm in arms:
        try:
            print(row(arm, train(arm, options, machine), options, machine), flush=True)
        except Failed as error:
            failures += 1
            print(f"{arm.label:<34} {error}", flush=True)
    if failures == len(arms):
        raise SystemExit("no arm finished")


if __name__ == "__main__":
    main()
