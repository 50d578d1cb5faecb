"""orch-admit under a real sshd: what it accepts, what sshd does with it, and machines that cannot have it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.sshd import SSHD

from orchestrator.engine.loop.admission import MEMBER_OPTIONS
from orchestrator.remote.admit_program import make_admit_program
from orchestrator.remote.keys import make_host_key
from orchestrator.render.admission import render_admission

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="installs a program as root, in its own folder")

IN_A_WEEK = time.strftime("%Y%m%d", time.gmtime(time.time() + 7 * 86_400))
YESTERDAY = time.strftime("%Y%m%d", time.gmtime(time.time() - 86_400))


@dataclass(frozen=True)
class Machine:
    """A rented machine in a folder: its own sshd, with StrictModes, and its own places for what orch installs."""

    folder: Path
    port: int
    home: Path

    @property
    def keys(self) -> Path:
        return self.folder / "etc" / "authorized_keys"

    @property
    def program(self) -> Path:
        return self.folder / "sbin" / "orch-admit"

    @property
    def listed(self) -> Path:
        return self.keys / "root"

    def admit(self, lines: Sequence[str], *, install: bool = True, **more: str) -> subprocess.CompletedProcess[str]:
        script = render_admission(
            lines,
            install=install,
            program=str(self.program),
            folder=str(self.keys),
            ssh_folder=str(self.folder / "ssh"),
        )
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home)} | more
        return subprocess.run(
            ["bash", "-s"], input=script, env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    def feed(self, text: bytes) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([self.program], input=text, capture_output=True, timeout=60, check=False)

    def lets_in(self, identity: Path) -> bool:
        words = ["ssh", "-F", "none", "-i", str(identity), "-p", str(self.port), "-o", "IdentitiesOnly=yes"]
        words += ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes"]
        words += ["-o", "IdentityAgent=none", "-o", "ConnectTimeout=10", "root@127.0.0.1", "true"]
        return subprocess.run(words, capture_output=True, timeout=60, check=False).returncode == 0


@pytest.fixture
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    include = getattr(request, "param", True)
    folder = Path(
        tempfile.mkdtemp(dir="/opt", prefix="orch-test-")
    )  # below /tmp, which all may write, StrictModes refuses
    folder.chmod(0o755)
    ssh = folder / "ssh"
    (ssh / "sshd_config.d").mkdir(parents=True)
    (folder / "home" / ".ssh").mkdir(parents=True)
    private, _ = make_host_key()
    (ssh / "host_key").write_text(private)
    (ssh / "host_key").chmod(0o600)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    (ssh / "sshd_config").write_text(
        (f"Include {ssh}/sshd_config.d/*.conf\n" if include else "")
        + f"AuthorizedKeysFile {folder}/home/.ssh/authorized_keys\nListenAddress 127.0.0.1:{port}\n"
        + f"HostKey {ssh}/host_key\nPidFile {folder}/sshd.pid\nUsePAM no\nStrictModes yes\n"
        + "PermitRootLogin prohibit-password\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    server = subprocess.Popen([SSHD, "-D", "-f", str(ssh / "sshd_config"), "-E", str(folder / "log")])
    try:
        limit = time.monotonic() + 20
        while not (folder / "sshd.pid").exists():
            assert time.monotonic() < limit, (folder / "log").read_text()
            time.sleep(0.02)
        yield Machine(folder, port, folder / "home")
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(10)
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def computers(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, str]]:
    folder = tmp_path_factory.mktemp("keys")
    made: list[tuple[Path, str]] = []
    for number in range(3):
        private, public = make_host_key()
        path = folder / f"key{number}"
        path.write_text(private)
        path.chmod(0o600)
        made.append((path, public))
    return made


def line(public: str, uid: str = "abc123", until: str = IN_A_WEEK) -> str:
    return f'expiry-time="{until}" {public} orch-computer-{uid}'


def test_the_program_is_roots_and_its_file_is_read_beside_the_persons_own(
    machine: Machine, computers: list[tuple[Path, str]]
) -> None:
    (ann, ann_public), (bob, bob_public), _ = computers
    own = machine.home / ".ssh" / "authorized_keys"
    own.write_text(ann_public + "\n")
    assert machine.lets_in(ann)
    assert not machine.lets_in(bob)
    done = machine.admit([line(bob_public)])
    assert done.returncode == 0, done.stderr
    assert machine.lets_in(bob)
    assert machine.lets_in(ann)
    assert own.read_text() == ann_public + "\n", "the person's own file was written"
    for path, mode in ((machine.program, 0o755), (machine.keys, 0o755), (machine.listed, 0o644)):
        assert (path.stat().st_uid, path.stat().st_mode & 0o7777) == (0, mode)
    added = machine.folder / "ssh" / "sshd_config.d" / "00-orch.conf"
    before = added.stat().st_mtime_ns
    assert machine.admit([]).returncode == 0
    assert not machine.lets_in(bob)
    assert added.stat().st_mtime_ns == before, "an installed machine is configured again"
    assert sorted(path.name for path in machine.keys.iterdir()) == ["root"]


def test_sshd_refuses_a_key_after_its_day(machine: Machine, computers: list[tuple[Path, str]]) -> None:
    (ann, ann_public), (bob, bob_public), _ = computers
    assert machine.admit([line(ann_public), line(bob_public, "b0b", until=YESTERDAY)]).returncode == 0
    assert machine.lets_in(ann)
    assert not machine.lets_in(bob)


def test_a_member_is_let_in_until_a_time_of_the_host_and_without_an_agent(
    machine: Machine, computers: list[tuple[Path, str]]
) -> None:
    (ann, ann_public), (bob, bob_public), (eve, eve_public) = computers
    ends = {public: time.time() + seconds for public, seconds in ((ann_public, 3600), (bob_public, -5))}
    lines = [f'{MEMBER_OPTIONS},expiry-time="@{int(at)}" {public} orch-computer-abc1' for public, at in ends.items()]
    done = machine.admit([line(eve_public), *lines])
    assert done.returncode == 0, done.stderr
    assert machine.lets_in(ann) and machine.lets_in(eve)
    assert not machine.lets_in(bob), "its time is over"
    local = time.strftime("%Y%m%d%H%M%S", time.localtime(int(ends[ann_public])))
    assert f'{MEMBER_OPTIONS},expiry-time="{local}" {ann_public} orch-computer-abc1\n' in machine.listed.read_text()
    wrong = machine.admit([f'{MEMBER_OPTIONS},expiry-time="@x" {bob_public} orch-computer-abc1'])
    assert wrong.returncode != 0 and machine.lets_in(ann), "nothing is written when a time cannot be read"


def test_lines_of_before_the_program_leave_the_persons_own_file(
    machine: Machine, computers: list[tuple[Path, str]]
) -> None:
    (_, ann_public), (bob, bob_public), _ = computers
    own = machine.home / ".ssh" / "authorized_keys"
    own.write_text(f"{ann_public} me@home\n{line(bob_public)}\n")
    assert machine.lets_in(bob)
    assert machine.admit([line(ann_public)]).returncode == 0
    assert own.read_text() == f"{ann_public} me@home\n"
    assert not machine.lets_in(bob)


@pytest.mark.parametrize("machine", [False], indirect=True)
def test_a_machine_whose_sshd_reads_no_other_file_gets_the_keys_where_it_reads_them(
    machine: Machine, computers: list[tuple[Path, str]]
) -> None:
    _, (bob, bob_public), _ = computers
    done = machine.admit([line(bob_public)])
    assert done.returncode == 0, done.stderr
    assert "does not read" in done.stderr
    assert machine.lets_in(bob)
    assert not list((machine.folder / "ssh" / "sshd_config.d").iterdir())
    assert machine.admit([]).returncode == 0
    assert not machine.lets_in(bob)


def test_a_machine_that_is_not_ours_is_not_configured(machine: Machine, computers: list[tuple[Path, str]]) -> None:
    _, (bob, bob_public), _ = computers
    assert machine.admit([line(bob_public)], install=False).returncode == 0
    assert not machine.program.exists()
    assert not machine.keys.exists()
    assert machine.lets_in(bob)


GOOD = line(make_host_key()[1])
HOSTILE = {
    "a command": f'command="id" {GOOD}',
    "no expiry": GOOD.partition(" ")[2],
    "another option": GOOD.replace('" ssh', '",agent-forwarding ssh', 1),
    "an authority": GOOD.replace("expiry-time", "cert-authority,expiry-time", 1),
    "options of members and another": "restrict,port-forwarding,pty,agent-forwarding," + GOOD,
    "some options of members": "restrict,pty," + GOOD,
    "a time that is not set": f"{MEMBER_OPTIONS},{GOOD}".replace(IN_A_WEEK, "@1790000000"),
    "a short day": GOOD.replace(IN_A_WEEK, IN_A_WEEK[:-1]),
    "a day and a time": GOOD.replace(IN_A_WEEK, IN_A_WEEK + "1200"),
    "another kind": GOOD.replace("ssh-ed25519", "sk-ssh-ed25519@openssh.com"),
    "no computer": GOOD.rpartition(" ")[0],
    "a name with more": GOOD + "/../root",
    "a carriage return": GOOD + "\r",
    "a tab": GOOD.replace(" ", "\t", 1),
    "a comment before it": "# " + GOOD,
    "an empty line": GOOD + "\n",
    "NUL": GOOD + "\0",
    "NUL before a second line": f"{GOOD}\0\ncommand=\"id\" {GOOD}",
    "two keys in a line": f"{GOOD} {GOOD}",
    "a good line first": f"{GOOD}\nssh-ed25519 AAAA",
    "latin letters": GOOD.replace("orch-", "örch-"),
    "a long key": GOOD.replace(" orch", "A" * 7000 + " orch"),
    "many lines": "\n".join([GOOD] * 1001),
    "many bytes": "\n".join([GOOD.replace(" orch", "A" * 4000 + " orch")] * 70),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_other_input_than_keys_of_computers_changes_nothing(tmp_path: Path, what: str) -> None:
    program, keys = tmp_path / "orch-admit", tmp_path / "keys"
    program.write_text(make_admit_program(str(keys)))
    program.chmod(0o755)

    def feed(text: bytes, *words: str) -> int:
        done = subprocess.run([program, *words], input=text, capture_output=True, timeout=60, check=False)
        return done.returncode

    assert feed(GOOD.encode() + b"\n") == 0
    before = (keys / "root").read_bytes()
    assert before == GOOD.encode() + b"\n"
    assert feed(HOSTILE[what].encode() + b"\n") == 2
    assert feed(GOOD.encode()) == 2, "a list that was cut off was taken"
    assert feed(b"", "--help") == 2
    assert (keys / "root").read_bytes() == before
    assert sorted(path.name for path in keys.iterdir()) == ["root"]
    assert feed(b"") == 0
    assert (keys / "root").read_bytes() == b""


@pytest.mark.parametrize("name", ["../root", "a b", ".hidden", "-x", "a/b", "a\nb"])
def test_the_account_of_sudo_names_a_file_and_no_path(tmp_path: Path, name: str) -> None:
    program = tmp_path / "orch-admit"
    program.write_text(make_admit_program(str(tmp_path / "keys")))
    program.chmod(0o755)
    environment = {"PATH": os.environ["PATH"], "SUDO_USER": name}
    done = subprocess.run([program], input=b"", env=environment, capture_output=True, timeout=60, check=False)
    assert done.returncode == 2
    assert not (tmp_path / "keys").exists()
    environment["SUDO_USER"] = "ann.example_com"
    assert subprocess.run([program], input=b"", env=environment, timeout=60, check=False).returncode == 0
    assert (tmp_path / "keys" / "ann.example_com").exists()
