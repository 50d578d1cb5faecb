"""Running a command of the bundled trainer, `python -m trainer COMMAND`, in a separate process.

Neither package imports the other, and neither needs the libraries of the other.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from orchestrator.errors import DeadlineError, OrchError, UserError

TICK = 1.0
BAD_SETTINGS = 2  # the trainer's exit status for a command line that is wrong
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TrainerAnswer:
    """Exit status and output of one trainer command."""

    status: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The trainer's own error line without its code, else the last line it printed."""
        lines = [line.strip() for line in self.err.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("error[")]
        return errors[-1].partition("]: ")[2] if errors else (lines or ["it printed nothing"])[-1]


def trainer_folder() -> Path:
    """Return the folder that holds the `trainer` package, found without importing it.

    Raises:
        UserError: The trainer is not installed.
    """
    spec = find_spec("trainer")
    if spec is None or not spec.submodule_search_locations:
        raise UserError("the bundled trainer is not installed", next_step="reinstall orch: scripts/bootstrap")
    return Path(next(iter(spec.submodule_search_locations))).absolute().parent


def run_trainer(
    arguments: Sequence[str],
    *,
    deadline: float,
    python: str = sys.executable,
    env: Mapping[str, str] = _NOTHING,
    tick: Callable[[float], None] | None = None,
) -> TrainerAnswer:
    """Run one command of the trainer to its end.

    Args:
        arguments: The command and its arguments.
        deadline: Seconds.
        python: The interpreter.
        env: Variables to add to this process's.
        tick: Called with the seconds so far, about once a second.

    Raises:
        DeadlineError: It took longer than `deadline`.
        OrchError: `python` cannot be started.
    """
    # -P: a folder called trainer in the working directory is not ours, nor for the processes that this one starts.
    command = [python, "-P", "-m", "trainer", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(trainer_folder()), "PYTHONSAFEPATH": "1", **env}
    began = time.monotonic()
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
    except OSError as error:
        raise OrchError(f"{python} cannot be started", str(error), f"{python} --version") from error
    with process:
        try:
            while True:
                try:
                    out, err = process.communicate(timeout=TICK)
                    return TrainerAnswer(process.returncode, out, err)
                except subprocess.TimeoutExpired:
                    passed = time.monotonic() - began
                    if passed > deadline:
                        raise DeadlineError(
                            f"`trainer {arguments[0]}` took longer than {deadline:.0f} s",
                            next_step="try again when this computer has less to do",
                        ) from None
                    if tick is not None:
                        tick(passed)
        finally:
            if process.poll() is None:
                process.kill()


def refuse_settings(answer: TrainerAnswer, what: str) -> None:
    """Raise UserError when the trainer reported that its settings are wrong."""
    if answer.status == BAD_SETTINGS:
        raise UserError(what, answer.complaint, "change the settings of the trainer: python -m trainer --help")
