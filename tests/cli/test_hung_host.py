"""A host that answers SSH and runs no command: every command on hosts ends within its deadline, and names the host."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.orch_process import Orch
from support.sshd import Farm, sshd_farm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

DEADLINE = 60.0 + 10.0 + 50.0  # of a transfer, of ending what it left on the host, and of this computer under load
GATE = """\
#!/bin/sh
[ -e {folder}/hung ] && exec sleep 3600
exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"
"""
TASK = """\
name: mine
resources: {{infra: hosts, accelerators: cpu}}
hosts: {{addresses: ['{host.ip}:{host.port}'], key: {key}}}
run: echo hello; sleep {seconds}
"""


@dataclass
class Hanging:
    """An orch with a cluster of one host, which can be made to run nothing more."""

    orch: Orch
    farm: Farm
    folder: Path

    def write_task(self, seconds: int) -> None:
        text = TASK.format(host=self.farm.hosts[0], key=self.farm.identity, seconds=seconds)
        (self.folder / "task.yaml").write_text(text)

    def hang(self) -> None:
        (self.folder / "hung").touch()

    def recover(self) -> None:
        (self.folder / "hung").unlink(missing_ok=True)
        for pid in self.farm.hosts[0].user_pids():
            subprocess.run(["kill", str(pid)], check=False, capture_output=True)


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Hanging]:
    gate = tmp_path / "gate"
    gate.write_text(GATE.format(folder=tmp_path))
    gate.chmod(0o755)
    with sshd_farm(tmp_path / "farm", 1, extra=f"ForceCommand {gate}") as farm:
        host = farm.hosts[0]
        (tmp_path / ".ssh").mkdir(mode=0o700)
        (tmp_path / ".ssh" / "known_hosts").write_text(f"[{host.ip}]:{host.port} {host.address.host_key}\n")
        hanging = Hanging(Orch(tmp_path, {"SSH_AUTH_SOCK": ""}), farm, tmp_path)
        yield hanging
        hanging.recover()
        hanging.orch("down", "mine", "--yes", "--abandon", timeout=170)


def test_reading_commands_and_copies_end_within_their_deadline(hanging: Hanging) -> None:
    hanging.write_task(0)
    hanging.orch.ok("launch", "task.yaml", "--yes")
    assert hanging.orch.ok("logs", "mine", "--no-prefix") == "hello\n"
    hanging.hang()
    assert hanging.orch.ok("logs", "mine", "--no-prefix") == "hello\n", "its copy is complete: no host is asked"
    shutil.rmtree(hanging.orch.state / "logs")
    commands = (
        ("cp", "mine:.profile", "here"),
        ("cp", "task.yaml", "mine:there.yaml"),
        ("logs", "mine"),
        ("logs", "mine", "--tail", "3"),
        ("logs", "mine", "--follow"),
        ("top", "mine", "--once"),  # its table says so, and its status stays 0
    )
    began = time.monotonic()
    started = [hanging.orch.start(*words) for words in commands]
    for words, process in zip(commands, started, strict=True):
        out, err = process.communicate(timeout=max(1.0, began + DEADLINE - time.monotonic()))
        shown = " ".join((out + err).split())
        assert process.returncode == (0 if words[0] == "top" else 8), f"{words}: {shown}"
        assert "failed on head" not in shown, f"{words}: the program had succeeded: {shown}"
        assert "Traceback" not in shown and "head" in shown, f"{words}: {shown}"
        assert "timeout" in shown or "made no progress" in shown or "ran longer" in shown, f"{words}: {shown}"
