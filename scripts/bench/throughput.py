"""Tokens per second of both engines and of plain loops of the same model, each in its own process, in turn.

    python scripts/bench/throughput.py [model=10m batch=8 steps=40 threads=1 rounds=3 clock=wall only=bf16] [--quick]

`ours` is the complete program, `python -m trainer`, by its own metrics with data, clipping and a line every five
steps. The best window of each arm counts, except the first, which compiles; compare only ratios between machines. All
arms must have the same number of weights. ORCH_HF_PYTHON names an interpreter with `transformers` and `accelerate`;
without it those arms are skipped. clock=cpu counts CPU time, for a machine that runs other programs. `only` selects
families by a part of the name.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from context import print_context

from trainer.config import Config
from trainer.options import parse_config
from trainer.shape.architecture import count_parameters

WINDOW = 5
HUGGING_FACE = os.environ.get("ORCH_HF_PYTHON", "")


@dataclass(frozen=True)
class Arm:
    """One loop.

    Attributes:
        name: Shown in the table.
        script: Of the plain loop; empty for ours.
        words: Arguments after the shape.
        same: Whether it computes the same training; an arm that does not is shown, but not compared with.
    """

    name: str
    script: str
    words: tuple[str, ...] = ()
    same: bool = True


FAMILIES: Mapping[str, Sequence[Arm]] = {
    "torch fp32": (
        Arm("plain loop", "plain_torch.py"),
        Arm("Hugging Face Trainer", "plain_hf.py"),
        Arm("ours", "", ("engine=torch",)),
    ),
    "torch fp32, compiled": (
        Arm("plain loop", "plain_torch.py", ("compile",)),
        Arm("plain loop, whole step", "plain_torch.py", ("step",)),
        Arm("ours", "", ("engine=torch", "compile=true")),
    ),
    "torch bf16": (
        Arm("plain loop", "plain_torch.py", ("bf16",)),
        Arm("Hugging Face Trainer", "plain_hf.py", ("bf16",)),
        Arm("ours", "", ("engine=torch", "dtype=bf16")),
    ),
    "torch bf16, compiled": (
        Arm("plain loop", "plain_torch.py", ("bf16", "compile")),
        Arm("plain loop, whole step", "plain_torch.py", ("bf16", "step")),
        Arm("plain loop, bf16 weights", "plain_torch.py", ("narrow", "compile"), same=False),
        Arm("Hugging Face Trainer", "plain_hf.py", ("bf16", "compile")),
        Arm("ours", "", ("engine=torch", "dtype=bf16", "compile=true")),
    ),
    "JAX fp32": (Arm("plain loop", "plain_jax.py"), Arm("ours", "", ("engine=jax",))),
    "JAX bf16": (Arm("plain loop", "plain_jax.py", ("bf16",)), Arm("ours", "", ("engine=jax", "dtype=bf16"))),
}


def measured(arm: Arm, words: Sequence[str], clock: str) -> tuple[float, str]:
    """Return the tokens/s of the best window, and the versions."""
    config = parse_config([*words, *(arm.words if not arm.script else ())])
    if not arm.script:
        return _ours([*words, *arm.words], config, clock), ""
    model = config.model
    shape = (model.dim, model.layers, model.heads, model.kv_heads, config.seq_len, config.batch, config.steps)
    python = HUGGING_FACE if arm.script == "plain_hf.py" else sys.executable
    command = [python, str(HERE / arm.script), *map(str, shape), str(config.threads), *arm.words, clock]
    with TemporaryFile("w+") as out, _started(command, config, out) as running:
        _end(running, command)
        out.seek(0)
        report = json.loads(next(line for line in out if line.startswith('{"weights"')))
    if report["weights"] != count_parameters(model):
        raise SystemExit(f"{arm.script} has {report['weights']} weights, the trainer's model {count_parameters(model)}")
    return max(report["tokens_per_s"][1:]), report["versions"]


def _ours(words: Sequence[str], config: Config, clock: str) -> float:
    """Measure by the lines of the metrics, each of which ends a window."""
    with TemporaryDirectory() as folder, TemporaryFile("w+") as out:
        metrics = Path(folder, "metrics.jsonl")
        command = [sys.executable, "-m", "trainer", *words, "device=cpu", f"log_every={WINDOW}"]
        command += [f"metrics.file={metrics}", "checkpoint.uri=", "resume=never"]
        spent: dict[int, float] = {}
        with _started(command, config, out) as running:
            while running.poll() is None:
                time.sleep(0.01)
                lines = metrics.read_text().count("\n") if metrics.exists() else 0
                if lines not in spent:
                    spent[lines] = _processor_seconds(running.pid)
            _end(running, command)
        if clock == "wall":  # the first step also has a line
            return max(json.loads(line)["tokens_per_s"] for line in metrics.read_text().splitlines()[2:])
    windows = [spent[at] - spent[at - 1] for at in spent if at > 2 and at - 1 in spent and spent[at] > spent[at - 1]]
    return WINDOW * config.batch * config.seq_len / min(windows)


def _processor_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has just ended
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _started(command: Sequence[str], config: Config, out: IO[str]) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": str(HERE.parents[1]), "OMP_NUM_THREADS": str(config.threads)}
    # The same cores for every arm: otherwise a library that ignores the number of threads has an advantage.
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[: config.threads]))
    return subprocess.Popen(["taskset", "-c", cores, *command], env=environ, stdout=out, stderr=out, text=True)


def _end(running: subprocess.Popen[str], command: Sequence[str]) -> None:
    if running.wait():
        raise SystemExit(f"{' '.join(command)} ended with {running.returncode}")


def main() -> int:
    quick = "--quick" in sys.argv
    given = dict(word.split("=", 1) for word in sys.argv[1:] if word != "--quick")
    if quick:
        given = {"model": "tiny", "batch": "2", "steps": "15", "rounds": "1", **given}
    print_context(quick=quick)
    rounds, only = int(given.pop("rounds", "3")), given.pop("only", "")
    clock = given.pop("clock", "wall")
    settings = {"model": "10m", "batch": "8", "steps": "40", "threads": "1", **given}
    words = [f"{key}={value}" for key, value in settings.items()]
    families = {
        family: [arm for arm in arms if HUGGING_FACE or arm.script != "plain_hf.py"]
        for family, arms in FAMILIES.items()
        if only in family and (not quick or family == "torch fp32")
    }
    best: dict[tuple[str, str], float] = {}
    versions: set[str] = set()
    for _ in range(rounds):
        for family, arms in families.items():
            for arm in arms:
                speed, version = measured(arm, words, clock)
                versions |= {version} - {""}
                print(f"{family}, {arm.name}: {speed:,.0f}", file=sys.stderr, flush=True)
                best[family, arm.name] = max(speed, best.get((family, arm.name), 0.0))
    print(
        f"{'; '.join(sorted(versions))}\n\n| arithmetic | loop | tokens/s | ours, of this |\n| --- | --- | --- | --- |"
    )
    missed = False
    for family, arms in families.items():
        ours = best[family, "ours"]
        for arm in arms:
            speed = best[family, arm.name]
            print(f"| {family} | {arm.name} | {speed:,.0f} | {f'{ours / speed:.2f}' if arm.script else '-'} |")
        fastest = max(best[family, arm.name] for arm in arms if arm.script and arm.same)
        missed |= ours < fastest
        verdict = "ok  " if ours >= fastest else "MISS"
        print(f"{verdict} {family}: {ours / fastest:.2f} of the fastest loop with the same training")
    return int(missed and not quick)


if __name__ == "__main__":
    sys.exit(main())
