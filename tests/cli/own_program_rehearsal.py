"""Rehearsals of the examples of docs/own-programs.md, with their own port, and of one that loses a host."""

from __future__ import annotations

import json
import re
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

from support.orch_process import Orch

EXAMPLES = Path(__file__).parents[2] / "examples" / "own-programs"


def orch_with_examples(folder: Path) -> Orch:
    (folder / "tmp").mkdir()
    shutil.copytree(EXAMPLES, folder / "examples" / "own-programs")
    return Orch(folder, {"TMPDIR": str(folder / "tmp")})


def environment_words() -> list[str]:
    """Return options for `orch rehearse`: this Python, and a port, for other tests' hosts are this machine, too."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    given = (f"PYTHON={sys.executable}", "OMP_NUM_THREADS=1", f"MASTER_PORT={port}")
    return [word for one in given for word in ("--env", one)]


def rehearse(orch: Orch, name: str, *words: str) -> tuple[dict[str, Any], str]:
    """Return the report and the line that the program ends with."""
    task = f"examples/own-programs/{name}.yaml"
    done = orch("rehearse", task, *environment_words(), *words, "-o", "json", timeout=380)
    assert done.returncode == 0, done.stdout + done.stderr
    ends = re.findall(r"done: step .*", done.stderr)
    assert len(ends) == 1, done.stderr
    return json.loads(done.stdout), ends[0]


def check_lost_host(orch: Orch, name: str, step: int) -> None:
    """Lose a host at a step; the run resumes and ends as one that lost none."""
    _, whole = rehearse(orch, name)
    report, ended = rehearse(orch, name, "--env", "STEP_SECONDS=0.2", "--preempt", f"step={step}")
    assert ended == whole, "the same last loss, to the last bit"
    (resume,) = report["resumes"]
    assert report["resumed"] is True and resume["cause"] == "preempted" and resume["found_saved"]
    assert resume["resumed_step"] is not None and resume["resumed_step"] >= 10
