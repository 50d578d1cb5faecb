"""The setup and the run script of a task, the same text for every host.

Host specific values come from the environment (docs/environment.md), so a script is known before any host is.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from orchestrator.errors import UserError
from orchestrator.render.packages import Backend, trainer_modules, trainer_packages
from orchestrator.render.templates import fill

TRAINER_ROOT = ".orch/trainer"
"""Folder below the host's home that is put on PYTHONPATH; the package lies in `trainer/` inside it."""


@dataclass(frozen=True, slots=True)
class SetupInputs:
    """What has to be ready on a host before the program starts.

    user_setup: program text of the task. workdir: folder below the home. python: interpreter that is there already, or
    "" to make an environment at ~/.orch/venv when something has to be installed. packages: requirements of the task,
    for the same environment. may_install_system: a machine of ours, so a missing Python may come from apt-get.
    scratch: where local disks may be mounted (mounts.render_scratch), "" for nowhere. neuron: the accelerator is
    Trainium; of importance to JAX, which drives TPUs too.
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

    def __post_init__(self) -> None:
        _check_workdir(self.workdir)
        if self.packages and self.python:
            raise ValueError("packages go to an environment of our own, never to an interpreter that is there already")
        if self.bundled_trainer:
            _check_trainer(self.backend)


@dataclass(frozen=True, slots=True)
class RunInputs:
    """The program: either the task's own text, or the bundled trainer with its key=value arguments.

    own_venv: put ~/.orch/venv/bin first on PATH for the task's own program (its setup had `packages`).
    clear_holders: end stale processes that hold the accelerator; off for commands beside a running job. scratch and
    neuron: as in SetupInputs.
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

    def __post_init__(self) -> None:
        _check_workdir(self.workdir)
        if (self.user_run is None) == (self.trainer_args is None):
            raise ValueError("a run is either the task's program or the trainer's arguments")
        if self.trainer_args is not None:
            _check_trainer(self.backend)


def render_setup(inputs: SetupInputs) -> str | None:
    """The setup script, or None when nothing has to be done. Raises UserError for text that no script can hold."""
    user_setup = inputs.user_setup if inputs.user_setup and inputs.user_setup.strip() else None
    packages = inputs.packages
    if inputs.bundled_trainer:
        # Neuron's torch comes with the image, and numpy with it: another numpy beside it could break it.
        libraries = ("safetensors", "obstore") if inputs.backend == "neuron" else trainer_packages(inputs.backend)
        packages = (*libraries, *packages)
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
        modules=trainer_modules(inputs.backend),
        device=f"device={inputs.backend}",
    )


def render_run(inputs: RunInputs) -> str:
    """The run script. Raises UserError for text that no script can hold."""
    words: tuple[str, ...] | None = None
    if inputs.trainer_args is not None:
        # A later word wins in the trainer, so a device of the task's own wins over the backend's.
        words = (f"device={inputs.backend}", *(f"{key}={value}" for key, value in inputs.trainer_args))
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
    )


def _on_neuron(inputs: SetupInputs | RunInputs) -> bool:
    """Whether AWS's own image brings the framework."""
    return inputs.backend == "neuron" or (inputs.backend == "jax" and inputs.neuron)


def _check_trainer(backend: Backend) -> None:
    if backend == "jax":
        raise UserError(
            "the bundled trainer has no JAX engine",
            "it trains with torch on cpu, cuda, xla and neuron",
            "take another backend, or write the program in the task's `run:`",
        )


def _check_workdir(workdir: str | None) -> None:
    if workdir is None:
        return
    path = PurePosixPath(workdir)
    if not workdir or path.is_absolute() or ".." in path.parts:
        raise ValueError(f"workdir is a folder below the host's home, not {workdir!r}")
