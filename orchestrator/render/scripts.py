"""The setup and the run script of a task, the same text for every host.

Host specific values come from the environment (docs/environment.md), so a script is complete before any host exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal, TypeAlias

from orchestrator.catalog.installs import HostTool, host_tool, python_stack
from orchestrator.render.packages import BESIDE_AN_IMAGE, Backend, stack_name, trainer_modules, trainer_packages
from orchestrator.render.templates import render_template

Holders: TypeAlias = Literal["end", "refuse", "leave"]
"""What happens to processes that hold the accelerator, except those of a running job, which stay.

end: all of them are ended: the machines are rented. refuse: only those of this installation are ended, and others
refuse the start. leave: none is ended, for commands beside a running job.
"""

_WHERE = ("data", "tokenizer", "checkpoint.uri", "dist.", "dtype", "threads")


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupInputs:
    """The inputs of the setup script, which prepares a host for the program.

    Attributes:
        user_setup: program text of the task.
        workdir: folder below the home directory.
        python: an existing interpreter, or "" to make an environment at ~/.orch/venv when something is installed.
        bundled_trainer: the program is the bundled trainer.
        packages: requirements of the task, for the same environment.
        may_install: the machine is rented, so a missing Python may be downloaded to ~/.orch.
        scratch: where local disks may be mounted (mounts.render_scratch), "" for nowhere.
        neuron: the accelerator is Trainium; JAX needs this, since it drives TPUs too.
        engine: the bundled trainer's name of its engine; "" for that of the backend.
        device: the bundled trainer's name of its device; "" for that of the backend.
        fixed: names of variables that ~/.bashrc of the host does not change for the program.
        conda: what a host without conda downloads, None for a task that needs none.
        holders: what happens to processes that hold the accelerator.
    """

    backend: Backend
    user_setup: str | None = None
    workdir: str | None = None
    python: str = ""
    bundled_trainer: bool = False
    packages: tuple[str, ...] = ()
    may_install: bool = False
    scratch: str = ""
    neuron: bool = False
    engine: str = ""
    device: str = ""
    fixed: tuple[str, ...] = ()
    conda: HostTool | None = None
    container: str = ""
    folders: tuple[str, ...] = ()
    holders: Holders = "end"

    def __post_init__(self) -> None:
        _check_workdir(self.workdir)
        if self.packages and self.python:
            raise ValueError("packages are installed in our own environment, never for an existing interpreter")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInputs:
    """The inputs of the run script: the task's own program, or the bundled trainer with its key=value arguments.

    The fields workdir, python, scratch, neuron, engine, device, fixed and holders are those of SetupInputs.

    Attributes:
        own_venv: put ~/.orch/venv/bin first on PATH for the task's own program (its setup had `packages`).
        smoke: the bundled trainer tests devices, data, loop and checkpoint on these hosts before each attempt.
        topology: chips of a TPU slice along each side, "4x4"; "" when unknown.
        library: the task's own program can import orch_run, which is on the hosts.
        without_workdir: what a host does that has no workdir: a command of `orch exec` runs in the home folder.
    """

    backend: Backend
    user_run: str | None = None
    trainer_args: tuple[tuple[str, str], ...] | None = None
    workdir: str | None = None
    python: str = ""
    own_venv: bool = False
    holders: Holders = "end"
    scratch: str = ""
    neuron: bool = False
    engine: str = ""
    device: str = ""
    smoke: bool = False
    topology: str = ""
    fixed: tuple[str, ...] = ()
    container: str = ""
    library: bool = False
    without_workdir: Literal["fail", "home"] = "fail"

    def __post_init__(self) -> None:
        _check_workdir(self.workdir)
        if (self.user_run is None) == (self.trainer_args is None):
            raise ValueError("a run has either the task's program or the trainer's arguments")
        if self.smoke and self.trainer_args is None:
            raise ValueError("only the bundled trainer has a smoke test")


def render_setup(inputs: SetupInputs, *, interpreter: HostTool | None = None) -> str | None:
    """Return the setup script, or None for nothing to do.

    Args:
        inputs: What it prepares.
        interpreter: The Python that a host downloads when it has none; None for the pinned one of the catalogue.

    Raises:
        UserError: A text that no script can hold.
    """
    user_setup = inputs.user_setup if inputs.user_setup and inputs.user_setup.strip() else None
    packages: tuple[str, ...] = inputs.packages
    locked: tuple[str, ...] = ()
    beside = python_stack(BESIDE_AN_IMAGE)
    if inputs.bundled_trainer:
        packages = (*trainer_packages(inputs.backend, _device(inputs)), *packages)
        locked = python_stack(stack_name(inputs.backend, _device(inputs))).locked
    ours = inputs.bundled_trainer or (bool(packages) and not inputs.python)
    if user_setup is None and not ours and inputs.conda is None and not inputs.container:
        return None
    download = (interpreter or host_tool("python")) if inputs.may_install else None
    neuron = _on_neuron(inputs)
    return render_template(
        "setup/neuron.sh.j2" if neuron else f"setup/{inputs.backend}.sh.j2",
        backend=inputs.backend,
        neuron=neuron,
        ours=ours,
        user_setup=user_setup,
        container=inputs.container,
        folders=inputs.folders,
        holders=inputs.holders,
        program=_render_program(user_setup, inputs) if user_setup is not None and inputs.container else None,
        workdir=inputs.workdir,
        without_workdir="fail",
        fixed=inputs.fixed,
        python=inputs.python,
        own_venv=bool(packages) and not inputs.python,
        packages=packages,
        locked=locked,
        more=inputs.packages,
        libraries=beside.libraries if inputs.bundled_trainer else (),
        bundled_trainer=inputs.bundled_trainer,
        may_install=inputs.may_install,
        version=download.version if download else "",
        files=download.rows if download else (),
        conda_version=inputs.conda.version if inputs.conda else "",
        conda_files=inputs.conda.rows if inputs.conda else (),
        scratch=inputs.scratch,
        modules=trainer_modules(inputs.backend, _device(inputs)),
        python_path=False,
        library=False,
        beside=(*beside.libraries, *inputs.packages),
        locked_beside=beside.locked,
        words=_words(inputs),
        lazy=_is_lazy(inputs),
        gpu=_device(inputs) == "cuda",
        tpu=_device(inputs) in ("tpu", "xla") and not _on_neuron(inputs),
    )


def render_run(inputs: RunInputs) -> str:
    """Return the run script. Raises UserError for text that no script can hold."""
    words: tuple[str, ...] | None = None
    if inputs.trainer_args is not None:
        # The trainer uses the last of equal keys, so the task's device overrides the backend's.
        words = (*_words(inputs), *(f"{key}={value}" for key, value in inputs.trainer_args))
    return render_template(
        f"run/{inputs.backend}.sh.j2",
        backend=inputs.backend,
        neuron=_on_neuron(inputs),
        user_run=inputs.user_run,
        container=inputs.container,
        program=_render_program(inputs.user_run or "", inputs) if inputs.container else None,
        trainer_args=words,
        workdir=inputs.workdir,
        without_workdir=inputs.without_workdir,
        fixed=inputs.fixed,
        python=inputs.python,
        own_venv=inputs.own_venv,
        holders=inputs.holders,
        scratch=inputs.scratch,
        lazy=_is_lazy(inputs),
        gpu=_device(inputs) == "cuda",
        tpu=_device(inputs) in ("tpu", "jax", "xla"),
        smoke_words=_smoke_words(inputs) if inputs.smoke else None,
        network_words=_words(inputs) if _measures_network(inputs) else None,
        topology=inputs.topology,
        python_path=True,
        library=inputs.library,
    )


def _render_program(text: str, inputs: SetupInputs | RunInputs) -> str:
    """Return the script that runs in the container: the task's own, after what every program finds on a host."""
    return render_template(
        "container/program.sh.j2",
        text=text,
        workdir=inputs.workdir,
        without_workdir="fail",
        fixed=inputs.fixed,
        own_venv=False,
        neuron=False,
        python_path=isinstance(inputs, RunInputs),
        library=isinstance(inputs, RunInputs) and inputs.library,
    )


def _on_neuron(inputs: SetupInputs | RunInputs) -> bool:
    """Return whether AWS's image contains the framework."""
    return inputs.backend == "neuron" or (inputs.backend == "jax" and (inputs.neuron or inputs.device == "neuron"))


def _device(inputs: SetupInputs | RunInputs) -> str:
    """Return the trainer's name of the device; for JAX without one, any that the machine has."""
    if inputs.device or inputs.backend != "jax":
        return inputs.device or inputs.backend
    return "neuron" if inputs.neuron else "jax"


def _words(inputs: SetupInputs | RunInputs) -> tuple[str, ...]:
    """Return the trainer's first arguments: engine and device."""
    engine = inputs.engine or ("jax" if inputs.backend == "jax" else "torch")
    device = _device(inputs)
    return f"engine={engine}", f"device={'auto' if device == 'jax' else device}"


def _measures_network(inputs: RunInputs) -> bool:
    """Return whether the trainer measures an all-reduce first: not on Neuron, whose compiler takes minutes for it."""
    with_jax = inputs.backend == "jax" and _device(inputs) in ("tpu", "cuda", "jax")
    return inputs.trainer_args is not None and (inputs.backend == "cuda" or with_jax)


def _smoke_words(inputs: RunInputs) -> tuple[str, ...]:
    """Return the run's settings of data and devices, without those of its size."""
    kept = tuple(f"{key}={value}" for key, value in inputs.trainer_args or () if key.startswith(_WHERE))
    return (*_words(inputs), *kept)


def _is_lazy(inputs: SetupInputs | RunInputs) -> bool:
    """Return whether Neuron's torch is torch_xla, where one process drives all cores of a host."""
    return inputs.backend == "neuron" and inputs.device == "xla"


def _check_workdir(workdir: str | None) -> None:
    if workdir is None:
        return
    path = PurePosixPath(workdir)
    if not workdir or path.is_absolute() or ".." in path.parts:
        raise ValueError(f"workdir is a folder below the host's home, not {workdir!r}")
