"""What reading a task costs, in CPU time against a yardstick of the same run: importing the libraries that it needs."""

import os
import subprocess
import sys
from pathlib import Path

CODE = """
import sys, time
started = time.process_time()
import yaml
from pydantic import BaseModel
yardstick = time.process_time() - started
from orchestrator.task.parse import parse_task
parse_task("resources: {accelerators: v5e-16}\\nrun: x\\n", file="t.yaml", env={})
spent = time.process_time() - started
heavy = {"paramiko", "fabric", "sqlalchemy", "rich", "jinja2", "obstore", "torch", "boto3"}
print(spent / yardstick, spent, *(heavy & set(sys.modules)))
"""


def test_import_and_one_task_cost_little_more_than_the_libraries(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = str(tmp_path)  # the first run compiles, as an installation does
    argv = [sys.executable, "-c", CODE]
    runs = [subprocess.run(argv, check=True, capture_output=True, text=True, env=env) for _ in range(4)][1:]
    ratios = [float(run.stdout.split()[0]) for run in runs]
    assert min(ratios) < 3.5, [run.stdout for run in runs]
    assert runs[0].stdout.split()[2:] == []
