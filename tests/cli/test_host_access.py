"""A person's own ssh, forwarded ports, notebooks and the live table, on real hosts of this computer."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import jsonschema
import pytest
from support.jupyter import JUPYTER, PUT_JUPYTER
from support.orch_process import Orch

import orchestrator.cli

pytestmark = [pytest.mark.slow]
TASK = """
name: mine
resources: {infra: "local:2"}
run: echo "hello from $ORCH_RANK"
"""


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orch]:
    """Cluster 'mine' on two local hosts, in its own orch."""
    orch = Orch(tmp_path_factory.mktemp("access"))
    (orch.folder / "task.yaml").write_text(TASK)
    (orch.folder / ".ssh").mkdir(mode=0o700)
    try:
        orch.ok("launch", "task.yaml")
        yield orch
    finally:
        orch("down", "mine")
        orch.kill_engines()


def plain(orch: Orch, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a tool of OpenSSH with the person's configuration; ssh itself does not look at HOME."""
    tool, *rest = words
    command = [tool, "-F", str(orch.folder / ".ssh" / "config"), *rest]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)


def test_ssh_scp_and_rsync_reach_hosts_by_their_aliases(mine: Orch) -> None:
    mine.ok("ssh-config", "--write", "--yes")
    for alias, rank in (("mine", 0), ("mine-0", 0), ("mine-1", 1)):
        done = plain(mine, "ssh", alias, "pwd; cd; basename $(dirname $PWD)")
        home, _ = done.stdout.splitlines()
        assert done.returncode == 0 and mine.ok("ssh", "mine", str(rank), "--", "pwd").strip() == home
    (mine.folder / "sent").write_text("content")
    assert plain(mine, "scp", "-q", str(mine.folder / "sent"), "mine-1:by-scp").returncode == 0
    assert plain(mine, "ssh", "mine-1", "cat by-scp").stdout == "content"
    if shutil.which("rsync"):
        shell = f"ssh -F {mine.folder / '.ssh' / 'config'}"
        subprocess.run(["rsync", "-e", shell, str(mine.folder / "sent"), "mine:by-rsync"], check=True, timeout=60)
        assert plain(mine, "ssh", "mine", "cat by-rsync").stdout == "content"


def test_the_written_aliases_follow_the_hosts(mine: Orch) -> None:
    mine.ok("ssh-config", "--write", "--yes")
    aliases = mine.state / "ssh_config"
    before = aliases.read_text()
    (mine.folder / "other.yaml").write_text("name: other\nresources: {infra: local}\nrun: 'true'\n")
    mine.ok("launch", "other.yaml")
    assert plain(mine, "ssh", "other", "true").returncode == 0
    mine.ok("down", "other", "--yes")
    assert aliases.read_text() == before


class Greeting(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[int]:
    """The port of a program on a local host: these hosts share the network of this computer."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Greeting) as found:
        Thread(target=found.serve_forever, daemon=True).start()
        yield found.server_address[1]
        found.shutdown()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:  # our own server
        return bytes(answer.read())


@contextmanager
def forwarding(orch: Orch, *words: str) -> Generator[tuple[subprocess.Popen[str], str]]:
    """Run a command that forwards a port; yield it with the URL that it prints."""
    process = orch.start(*words)
    try:
        assert process.stdout is not None and process.stderr is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:"), process.stderr.read()
        yield process, url
    finally:
        process.kill()
        process.communicate()


def find_processes(chosen: Callable[[Path], bool]) -> list[int]:
    """Return processes by their folder in /proc."""
    found: list[int] = []
    for proc in Path("/proc").iterdir():
        with suppress(OSError):  # it has ended, or is another user's
            if proc.name.isdecimal() and chosen(proc):
                found.append(int(proc.name))
    return found


def command_line(proc: Path) -> str:
    return (proc / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def clients(port: int) -> list[int]:
    """Return the processes of ssh that hold a local port."""
    return find_processes(lambda proc: f"-L 127.0.0.1:{port}:localhost" in command_line(proc))


def sessions(orch: Orch) -> list[int]:
    """Return the processes of sshd that serve forwarded ports of an orch's local hosts."""
    home = str(orch.folder).encode()
    cats = find_processes(lambda proc: command_line(proc) == "cat " and home in (proc / "environ").read_bytes())
    return [serving for cat in cats for serving in [find_server(cat)] if serving]


def find_server(pid: int) -> int:
    """Return the nearest ancestor that is sshd; 0 for none."""
    while pid > 1:
        pid = int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
        if command_line(Path("/proc") / str(pid)).startswith("sshd"):
            return pid
    return 0


def read_until(process: subprocess.Popen[str], text: str) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return line
    raise AssertionError(f"it ended without: {text}")


def test_a_forwarded_port_survives_a_dropped_connection_and_ends_with_ctrl_c(mine: Orch, server: int) -> None:
    local = free_port()
    with forwarding(mine, "forward", "mine", f"{local}:{server}", "--host", "1") as (process, url):
        assert url == f"http://127.0.0.1:{local}" and read(url) == b"hello"
        (session,) = sessions(mine)
        os.kill(session, signal.SIGKILL)
        read_until(process, "the connection to worker1 was lost")
        read_until(process, "connected again to worker1 of 'mine'")
        assert read(url) == b"hello"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert clients(local) == []
        with pytest.raises(OSError):
            read(url)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_ssh_ends_with_the_command_however_that_ends(mine: Orch, server: int, number: signal.Signals) -> None:
    local = free_port()
    with forwarding(mine, "forward", "mine", f"{local}:{server}") as (process, _):
        assert len(clients(local)) == 1
        process.send_signal(number)
        process.wait(20)
        limit = time.monotonic() + 20
        while clients(local) and time.monotonic() < limit:
            time.sleep(0.05)
        assert clients(local) == []


def test_a_port_at_which_nothing_answers_is_reported_once(mine: Orch) -> None:
    local = free_port()
    with forwarding(mine, "forward", "mine", f"{local}:{free_port()}") as (process, url):
        for _ in range(3):
            with pytest.raises(OSError):
                read(url)
        line = read_until(process, "nothing answers at port")
        assert "of head" in line and "refused" in line
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None and "nothing answers" not in process.stderr.read()


def test_a_taken_port_is_refused_with_the_command_for_a_free_one(mine: Orch, server: int) -> None:
    done = mine("forward", "mine", str(server))
    assert done.returncode == 6
    assert f"port {server} of this computer is taken" in done.stderr
    assert re.search(rf"next: orch forward mine \d+:{server}\n", done.stderr)


def test_a_notebook_that_is_not_installed_is_refused_with_the_command_that_installs_it(mine: Orch) -> None:
    done = mine("notebook", "mine", "--host", "1")
    assert done.returncode == 7 and "jupyter is not installed on host 1" in done.stderr
    assert "next: orch exec mine --host 1 -- python3 -m pip install jupyterlab" in done.stderr
    last = json.loads(mine.ok("status", "mine", "-o", "json"))["clusters"][0]["jobs"][-1]
    assert (last["state"], last["status"]) == ("ended", 127)


def test_a_notebook_stays_after_ctrl_c_and_ends_with_its_job(mine: Orch) -> None:
    mine.ok("ssh", "mine", "0", "--", PUT_JUPYTER, stdin=JUPYTER)
    with forwarding(mine, "notebook", "mine") as (process, url):
        home = mine.ok("ssh", "mine", "0", "--", "pwd").strip()
        assert read(url).decode() == home
        with pytest.raises(urllib.error.HTTPError):
            read(url.partition("?")[0])
        line = read_until(process, "was started on head of 'mine'")
        job = line.split()[-1]
        process.send_signal(signal.SIGINT)
        read_until(process, "the notebook continues")
        assert process.wait(20) == 130
    token = url.partition("token=")[2]
    for file in mine.state.rglob("*"):
        if file.is_file() and "home" not in file.parts:
            assert token.encode() not in file.read_bytes(), file
    assert token not in mine.ok("logs", "mine", job)
    with forwarding(mine, "notebook", "mine") as (process, again):
        assert again.partition("token=")[2] == token and read(again).decode() == home
        assert f"orch cancel mine {job}" in read_until(process, "runs on head of 'mine'")
    mine.ok("cancel", "mine", job, "--yes")
    assert "orch-notebook" not in mine.ok("ssh", "mine", "0", "--", "ls .orch/hosts/*/notebook; true")
    with forwarding(mine, "notebook", "mine") as (process, third):
        assert third.partition("token=")[2] != token
        job = read_until(process, "was started").split()[-1]
    mine.ok("cancel", "mine", job, "--yes")


TOOLS = {
    "nvidia-smi": "echo '0, 97, 61234, 81559, 64'; echo '1, 3, 12, 81559, 31'",
    "tpu-info": "echo '│ 8 │ 18.45 GiB / 31.25 GiB │ 100.00% │'",
    "neuron-monitor": """echo '{"neuron_hardware_info":{"neuron_device_count":1,"neuroncore_per_device_count":2}}'""",
}
SCHEMA = json.loads((Path(orchestrator.cli.__file__).parent / "data" / "top.schema.json").read_text())


def test_top_shows_hosts_chips_and_which_host_lags(mine: Orch) -> None:
    for tool, line in TOOLS.items():
        put = f"mkdir -p .local/bin && cat >.local/bin/{tool} && chmod +x .local/bin/{tool}"
        mine.ok("ssh", "mine", "1", "--", put, stdin=f"#!/bin/sh\n{line}\nsleep 0.1\n")
    beat = 'echo $((7 + 3 * ORCH_RANK)) >"$ORCH_HEARTBEAT_FILE"; sleep 120'
    mine.ok("exec", "mine", "--detach", "--", beat)
    found = json.loads(mine.ok("top", "mine", "-o", "json"))
    jsonschema.validate(found, SCHEMA)
    assert abs(datetime.fromisoformat(found["now"]).timestamp() - time.time()) < 60
    head, worker = found["hosts"]
    assert (head["step"], head["step_lag"], worker["step"], worker["step_lag"]) == (7, 3, 10, 0)
    assert head["chips"] == [] and head["memory_total"] > 2**28 and head["load"] >= 0
    assert [chip["name"] for chip in worker["chips"]] == ["0", "1", "8", "0", "1"]
    lines = mine.ok("top", "mine", "--once").splitlines()
    assert lines[0].split() == ["HOST", "CONTACT", *lines[0].split()[2:]] and lines[0].endswith("LAG")
    assert lines[1].split()[-2:] == ["7", "3"] and lines[2].split()[-2:] == ["10", "0"]
    assert any("97%" in line and "64°C" in line for line in lines[4:])
    mine.ok("cancel", "mine", "--yes")


def test_a_live_table_is_drawn_over_itself_until_ctrl_c(mine: Orch) -> None:
    process, terminal = start_in_terminal(mine, "top", "mine", "--interval", "1")
    seen = b""
    while seen.count(b"\x1b[H") < 3:
        seen += os.read(terminal, 65536)
    os.write(terminal, b"\x03")
    assert process.wait(20) == 130
    os.close(terminal)
    assert seen.count(b"HOST") >= 3 and b"Ctrl-C ends it" in seen


def start_in_terminal(orch: Orch, *words: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start a command in a new terminal; return it with our end of that."""
    ours, its = os.openpty()
    env = {name: value for name, value in orch.env.items() if name != "CI"} | {"TERM": "xterm"}
    process = subprocess.Popen(
        ["setsid", "--ctty", *orch.command(*words)], stdin=its, stdout=its, stderr=its, env=env, cwd=orch.folder
    )
    os.close(its)
    return process, ours


def test_a_host_that_does_not_answer_is_a_row_that_says_so(mine: Orch) -> None:
    mine.ok("local", "preempt", "mine", "1")
    lines = mine.ok("top", "mine").splitlines()
    assert lines[1].startswith("head") and " ok " in lines[1]
    assert lines[2].startswith("worker1  refused ")
    assert any(line.startswith("worker1 does not answer: nothing listens at") for line in lines)
    found = json.loads(mine.ok("top", "mine", "-o", "json"))
    jsonschema.validate(found, SCHEMA)
    assert [host["contact"] for host in found["hosts"]] == [True, False]
