"""Run one command of orch as a separate process: with a deadline, and interrupted when its output says so."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.acceptance.steps import Interruption

GRACE_SECONDS = 60.0  # after Ctrl-C: orch withdraws what it has just requested
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a command left.

    Attributes:
        status: Exit status, 128 + n for signal n.
        seconds: How long it took.
        problem: Why it did not end by itself; "" when it did, or was interrupted as its step says.
    """

    status: int
    seconds: float
    out: str
    err: str
    problem: str = ""

    @property
    def text(self) -> str:
        """All that it wrote."""
        return self.out + self.err


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """In what the commands of a run are run.

    Attributes:
        launcher: The words that start orch; a file for refusals and the command follow.
        folder: Working directory, with the files of the run.
        env: The whole environment.
    """

    launcher: tuple[str, ...]
    folder: Path
    env: Mapping[str, str]

    def refusals_file(self, name: str) -> Path:
        """Return the file into which a command records what is refused."""
        return self.folder / "output" / f"{name}.refusals"


def run_orch(
    surroundings: Surroundings,
    name: str,
    words: Sequence[str],
    *,
    seconds: float,
    interruption: Interruption | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Output:
    """Run one command to its end.

    Args:
        surroundings: See there.
        name: Of its files of output.
        words: The command, without `orch`.
        seconds: After so long it is interrupted as by Ctrl-C, and later killed.
        interruption: Sent to it on purpose.
        is_stopped: Whether the user wants the run to end; the command is then interrupted, too.
    """
    files = [surroundings.folder / "output" / f"{name}.{stream}" for stream in ("out", "err")]
    files[0].parent.mkdir(exist_ok=True)
    began = time.monotonic()
    with files[0].open("wb") as out, files[1].open("wb") as err:
        process = subprocess.Popen(
            [*surroundings.launcher, str(surroundings.refusals_file(name)), *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=surroundings.folder,
            env=dict(surroundings.env),
            start_new_session=True,  # Ctrl-C on the terminal reaches us alone
        )
        problem = _wait(process, files, began + seconds, interruption, is_stopped)
    status = process.returncode
    texts = [file.read_text(encoding="utf-8", errors="replace") for file in files]
    return Output(
        status=status if status >= 0 else 128 - status,
        seconds=time.monotonic() - began,
        out=texts[0],
        err=texts[1],
        problem=problem,
    )


def _wait(
    process: subprocess.Popen[bytes],
    files: Sequence[Path],
    deadline: float,
    interruption: Interruption | None,
    is_stopped: Callable[[], bool],
) -> str:
    """Wait for the end of the process, and return the problem."""
    problem = ""
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_SECONDS)
            return problem or ("it ended before it could be interrupted" if interruption else "")
        if not problem and (is_stopped() or time.monotonic() > deadline):
            problem = "it was interrupted: " + ("the run was stopped" if is_stopped() else "it took too long")
            process.send_signal(signal.SIGINT)
            deadline, interruption = time.monotonic() + GRACE_SECONDS, None
        elif problem and time.monotonic() > deadline:
            process.kill()
        elif interruption is not None and _matches(files, interruption.pattern):
            process.send_signal(interruption.signal)
            interruption = None


def _matches(files: Sequence[Path], pattern: str) -> bool:
    return any(re.search(pattern, file.read_text(encoding="utf-8", errors="replace")) for file in files)
