"""The next step of a failed run, from the real bucket to stderr, JSON, the record and the service's page."""

from __future__ import annotations

import json
import re
import sys
from html import unescape
from pathlib import Path
from typing import Any

from support.command_lines import accepts
from support.orch_process import Orch
from support.service_site import serve

TASK = """
name: {name}
resources: {{infra: local}}
checkpoint: {{bucket: "file://{bucket}"}}
run: |
  {command}
"""
SAVES_AND_FAILS = """
import hashlib, json, os
from pathlib import Path

data, name = b"numbers", "part-00000-000.safetensors"
folder = Path(os.environ["ORCH_CHECKPOINT_URI"].removeprefix("file://")) / "step-00000003"
folder.mkdir(parents=True)
(folder / name).write_bytes(data)
part = {"name": name, "size": len(data), "header": 0, "sha256": hashlib.sha256(data).hexdigest()}
manifest = {"format": 2, "step": 3, "run_id": os.environ["ORCH_RUN_ID"], "attempt": 1, "world": 1, "config": {},
            "weights_only": False, "time": "2026-11-20T18:30:00Z", "parts": [part], "data": None}
(folder / "manifest.json").write_text(json.dumps(manifest))
import no_such_module
"""


def fail(orch: Orch, name: str, command: str) -> tuple[dict[str, Any], str]:
    """Launch a program that fails, and return the error of its JSON, and stderr."""
    task = orch.folder / f"{name}.yaml"
    task.write_text(TASK.format(name=name, bucket=orch.folder / "bucket", command=command))
    done = orch("launch", str(task), "-c", name, "--yes", "-o", "json")
    assert done.returncode == 1, done.stderr
    return json.loads(done.stdout)["error"], done.stderr


def test_a_program_that_fails_on_an_import_is_fixed_and_launched_again_not_resumed(tmp_path: Path) -> None:
    orch = Orch(tmp_path)
    (tmp_path / "bucket").mkdir()
    error, text = fail(orch, "failing", f"{sys.executable} -c 'import no_such_module'")
    assert "No module named 'no_such_module'" in error["why"]
    assert error["next_command"] == "orch logs failing 1"
    assert error["next_words"] == "shows its output; fix it, then the same launch"
    assert "next: orch logs failing 1   shows its output; fix it, then the same launch" in text
    assert "next: orch resume" not in text
    with serve(orch) as site:
        (run,) = site.ask("/v1/runs").document["runs"]
        shown = site.ask(f"/v1/runs/{run['run_id']}").document["outcome"]
        assert (shown["next_command"], shown["next_words"]) == (error["next_command"], error["next_words"])
        page = site.ask(f"/runs/{run['run_id']}", cookie=site.sign_in(), signed=False).text
    step = re.search(r'<p class="next">next: <code>(.*?)</code> (.*?)</p>', page)
    assert step is not None, page
    assert unescape(step[1]) == error["next_command"] and unescape(step[2]) == error["next_words"]
    commands = [unescape(one) for one in re.findall(r"<code>(orch .*?)</code>", page)]
    assert len(commands) >= 2 and all(accepts(one) for one in commands), commands
    assert not accepts("orch resume failing resumes from the newest checkpoint")
    orch.ok("down", "failing", "--yes")


def test_a_run_with_a_checkpoint_is_resumed(tmp_path: Path) -> None:
    orch = Orch(tmp_path)
    (tmp_path / "bucket").mkdir()
    (tmp_path / "saves.py").write_text(SAVES_AND_FAILS)
    error, text = fail(orch, "saving", f"{sys.executable} {tmp_path}/saves.py")
    assert error["next_command"] == "orch resume saving", text
    assert error["next_words"].startswith("resumes from the newest checkpoint")
    assert accepts(error["next_command"])
    orch.ok("down", "saving", "--yes")
