"""`orch_run.init()` has the ranks of every launcher on two hosts, and they are those of its framework."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from own_program_rehearsal import environment_words
from support.orch_process import Orch

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PROGRAM = """
import os, sys
import orch_run

run = orch_run.init()
launcher = sys.argv[1]
if launcher == "accelerate":
    from accelerate import Accelerator

    one = Accelerator(cpu=True)
    seen = one.process_index, one.num_processes, one.local_process_index
else:
    import torch.distributed as dist

    dist.init_process_group("gloo", rank=run.rank, world_size=run.world)
    seen = dist.get_rank(), dist.get_world_size(), int(os.environ.get("LOCAL_RANK", "0"))
    dist.destroy_process_group()
assert seen == (run.rank, run.world, run.local_rank), (seen, run.rank, run.world, run.local_rank)
line = f"{launcher}: rank {run.rank} of {run.world}, local {run.local_rank}, host {os.environ['ORCH_RANK']}\\n"
with open(os.environ["SEEN"], "a") as seen_ranks:
    seen_ranks.write(line)  # the hosts are processes of this machine
"""

# What DeepSpeed's launcher sets for each process, by its deepspeed/launcher/launch.py, read 2026-11-27.
DEEPSPEED = """
export CROSS_RANK=$ORCH_RANK CROSS_SIZE=$ORCH_NUM_HOSTS LOCAL_SIZE=2 WORLD_SIZE=4
for local in 0 1; do
  RANK=$((ORCH_RANK * 2 + local)) LOCAL_RANK=$local $PYTHON ranks.py deepspeed & pids="$pids $!"
done
for pid in $pids; do wait $pid; done
"""

RUN = f"""
set -e
$PYTHON ranks.py python
$PYTHON -m torch.distributed.run --nproc-per-node 2 ranks.py torchrun
$PYTHON -m accelerate.commands.launch --multi_gpu --num_processes 4 --num_machines $ORCH_NUM_HOSTS \\
  --machine_rank $ORCH_RANK --main_process_ip $MASTER_ADDR --main_process_port $MASTER_PORT ranks.py accelerate
{DEEPSPEED.strip()}
"""


def test_ranks_under_every_launcher(tmp_path: Path) -> None:
    for name in ("tmp", "program"):
        (tmp_path / name).mkdir()
    (tmp_path / "program/ranks.py").write_text(PROGRAM)
    script = "".join(f"  {line}\n" for line in RUN.strip().splitlines())
    task = f"name: ranks\nworkdir: program\nresources: {{infra: 'local:2'}}\nrun: |\n{script}"
    (tmp_path / "task.yaml").write_text(task)
    orch = Orch(tmp_path, {"TMPDIR": str(tmp_path / "tmp")})
    seen = tmp_path / "seen"
    done = orch("rehearse", "task.yaml", *environment_words(), "--env", f"SEEN={seen}", timeout=380)
    assert done.returncode == 0, done.stdout + done.stderr
    found = Counter(seen.read_text().splitlines())
    each_host = [f"python: rank {host} of 2, local 0, host {host}" for host in (0, 1)]
    each_process = [
        f"{launcher}: rank {2 * host + local} of 4, local {local}, host {host}"
        for launcher in ("torchrun", "accelerate", "deepspeed")
        for host in (0, 1)
        for local in (0, 1)
    ]
    assert found == Counter([*each_host, *each_process])
