"""NCCL's flight recorder: its settings, and torch's own recorder on a processor with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from trainer.torch_engine.flight_recorder import enable_flight_recorder

_RECORD = """
import json, os
from trainer.torch_engine.flight_recorder import enable_flight_recorder
enable_flight_recorder(os.environ)
import torch, torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
for count in (3, 4, 5):
    dist.all_reduce(torch.ones(count))
entries = json.loads(torch._C._distributed_c10d._dump_fr_trace_json(True, False)).get("entries", [])
print(json.dumps([entry["input_sizes"] for entry in entries]))
"""


def test_the_recorder_is_on_and_writes_beside_the_stacks() -> None:
    environ = {"ORCH_JOB_DIR": "/jobs/3"}
    enable_flight_recorder(environ)
    assert environ == {
        "ORCH_JOB_DIR": "/jobs/3",
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_DUMP_TEMP_FILE": "/jobs/3/nccl-trace-",
    }
    alone: dict[str, str] = {}
    enable_flight_recorder(alone)
    assert "TORCH_FR_DUMP_TEMP_FILE" not in alone


def test_what_the_user_has_set_stays_also_under_the_earlier_names() -> None:
    own = {
        "ORCH_JOB_DIR": "/jobs/3",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "0",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/mine/trace",
    }
    changed = dict(own)
    enable_flight_recorder(changed)
    assert changed == own


@pytest.mark.slow
@pytest.mark.parametrize(("size", "kept"), [("", [[[3]], [[4]], [[5]]]), ("2", [[[4]], [[5]]])])
def test_torch_reads_the_size_by_that_name(size: str, kept: list[list[list[int]]]) -> None:
    own = {"TORCH_FR_BUFFER_SIZE": size} if size else {}
    kept_environ = {name: value for name, value in os.environ.items() if not name.startswith("TORCH_")}
    done = subprocess.run(
        [sys.executable, "-c", _RECORD],
        env={**kept_environ, **own},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == kept
