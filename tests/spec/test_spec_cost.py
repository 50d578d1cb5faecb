"""What reading a task costs: light commands depend on it. CPU time against a yardstick of the same run."""

import os
import subprocess
import sys
from pathlib import Path

CODE = """
import sys, time
started = time.process_time()
import yaml
yardstick = time.process_time() - started
from orchestrator.spec.parse import parse_task
parse_task("resources: {accelerators: v5e-16}\\nrun: x\\n", file="t.yaml", env={})
spent = time.process_time() - started
heavy = {"pydantic", "paramiko", "fabric", "sqlalchemy", "rich", "jinja2", "obstore", "torch", "boto3"}
print(spent / yardstick, spent, *(heavy & set(sys.modules)))
"""


def test_import_and_one_task_cost_a_few_times_the_yaml_library(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = str(tmp_path)  # the first run compiles, as an installation does
    argv = [sys.executable, "-c", CODE]
    runs = [subprocess.run(argv, check=True, capture_output=True, text=True, env=env) for _ in range(4)][1:]
    ratios = [float(run.stdout.split()[0]) for run in runs]
    assert min(ratios) < 7, [run.stdout for run in runs]
    assert runs[0].stdout.split()[2:] == []
