"""Notes of a plan about a program of one's own: the Python that it finds, and words that its launcher refuses. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from orchestrator.catalog.accelerators import is_gpu
from orchestrator.catalog.image_pythons import name_other_python
from orchestrator.slices import HostFacts
from orchestrator.task.model import Task

# Of torchrun (torch 2.13, torch/distributed/run.py, `--nproc-per-node`); it takes the names with `_`, too.
_NO_PROCESSES = re.compile(r"--nproc[-_]per[-_]node[= ]\s*[\"']?\$\{?SKYPILOT_NUM_GPUS_PER_NODE\b")
_REPLACED_PATH = re.compile(r"\bPYTHONPATH=(?!\S*\$\{?PYTHONPATH)")
# Of Ray 2.60, scripts/scripts.py: the command ends with status 1 where Ray was lost, and never where it was stopped.
_RAY_BLOCK = re.compile(r"\bray +start\b(?:[^\n;&|]|\\\n)*--block\b(?![^\n;&|]*&(?!&))")
# Words by which a launcher starts an own group on each host: torchrun (the same file, its options),
# and Accelerate 1.15 (commands/launch.py: `--cpu` takes the simple launcher, whatever the number of machines is).
_OPTIONS = r"\b(?:(?!\.py\b)[^\n;&|]|\\\n)*?\s"  # before the program, whose own options are its own business
_ALONE = re.compile(
    rf"(?:torchrun|torch\.distributed\.run){_OPTIONS}(--standalone(?![\w-])|--nnodes[= ]1(?::1)?(?![\w:]))"
    rf"|accelerate\s+launch{_OPTIONS}(--cpu(?![\w-]))"
)
_PYTHON = re.compile(r"\b(?:python[0-9.]*|pip[0-9]*|torchrun|accelerate|deepspeed)\b")
_BROUGHT = re.compile(r"\b(?:venv|virtualenv|uv|conda|mamba|poetry|pixi)\b|/opt/pytorch/")  # the task has chosen one


def list_program_notes(task: Task, facts: HostFacts, hosts: int) -> Iterator[str]:
    """Yield the notes about a program of one's own on a number of hosts."""
    if task.train is not None or not task.run:
        return
    machine = task.choices[0].machine
    gpus = machine.chips_per_host if is_gpu(machine.name) else 0  # as plan/environment.py counts them
    if not gpus and _NO_PROCESSES.search(task.run):
        yield (
            f"run: SKYPILOT_NUM_GPUS_PER_NODE is 0 on {machine.name}, which has no GPUs, and torchrun does not start 0 "
            "processes; write --nproc-per-node 1 there"
        )
    if task.checkpoint.bucket and _REPLACED_PATH.search(task.run):
        yield (
            "run: PYTHONPATH is replaced, by which `import orch_run` is found; write PYTHONPATH=...:$PYTHONPATH "
            "where the program uses it"
        )
    if hosts > 1 and _RAY_BLOCK.search(task.run):
        yield (
            "run: `ray start --block` does not end with the program on the head, so the job does not end, or fails; "
            "write `ray symmetric-run`: docs/own-programs.md#ray"
        )
    if hosts > 1 and (found := _ALONE.search(task.run)):
        word = found[1] or found[2]
        yield (
            f"run: `{word}` starts an own training on each of the {hosts} hosts, which do not meet; "
            "leave it out for one training on all of them"
        )
    scripts = f"{task.setup}\n{task.run}"
    if (
        facts.image_python
        and not task.choices[0].container
        and _PYTHON.search(scripts)
        and not _BROUGHT.search(scripts)
    ):
        yield f"Python on the hosts: {facts.image_python}. Another: {name_other_python(facts.image_python)}"
