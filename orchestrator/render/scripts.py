"""The setup and the run script of a task, the same text for every host.

Host specific values come from the environment (docs/environment.md), so a script is known before any host is.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from orchestrator.render.packages import BESIDE_AN_IMAGE, Backend, trainer_modules, trainer_packages
from orchestrator.render.templates import fill

TRAINER_ROOT = ".orch/trainer"
"""Folder below the host's home that is put on PYTHONPATH; the package lies in `trainer/` inside it."""


_WHERE = ("data", "tokenizer", "checkpoint.uri", "dist.", "dtype", "threads")


@dataclass(frozen=True, slots=True)
class SetupInputs:
    """What has to be ready on a host before the program starts.

    user_setup: program text of the task. workdir: folder below the home. python: interpreter that is there already, or
    "" to make an environment at ~/.orch/venv when something has to be installed. packages: requirements of the task,
    for the same environment. may_install_system: a machine of ours, so a missing Python may come from apt-get.
    scratch: where local disks may be mounted (mounts.render_scratch), "" for nowhere. neuron: the accelerator is
    Trainium; of importance to JAX, which drives TPUs too. engine, device: of the bundled trainer, in its own words;
    "" for the backend's own.
    """

    backend: Backend
    user_setup: str | None = None
    workdir: str | None = None
    python: str = ""
    bundled_trainer: bool = False
    packages: tuple[str, ...] = ()
    may_install_system: bool = False
    scratch: str = ""
    neuron: bool = False
    engine: str = ""
    device: str = ""

    def __post_init__(self) -> None:
        _check_workdir(self.workdir)
        if self.packages and self.python:
            raise ValueError("packages go to an environment of our own, never to an interpreter that is there already")


@dataclass(frozen=True, slots=True)
class RunInputs:
    """The program: either the task's own text, or the bundled trainer with its key=value arguments.

    own_venv: put ~/.orch/venv/bin first on PATH for the task's own program (its setup had `packages`).
    clear_holders: end stale processes that hold the accelerator; off for commands beside a running job. scratch,
    neuron, engine, device: as in SetupInputs. smoke: the bundled trainer tests devices, data, loop and checkpoint on
    these hosts before each attempt. topology: chips of a TPU slice along each side, "4x4"; "" when not known.
    """

    backend: Backend
    user_run: str | None = None
    trainer_args: tuple[tuple[str, str], ...] | None = None
    workdir: str | None = None
    python: str = ""
    own_venv: bool = False
    clear_holders: bool = True
    scratch: str = ""
    neuron: bool = False
    engine: str = ""
    device: str = ""
    smoke: bool = False
    topology: str = ""

    def __post_init__(self) -> None:
        _check_workdir(self.workdir)
        if (self.user_run is None) == (self.trainer_args is None):
            raise ValueError("a run is either the task's program or the trainer's arguments")
        if self.smoke and self.trainer_args is None:
            raise ValueError("the smoke test is the bundled trainer's")


def render_setup(inputs: SetupInputs) -> str | None:
    """The setup script, or None when nothing has to be done. Raises UserError for text that no script can hold."""
    user_setup = inputs.user_setup if inputs.user_setup and inputs.user_setup.strip() else None
    packages = inputs.packages
    if inputs.bundled_trainer:
        packages = (*trainer_packages(inputs.backend, _device(inputs)), *packages)
    ours = inputs.bundled_trainer or (bool(packages) and not inputs.python)
    if user_setup is None and not ours:
        return None
    neuron = _on_neuron(inputs)
    return fill(
        "setup/neuron.sh.j2" if neuron else f"setup/{inputs.backend}.sh.j2",
        backend=inputs.backend,
        neuron=neuron,
        ours=ours,
        user_setup=user_setup,
        workdir=inputs.workdir,
        python=inputs.python,
        own_venv=bool(packages) and not inputs.python,
        packages=packages,
        bundled_trainer=inputs.bundled_trainer,
        may_install_system=inputs.may_install_system,
        scratch=inputs.scratch,
        modules=trainer_modules(inputs.backend, _device(inputs)),
        beside=(*BESIDE_AN_IMAGE, *inputs.packages),
        words=_words(inputs),
        lazy=_is_lazy(inputs),
        gpu=_device(inputs) == "cuda",
        tpu=_device(inputs) in ("tpu", "xla") and not _on_neuron(inputs),
    )


def render_run(inputs: RunInputs) -> str:
    """The run script. Raises UserError for text that no script can hold."""
    words: tuple[str, ...] | None = None
    if inputs.trainer_args is not None:
        # A later word wins in the trainer, so a device of the task's own wins over the backend's.
        words = (*_words(inputs), *(f"{key}={value}" for key, value in inputs.trainer_args))
    return fill(
        f"run/{inputs.backend}.sh.j2",
        backend=inputs.backend,
        neuron=_on_neuron(inputs),
        user_run=inputs.user_run,
        trainer_args=words,
        workdir=inputs.workdir,
        python=inputs.python,
        own_venv=inputs.own_venv,
        clear_holders=inputs.clear_holders,
        scratch=inputs.scratch,
        lazy=_is_lazy(inputs),
        gpu=_device(inputs) == "cuda",
        tpu=_device(inputs) in ("tpu", "jax", "xla"),
        smoke_words=_smoke_words(inputs) if inputs.smoke else None,
        topology=inputs.topology,
    )


def _on_neuron(inputs: SetupInputs | RunInputs) -> bool:
    """Whether AWS's own image brings the framework."""
    return inputs.backend == "neuron" or (inputs.backend == "jax" and (inputs.neuron or inputs.device == "neuron"))


def _device(inputs: SetupInputs | RunInputs) -> str:
    """As the trainer calls it; for JAX without one, whatever the machine has."""
    if inputs.device or inputs.backend != "jax":
        return inputs.device or inputs.backend
    return "neuron" if inputs.neuron else "jax"


def _words(inputs: SetupInputs | RunInputs) -> tuple[str, ...]:
    """The trainer's first words: what it is to train with."""
    engine = inputs.engine or ("jax" if inputs.backend == "jax" else "torch")
    device = _device(inputs)
    return f"engine={engine}", f"device={'auto' if device == 'jax' else device}"


def _smoke_words(inputs: RunInputs) -> tuple[str, ...]:
    """Of the run's settings those that say where and with what it works, and none of its size."""
    kept = tuple(f"{key}={value}" for key, value in inputs.trainer_args or () if key.startswith(_WHERE))
    return (*_words(inputs), *kept)


def _is_lazy(inputs: SetupInputs | RunInputs) -> bool:
    """Whether Neuron's torch is the lazy one, torch_xla, of which one process drives all cores of a host."""
    return inputs.backend == "neuron" and inputs.device == "xla"


def _check_workdir(workdir: str | None) -> None:
    if workdir is None:
        return
    path = PurePosixPath(workdir)
    if not workdir or path.is_absolute() or ".." in path.parts:
        raise ValueError(f"workdir is a folder below the host's home, not {workdir!r}")
