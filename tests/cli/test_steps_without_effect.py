"""A host whose shell reports success without doing what it is sent: the launch ends, and says what the host shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.orch_process import Orch
from support.own_ssh import Person
from support.sshd import sshd_farm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# Does all that it is sent, except for the marks of what the host holds.
SHELL = """\
#!/bin/sh
case $SSH_ORIGINAL_COMMAND in *' && mv ".'*) exit 0 ;; esac
exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"
"""


def test_a_step_that_succeeds_three_times_without_effect_ends_the_launch(tmp_path: Path) -> None:
    shell = tmp_path / "shell"
    shell.write_text(SHELL)
    shell.chmod(0o755)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("A\n")
    orch = Orch(tmp_path, {"SSH_AUTH_SOCK": ""})
    with sshd_farm(tmp_path / "farm", 2, extra=f"ForceCommand {shell}") as farm:
        Person(tmp_path, farm).make_key("id_ed25519")
        hosts = ", ".join(f"'{host.ip}:{host.port}'" for host in farm.hosts)
        (tmp_path / "t.yaml").write_text(
            "name: mine\nresources: {infra: hosts, accelerators: cpu}\nnum_nodes: 2\nworkdir: work\n"
            f"hosts: {{addresses: [{hosts}]}}\nrun: echo hello\n"
        )
        done = orch("launch", "t.yaml", "--yes", timeout=200.0)
        assert done.returncode == 7, done.stderr
        assert "error[no-effect]: sync workdir reported success 3 times on hosts 0-1, and has no effect" in done.stderr
        assert "why:  head shows no workdir" in done.stderr
        assert "orch ssh mine 0" in done.stderr
        assert done.stderr.count("sync workdir: 1 file") == 3
        orch.ok("down", "mine", "--yes")


SHELLS = {  # what a login shell does with the commands of orch, and what the launch then says
    "exits 0": ("echo hi", "exit 0, `hi`"),
    "is silent": ("exit 0", "exit 0, no output"),
    "nologin": ("echo This account is currently not available.; exit 1", "exit 1, `This account is currently not ava"),
}


@pytest.mark.parametrize("kind", SHELLS)
def test_a_login_shell_that_runs_nothing_ends_the_launch_with_what_it_shows(kind: str, tmp_path: Path) -> None:
    """Such as a .bashrc that execs fish: it waited for SSH without an end. nologin and tcsh gave no reason."""
    shell, shown = SHELLS[kind]
    (tmp_path / "shell").write_text(f"#!/bin/sh\n{shell}\n")
    (tmp_path / "shell").chmod(0o755)
    orch = Orch(tmp_path, {"SSH_AUTH_SOCK": ""})
    with sshd_farm(tmp_path / "farm", 1, extra=f"ForceCommand {tmp_path}/shell") as farm:
        Person(tmp_path, farm).make_key("id_ed25519")
        (tmp_path / "t.yaml").write_text(
            "name: mine\nresources: {infra: hosts, accelerators: cpu}\n"
            f"hosts: {{addresses: ['{farm.hosts[0].ip}:{farm.hosts[0].port}']}}\nrun: echo hello\n"
        )
        done = orch("launch", "t.yaml", "--yes", timeout=100.0)
        assert done.returncode == 8, done.stderr
        assert f"SSH works, but a command has no result: {shown}" in done.stderr.split("error[")[1], done.stderr
        assert "next: have a login shell there" in done.stderr
        checked = orch("check", "hosts", "t.yaml")
        assert checked.returncode != 0 and shown.split(", ")[1][:20] in checked.stdout, checked
