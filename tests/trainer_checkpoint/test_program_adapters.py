"""The examples with frameworks: killed by SIGKILL, they resume, and end as an uninterrupted run, to the last bit."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

EXAMPLES = Path(__file__).parents[2] / "examples" / "own-programs"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def start(folder: Path, *words: str, step_seconds: float = 0.0) -> subprocess.Popen[str]:
    """Start Python in a folder; its output and errors come as one stream."""
    folder.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ORCH_", "PET_"))}
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env={
            **kept,
            "OMP_NUM_THREADS": "1",
            "STEP_SECONDS": str(step_seconds),
            "TMPDIR": str(folder),
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # see docs/own-programs.md
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Return the last line of the program, and all that it printed."""
    output, _ = process.communicate(timeout=240)  # two ranks import torch and transformers
    assert process.returncode == 0, output
    (end,) = re.findall(r"done: step .*", output)
    return end, output


def wait_for_checkpoint(process: subprocess.Popen[str], step: int) -> None:
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if f"checkpoint {step} written" in line:
            return
    raise AssertionError("".join(lines))


def children(process: int) -> Sequence[int]:
    """Return the processes that one has started, in order."""
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.mark.parametrize("name", ["hf_trainer", "lightning_loop", "accelerate_loop", "flax_orbax"])
def test_a_program_that_is_killed_resumes(tmp_path: Path, name: str) -> None:
    program = str(EXAMPLES / f"{name}.py")
    whole, _ = finish(start(tmp_path / "whole", program))
    killed = start(tmp_path / "killed", program, step_seconds=0.1)
    wait_for_checkpoint(killed, 20)
    killed.kill()
    killed.communicate(timeout=60)
    ended, output = finish(start(tmp_path / "killed", program))
    assert re.search(r"resumed from step [23]0 of attempt", output), output
    assert ended == whole


def test_torchrun_starts_the_ranks_again_when_one_is_killed(tmp_path: Path) -> None:
    program = str(EXAMPLES / "hf_trainer.py")
    whole, _ = finish(start(tmp_path / "whole", *TORCHRUN, program))
    killed = start(tmp_path / "killed", *TORCHRUN, "--max-restarts", "1", program, step_seconds=0.1)
    wait_for_checkpoint(killed, 20)
    os.kill(children(killed.pid)[-1], signal.SIGKILL)
    ended, output = finish(killed)
    assert output.count("resumed from step") == 2, output
    assert ended == whole


def test_ranks_of_the_trainer_with_one_output_folder_are_refused(tmp_path: Path) -> None:
    program = tmp_path / "shared.py"
    text = (EXAMPLES / "hf_trainer.py").read_text("utf-8").replace("tempfile.mkdtemp()", '"out"')
    program.write_text(text)
    process = start(tmp_path / "run", *TORCHRUN, str(program))
    output, _ = process.communicate(timeout=120)
    assert process.returncode != 0 and "two ranks have the output_dir out" in output, output
