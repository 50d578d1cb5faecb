"""An own program grows from 2 hosts to 4 when those are there, and resumes at the step that it saved when asked to."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support.orch_process import Orch
from support.proof import report

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

STEPS, FREED = 40, 3
PROGRAM = f"""
import pathlib, time
import orch_run

run = orch_run.init()
step = run.restore("restored") or 0
if step:
    assert pathlib.Path("restored/state").read_text() == "x" * step
print(f"begins at step {{step}} as rank {{run.rank}} of {{run.world}}", flush=True)
while step < {STEPS}:
    time.sleep(0.4)
    step += 1
    run.heartbeat(step)
    stop = run.should_stop()
    if step % 5 == 0 or stop:
        folder = run.new_folder()
        (folder / "state").write_text("x" * step)
        run.save(folder, step)
    if stop:
        run.wait()
        raise SystemExit(orch_run.STOPPED)
run.wait()
"""
POOL = 'zone = "us-east-1a"\naccelerator = "g6.xlarge"'
MARKET = f"""
[durations]
create = 1.0
end = 0.5
detect = 3.0
contact = 0.0
jitter = 0.0
[[capacity]]
{POOL}
amount = 2
[[event]]
do = "capacity"
{POOL}
amount = 4
step = {FREED}
"""
# A launcher for which hours of the rule are seconds, and that has a record of requests for the larger size.
LAUNCHER = """
import dataclasses, json, sys, time
from orchestrator.cli.commands.before import rehearsal_launcher
from orchestrator.engine.loop import growth as checks
from orchestrator.engine.loop import wait
from orchestrator.engine.preparation.commands import prepare_launch
from orchestrator.offers import estimates
from orchestrator.paths import load_paths
from orchestrator.plan import growth, moves
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.task.model import Task
from support.own_requests import record_requests

estimates.RESTART = growth.RESTART = moves.RESTART = estimates.Estimate(low=0.05, typical=0.1, high=0.2)
growth.SHORTEST_ATTEMPT, checks.CHECK_EVERY, wait.LOOK_EVERY = 6.0, 1.0, 1.0
spec = json.load(open(sys.argv[1]))
ready = prepare_launch(Task.from_json(spec["task"]), cluster=spec["cluster"], after=TeardownPolicy.DOWN)
record_requests(load_paths().database, time.time, ready.desired.candidates[0], got=9)
sys.exit(rehearsal_launcher.main(sys.argv[1:]))
"""
START = """
import sys
from orchestrator.__main__ import main
from orchestrator.engine.rehearsal import rehearse

play = rehearse.run_rehearsal
rehearse.run_rehearsal = lambda stage, command, *more, **named: play(
    stage, [command[0], "launcher.py", command[-1]], *more, **named
)
sys.exit(main())
"""
TASK = """
name: own
workdir: program
num_nodes: 2-4
resources: {accelerators: g6.xlarge, infra: aws/us-east-1/us-east-1a, grow: true}
checkpoint: {bucket: "s3://not-used/runs"}
run: $PYTHON train.py
"""


def test_an_own_program_grows_and_resumes_at_the_step_that_it_saved_before_it_stopped(tmp_path: Path) -> None:
    for name in ("tmp", "program"):
        (tmp_path / name).mkdir()
    files = {"program/train.py": PROGRAM, "launcher.py": LAUNCHER, "start.py": START}
    for name, text in (files | {"task.yaml": TASK, "market.toml": MARKET}).items():
        (tmp_path / name).write_text(text)
    paths = os.pathsep.join(str(Path(__file__).parents[up]) for up in (1, 2))
    orch = Orch(tmp_path, {"TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": paths})
    words = ("rehearse", "task.yaml", "-o", "json", "--scenario", "market.toml", "--env", f"PYTHON={sys.executable}")
    done = subprocess.run(
        [sys.executable, "start.py", *words],
        capture_output=True, text=True, env=orch.env, cwd=tmp_path, timeout=380, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    begun = Counter(re.findall(r"begins at step (\d+) as rank \d (of \d)", done.stderr))
    ((step, _),) = [one for one in begun if one[1] == "of 4"]
    assert begun == {("0", "of 2"): 2, (step, "of 4"): 4} and FREED < int(step) < STEPS, done.stderr
    (resume,) = json.loads(done.stdout)["resumes"]
    assert (resume["cause"], resume["lost_steps"], resume["resumed_step"]) == ("grown", 0, int(step))
    assert (
        resume["why"].startswith("4 x g6.xlarge, on demand: about ") and "on 2 x g6.xlarge (assumed: " in resume["why"]
    )
    report("an own program grows from 2 hosts to 4, and loses no step", {"steps": STEPS})
