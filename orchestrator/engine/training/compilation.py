"""`--compile`: the training step compiled on this computer, by the real compiler, for the task's slice.

The answer is cached by a digest of all that decides it: settings, slice, the trainer's code, JAX and libtpu.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from orchestrator.catalog.machines import Machine
from orchestrator.engine.preparation.prepared import PreparedCommand
from orchestrator.engine.training.advice import DoesNotFit, add_speeds, replace_estimate, trainer_settings
from orchestrator.engine.training.compiled_steps import digest_trainer, keep_answer, read_answer
from orchestrator.engine.training.process import refuse_settings, run_trainer, trainer_folder
from orchestrator.errors import NotFoundError, OrchError, UserError
from orchestrator.paths import Paths, load_paths
from orchestrator.task.model import Task

DEADLINE = 1800.0  # the largest step tried took 83 s on two cores; loops over many layers are not unrolled
PYTHON = "ORCH_TPU_COMPILER"
_DEVICE = "tpu"  # whose compiler can be run without it
COMPLETE = "complete"  # the file that scripts/tpu-compiler writes last
_GIB = 1 << 30
_OUT_OF_MEMORY = 4  # the trainer's exit status for a device that cannot do it
_NO_MATTER = ("checkpoint.", "metrics.", "dist.", "log_every=", "resume=")  # settings outside of the step
# No search for a TPU or for Google's metadata server; and two compilations may run concurrently, which libtpu
# forbids by a lock file, meant for processes that share a chip.
_ENV: Mapping[str, str] = {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "true"}


@dataclass(frozen=True, slots=True)
class CompiledStep:
    """The compiler's answer for one step.

    Attributes:
        report: What `python -m trainer compile --json` printed.
        cached: Whether it comes from an earlier call.
    """

    report: Mapping[str, Any]
    cached: bool

    @property
    def fits(self) -> bool:
        """Whether the step fits into the memory of a device."""
        return bool(self.report["fits"])


def add_compilation(
    ready: PreparedCommand, task: Task, tick: Callable[[float], None]
) -> tuple[PreparedCommand, OrchError | None]:
    """Return the command with the compiler's answer for the first kind of machine, and an error if it does not fit.

    Args:
        ready: The command.
        task: Its task.
        tick: Called with the seconds so far.

    Raises:
        UserError: JAX on TPUs does not train this task.
        NotFoundError: The compiler is not installed.
        DeadlineError: It took too long.
    """
    slice_, arguments = _compilation_request(task)
    answer = compile_step(slice_, task.num_nodes, arguments, tick)
    advice = [dict(one) for one in ready.advice] or [{"text": []}]
    advice[0]["compiled"] = dict(answer.report)
    advice[0]["text"] = [*advice[0]["text"], f"compiled {summarize_compilation(answer)}"]
    error = None
    if not answer.fits:
        why = str(answer.report["error"])
        fix = [" ".join(one["fix"]) for one in advice[0].get("concerns", ()) if one["code"].startswith("memory")]
        step = f"try: {fix[0]}" if fix and fix[0] else "remat=true, a larger accumulate, or more devices"
        error = DoesNotFit(f"the step does not fit {slice_.name}", why, step)
    first = add_speeds(advice[:1]) if "timing" in advice[0] else advice[:1]
    return replace_estimate(ready, [*first, *advice[1:]]), error


def compile_step(
    slice_: Machine, slices: int, arguments: tuple[str, ...], tick: Callable[[float], None]
) -> CompiledStep:
    """Compile the step for this slice, or return the cached answer.

    Raises:
        UserError: The settings are wrong.
    """
    where = load_paths()
    python = find_compiler(where)
    topology = f"{slice_.chip}:{slice_.topology}"
    key = _digest(topology, slices, arguments, python)
    if (found := read_answer(key)) is not None:
        return CompiledStep(found, cached=True)
    named = (f"topology={topology}", f"slices={slices}")
    answer = run_trainer(
        ["compile", "--json", *named, *arguments], deadline=DEADLINE, python=str(python), env=_ENV, tick=tick
    )
    refuse_settings(answer, f"the step cannot be compiled for {slice_.name}")
    if answer.status not in (0, _OUT_OF_MEMORY) or not answer.out.strip():
        raise OrchError(f"the step could not be compiled for {slice_.name}", answer.complaint, "leave --compile out")
    found = cast("dict[str, Any]", json.loads(answer.out.strip().splitlines()[-1]))
    keep_answer(key, found)
    return CompiledStep(found, cached=False)


def find_compiler(where: Paths) -> Path:
    """Return the Python of the environment that scripts/tpu-compiler makes.

    Raises:
        NotFoundError: It is not installed; the message names the command.
    """
    named = os.environ.get(PYTHON)
    if named:
        if not os.access(named, os.X_OK):
            raise NotFoundError(f"{PYTHON}={named} is not a program", "", "name the bin/python of that environment")
        return Path(named)
    script = trainer_folder() / "scripts" / "tpu-compiler"
    own = where.state / "tpu-compiler" / "bin" / "python"
    for candidate in (trainer_folder() / ".venv-libtpu" / "bin" / "python", own):
        if candidate.exists() and (candidate.parent.parent / COMPLETE).exists():
            return candidate
    raise NotFoundError(
        "the TPU compiler is not installed here",
        "it is JAX with libtpu, 1.2 GB, in a separate environment",
        f"{script}",
    )


def summarize_compilation(answer: CompiledStep) -> str:
    """Return the line of the plan about the compilation."""
    found = answer.report
    cached_note = " (compiled before)" if answer.cached else f", compiled in {found['seconds']:.0f} s"
    if not answer.fits:
        return f"does NOT fit: {found['error']}{cached_note}"
    parts = f"{_bytes(found['arguments'])} state and rows, {_bytes(found['temporaries'])} within a step"
    moved = ", ".join(f"{one['count']} {one['kind']} over {one['axes']}" for one in found["collectives"]) or "none"
    has = f" of {_bytes(found['capacity'])}" if found["capacity"] else ""
    return f"fits: {_bytes(found['used'])}{has} a device ({parts}); collectives: {moved}{cached_note}"


def _compilation_request(task: Task) -> tuple[Machine, tuple[str, ...]]:
    if task.train is None:
        raise UserError(
            "only the bundled trainer can be compiled ahead", "the task has no `train` section", "leave --compile out"
        )
    machine = task.choices[0].machine
    if machine.device != _DEVICE:
        raise UserError(f"{machine.name} is not a TPU slice", "the compiler is that of TPUs", "leave --compile out")
    arguments = trainer_settings(task, machine)
    if "engine=torch" in arguments:
        raise UserError("only the JAX engine can be compiled ahead", "the task asks for torch", "engine=jax")
    if not machine.topology:
        raise UserError(
            f"nothing can be compiled for {machine.name}", "its shape is not published", "leave --compile out"
        )
    return machine, tuple(word for word in arguments if not word.startswith(_NO_MATTER))


def _digest(topology: str, slices: int, arguments: tuple[str, ...], python: Path) -> str:
    own = os.environ.get("LIBTPU_INIT_ARGS", "")  # the compiler reads it
    parts = [topology, str(slices), *sorted(arguments), *_versions(python), digest_trainer(), own]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _versions(python: Path) -> list[str]:
    """Return name and version of what compiles, by the folder names of the installed packages."""
    found = python.parent.parent.glob("lib/python*/site-packages/*.dist-info")
    return sorted(one.name for one in found if one.name.startswith(("jax-", "jaxlib-", "libtpu-")))


def _bytes(size: int) -> str:
    return f"{size / _GIB:.2f} GiB" if size >= _GIB / 10 else f"{size / (1 << 20):.1f} MiB"
