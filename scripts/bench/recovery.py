"""Time of a recovery, from a preemption until the program's first new step.

    python scripts/bench/recovery.py [ROUNDS] [--quick]

Each round is a rehearsal on real sshd hosts of this computer in a simulated cloud whose own times are zero. What
remains is the time of orch and of the program: detection, teardown, a new request, connection, transfer, setup,
start. The program is a shell loop with a heartbeat; the last row is the bundled trainer, which imports PyTorch.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from context import print_context

SCENARIO = """[durations]
create = 0
end = 0
contact = 0
detect = 0
jitter = 0
"""
LOOP = """
name: bench
resources: {{infra: "local:{hosts}"}}
workdir: work
setup: "true"
run: |
  first=1
  [ -e "$SAVED" ] && first=$(cat "$SAVED")
  for i in $(seq "$first" 400); do
    echo "$i" > "$ORCH_HEARTBEAT_FILE"
    if [ "$ORCH_RANK" = 0 ]; then
      echo "$i" > "$SAVED.new" && mv "$SAVED.new" "$SAVED"
      echo "$ORCH_ATTEMPT $(date +%s.%N)" >> "$STEPS"
    fi
    [ "$ORCH_ATTEMPT" -gt 1 ] && [ "$i" -gt $((first + 3)) ] && exit 0
    sleep 0.05
  done
  exit 9
"""
TRAINER = """
name: bench
resources: {{infra: "local:{hosts}"}}
train:
  args: {{model.dim: 64, model.layers: 2, model.heads: 2, model.kv_heads: 1, steps: 60, batch: 16, threads: 1}}
checkpoint: {{bucket: "file:///unused", every: 10}}
"""


def one(task: str, hosts: int) -> tuple[float, float, float]:
    """Return seconds: preempted -> noticed, noticed -> program started, noticed -> first new step."""
    with tempfile.TemporaryDirectory(prefix="orch-bench-") as name:
        folder = Path(name)
        (folder / "work").mkdir()
        (folder / "work" / "file").write_text("x" * 1000)
        (folder / "task.yaml").write_text(task.format(hosts=hosts))
        (folder / "scenario.toml").write_text(SCENARIO)
        env = {**os.environ, "TMPDIR": name, "SAVED": f"{name}/saved", "STEPS": f"{name}/steps"}
        words = ["rehearse", "task.yaml", "--keep", "-o", "json", "--scenario", "scenario.toml", "--preempt", "step=20"]
        words += ["--env", "SAVED", "--env", "STEPS"]
        argv = [sys.executable, "-m", "orchestrator", *words]
        done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"a rehearsal failed ({done.returncode}):\n{done.stderr[-2000:]}")
        report = json.loads(done.stdout[done.stdout.index('{\n  "version"') :])
        (home,) = folder.glob("orch-rehearsal-*")
        return _times(report, home, folder / "steps")


def _times(report: dict[str, object], home: Path, steps: Path) -> tuple[float, float, float]:
    from orchestrator.store.read import open_reader_at

    with open_reader_at(home / "state" / "orch.db") as reader:
        events = reader.events("bench", limit=1000)
    seen = next(event.at for event in events if "-> ending (preempted" in event.what)
    started = next(event.at for event in events if "is being started" in event.what and event.at > seen)
    rows = [line.split() for line in steps.read_text().splitlines()] if steps.exists() else []
    if rows:
        first = min(float(at) for attempt, at in rows if attempt == "2")
        last = max(float(at) for attempt, at in rows if attempt == "1")
        return seen - last, started - seen, first - seen
    resumes = report["resumes"]
    assert isinstance(resumes, list)
    return float("nan"), started - seen, float(resumes[0]["seconds"])


def main() -> None:
    quick = "--quick" in sys.argv
    given = [word for word in sys.argv[1:] if word != "--quick"]
    rounds = 1 if quick else int(given[0]) if given else 5
    cases = (("shell loop", LOOP, 1), ("shell loop", LOOP, 4), ("bundled trainer", TRAINER, 2))
    print_context(quick=quick)
    print(f"median of {rounds} rounds; the cloud's own time is zero")
    print("| program | hosts | last step to noticed | noticed to started | noticed to first new step |")
    print("| --- | --- | --- | --- | --- |")
    for label, task, hosts in cases[:1] if quick else cases:
        found = [one(task, hosts) for _ in range(rounds)]
        noticed, started, stepped = (statistics.median(column) for column in zip(*found, strict=True))
        shown = "-" if noticed != noticed else f"{noticed:.1f} s"
        print(f"| {label} | {hosts} | {shown} | {started:.1f} s | {stepped:.1f} s |")


if __name__ == "__main__":
    main()
