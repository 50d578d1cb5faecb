"""Ask the bundled trainer something: `python -m trainer COMMAND` as a process of its own.

Neither room imports the other, and the libraries of one have no place in the other.
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
class Answer:
    status: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The trainer's own error line, without its code; else the last thing it said."""
        lines = [line.strip() for line in self.err.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("error[")]
        return errors[-1].partition("]: ")[2] if errors else (lines or ["it said nothing"])[-1]


def trainer_folder() -> Path:
    """The folder that holds the package, found without importing it. Raises UserError."""
    spec = find_spec("trainer")
    if spec is None or not spec.submodule_search_locations:
        raise UserError("the bundled trainer is not installed", next_step="install orch anew: scripts/bootstrap")
    return Path(next(iter(spec.submodule_search_locations))).absolute().parent


def ask(
    words: Sequence[str],
    *,
    deadline: float,
    python: str = sys.executable,
    env: Mapping[str, str] = _NOTHING,
    tick: Callable[[float], None] | None = None,
) -> Answer:
    """Run one command of the trainer to its end. tick: told the seconds so far, about once a second.

    Raises DeadlineError, and OrchError when `python` cannot be started.
    """
    # -P: a folder called trainer where the user happens to stand is not ours.
    command = [python, "-P", "-m", "trainer", *words]
    whole = {**os.environ, "PYTHONPATH": str(trainer_folder()), **env}
    began = time.monotonic()
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=whole
        )
    except OSError as error:
        raise OrchError(f"{python} cannot be started", str(error)) from error
    with process:
        try:
            while True:
                try:
                    out, err = process.communicate(timeout=TICK)
                    return Answer(process.returncode, out, err)
                except subprocess.TimeoutExpired:
                    passed = time.monotonic() - began
                    if passed > deadline:
                        raise DeadlineError(f"`trainer {words[0]}` took longer than {deadline:.0f} s") from None
                    if tick is not None:
                        tick(passed)
        finally:
            if process.poll() is None:
                process.kill()


def refuse_settings(answer: Answer, what: str) -> None:
    """Raises UserError when the trainer said that its settings are wrong."""
    if answer.status == BAD_SETTINGS:
        raise UserError(what, answer.complaint, "change the settings of the trainer: python -m trainer --help")
