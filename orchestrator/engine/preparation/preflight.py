"""Preflight: what would fail on the machines of a task, as far as it is known before they cost money."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from shutil import which

from orchestrator.distribution import install_command
from orchestrator.drivers import get_driver
from orchestrator.engine.preparation import host_inputs
from orchestrator.engine.preparation.candidates import list_candidates
from orchestrator.engine.preparation.foreign_buckets import foreign_bucket_reason
from orchestrator.errors import AccessError, OrchError, UserError
from orchestrator.formatting import format_size
from orchestrator.messages import join_some, to_one_line
from orchestrator.open_files import too_many_hosts_error
from orchestrator.providers.protocol import ChecksTasks
from orchestrator.providers.registry import load_planner
from orchestrator.render.packages import trainer_modules
from orchestrator.slices import HostFacts
from orchestrator.task.infra import LOCAL
from orchestrator.task.model import MountMode, Task
from orchestrator.task.mounts import outside_targets
from orchestrator.task.trainer_settings import list_data_sources

# Linux refuses to start a program with a longer string in its environment, or with more in all: MAX_ARG_STRLEN is 32
# pages, and all strings may fill a quarter of the stack, which is 8 MiB (execve(2), Linux manual pages 6.9, 2024).
_LONGEST_VARIABLE = 32 * 4096
_ALL_VARIABLES = 2 << 20
_OTHER_VARIABLES = 256 << 10  # bytes left to those of the host and of orch


def preflight_error(task: Task, facts: HostFacts) -> OrchError | None:
    """Return the first preflight error, or None."""
    return (
        open_files_error(task)
        or large_variable_error(task)
        or shell_syntax_error(task)
        or local_bucket_error(task, facts)
        or shared_disk_error(task)
        or foreign_bucket_error(task, facts)
        or _driver_error(task, facts)
        or unsupported_hosts_error(task, facts)
        or missing_packages_error(task, facts)
        or missing_engine_error(task, facts)
    )


def open_files_error(task: Task) -> UserError | None:
    """Return an error for more hosts than this computer can have connections to, or None."""
    return too_many_hosts_error(max(task.count_hosts(choice) for choice in task.choices))


def large_variable_error(task: Task) -> UserError | None:
    """Return an error for variables with which no host could start a program, or None. It shows no value."""
    given = {**dict(task.envs), **{secret.name: secret.value for secret in task.secrets}}
    sizes = {name: len(f"{name}={value}".encode()) + 1 for name, value in given.items()}
    step = "put it into a file: workdir or file_mounts send files, and the variable can name one"
    for name, size in sizes.items():
        if size > _LONGEST_VARIABLE:
            why = (
                f"it is {format_size(size)} long; Linux passes at most {format_size(_LONGEST_VARIABLE)} in one variable"
            )
            return UserError(f"the value of {name} is too long for a variable", why, step)
    if (total := sum(sizes.values())) > _ALL_VARIABLES - _OTHER_VARIABLES:
        why = f"they are {format_size(total)} together; Linux passes at most {format_size(_ALL_VARIABLES)} to a program"
        return UserError("the values of envs and secrets are too long together", why, step)
    return None


# Images have bash 5; macOS has 3.2, which does not know all of its syntax, such as `|&` (bash's CHANGES, version 4.0).
_PARSE = '[ "${BASH_VERSINFO[0]}" -lt 5 ] || exec "$BASH" "$@" -n'
_PARSE_SECONDS = 10.0


def shell_syntax_error(task: Task) -> UserError | None:
    """Return an error for a `setup` or `run` that bash cannot read, or None; also where this computer has no bash 5.

    Text that a `shopt -s extglob` in it makes valid is accepted: `bash -n` carries nothing out.
    """
    bash = which("bash")
    for field, text in (("setup", task.setup), ("run", task.run)):
        problem = _find_syntax_problem(bash, text) if bash is not None and text else ""
        if problem and _find_syntax_problem(str(bash), str(text), "-O", "extglob"):
            return UserError(f"`{field}` is not a script that bash can read", problem, "close what is open there")
    return None


def _find_syntax_problem(bash: str, text: str, *options: str) -> str:
    """Return what bash says of a script that it cannot read, or ""; also where it does not answer."""
    command = [bash, "-c", _PARSE, "bash", *options]
    try:
        done = subprocess.run(command, input=text.encode(), capture_output=True, check=False, timeout=_PARSE_SECONDS)
    except subprocess.TimeoutExpired:
        return ""
    said = done.stderr.decode(errors="replace")
    return to_one_line(said.replace(f"{bash}: ", "").replace("bash: ", "")) if done.returncode else ""


def _driver_error(task: Task, facts: HostFacts) -> OrchError | None:
    """Return the first error that the drivers of the task's choices know, or None."""
    for provider in dict.fromkeys(choice.infra.provider for choice in task.choices):
        planner = load_planner(provider)
        error = planner.preflight_error(task, facts) if isinstance(planner, ChecksTasks) else None
        if error is not None:
            return error
    return None


def local_bucket_error(task: Task, facts: HostFacts) -> UserError | None:
    """Return an error for a file:// bucket on rented machines, or None.

    Such a bucket would be a folder on each machine: it is lost with the machine, and the other hosts cannot read it.
    """
    bucket = task.checkpoint.bucket
    if not bucket.startswith("file://") or task.choices[0].infra.owned or facts.shares_files:
        return None
    schemes = [get_driver(choice.infra.provider).bucket_scheme for choice in task.choices]
    kind = next(filter(None, schemes), "s3")
    return UserError(
        f"{bucket} would be a folder on each rented machine",
        "checkpoints there are lost with the machine, and the other hosts cannot read them",
        f"--bucket {kind}://NAME/runs",
    )


def shared_disk_error(task: Task) -> UserError | None:
    """Return an error for file mounts that simulated hosts would write to this computer's own folders, or None.

    Without root and a mount namespace, a path such as /data cannot be given to one of several hosts of a computer.
    """
    outside = outside_targets([task])
    if not outside:
        return None
    if task.choices[0].infra.owned:
        return _shared_mount_error(task)
    by_provider = {candidate.provider: candidate for candidate in list_candidates(task)}
    if not any(host_inputs.host_facts(candidate).shares_files for candidate in by_provider.values()):
        return None
    return UserError(
        f"file_mounts would write to {join_some(outside)} of this computer",
        "simulated hosts share its disk, and orch lets them write only below their own ~",
        f"mount it below ~ in the task, which real machines have, too: ~/{outside[0].strip('/')}",
    )


def _shared_mount_error(task: Task) -> UserError | None:
    """Return an error for a bucket that several hosts of this computer would mount at one place, or None."""
    first = task.choices[0]
    mounted = [one.target for one in task.file_mounts if one.mode is MountMode.MOUNT and one.target.startswith("/")]
    if not mounted or task.count_hosts(first) == 1 or first.infra.provider != LOCAL:
        return None
    return UserError(
        f"the hosts cannot each mount a bucket at {mounted[0]}",
        "hosts of this computer share its disk",
        f"mount it below ~: ~/{mounted[0].strip('/')}",
    )


def foreign_bucket_error(task: Task, facts: HostFacts) -> AccessError | None:
    """Return an error for a bucket of another cloud than that of the machines, without credentials for it; or None.

    It may be mounted, hold the data of the bundled trainer, or keep checkpoints. An image of the user's own may hold
    credentials.
    """
    given = {name for name, _ in (*facts.env, *task.envs)} | set(task.secret_names)
    targets = [mount.target for mount in task.file_mounts]
    data = list_data_sources(task.train.args) if task.train is not None else ()
    buckets = (*(mount.source for mount in task.file_mounts), task.checkpoint.bucket, *data)
    for choice in task.choices:
        if choice.image_id and not choice.container:
            continue
        error = foreign_bucket_reason(choice.infra.provider, buckets, given, targets)
        if error is not None:
            return error
    return None


def unsupported_hosts_error(task: Task, facts: HostFacts) -> UserError | None:
    """Return an error for the bundled trainer on several Trainium hosts with torch, or None.

    torch_xla, the last torch for this chip, drives the devices of one host only.
    """
    first = task.choices[0]
    if task.train is None or task.count_hosts(first) == 1:
        return None
    chosen = host_inputs.choose_trainer_stack(task, facts)
    if chosen.device != "xla" or chosen.backend != "neuron":
        return None
    return UserError(
        f"the bundled trainer does not train on several hosts of {first.machine.name} with torch",
        "torch_xla, the last torch for this chip, drives the devices of one host",
        "set engine=jax, use one host, or run your own program: run: in a task file",
    )


def missing_packages_error(task: Task, facts: HostFacts) -> UserError | None:
    """Return an error where the bundled trainer would run with this Python, which lacks packages; or None."""
    if task.train is None or facts.python != sys.executable or "ORCH_PYTHON" in dict(task.envs):
        return None
    jax = host_inputs.choose_trainer_stack(task, facts).engine == "jax"
    missing = [name for name in trainer_modules("jax" if jax else "cpu") if find_spec(name) is None]
    if not missing:
        return None
    return UserError(
        f"this Python lacks what the bundled trainer needs: {', '.join(missing)}",
        f"hosts on this computer train with {sys.executable}",
        install_command("jax" if jax else "trainer"),
    )


def missing_engine_error(task: Task, facts: HostFacts) -> UserError | None:
    """Return an error for a container on hosts of this computer, which has no docker command; or None."""
    image = task.choices[0].container
    if not image or not facts.shares_files or which("docker") is not None:
        return None
    return UserError(
        f"hosts on this computer cannot run the container {image}",
        "there is no docker command on this computer",
        "install Docker, or podman with its docker command (package podman-docker)",
    )
