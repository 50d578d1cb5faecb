"""What counts as activity on a host, and that no value breaks out of the scripts of limits."""

from __future__ import annotations

import math
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from limits_support import Host, open_host
from render_support import TEMPLATES, hostile, program
from test_template_guard import unsafe

from orchestrator.errors import UserError
from orchestrator.remote.scripts import shell_source
from orchestrator.render.limits import LimitsSpec, render_limits, render_renewal, render_timer

ALL = LimitsSpec(max_hours=1.5, idle_minutes=5, deadline=2e9, since=1e9, on_limit="end", stop_command="true")
HEAD = "#!/bin/bash\n"
SCRIPTS = {
    "install on a machine of ours": render_limits(ALL),
    "install on the user's own": render_limits(LimitsSpec(max_hours=1, watch="jobs")),
    "timer": render_timer(ALL),
    "remove": render_limits(LimitsSpec()),
    "renew": HEAD + render_renewal(900),
}


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("name", SCRIPTS)
def test_each_script_of_limits_is_clean(name: str) -> None:
    done = subprocess.run(["shellcheck", "-"], input=SCRIPTS[name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_script_of_limits_parses(name: str) -> None:
    done = subprocess.run(["bash", "-n"], input=SCRIPTS[name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("path", sorted((TEMPLATES / "limits").glob("*.j2")), ids=lambda path: path.name)
def test_each_template_of_limits_puts_out_quoted_values_only(path: Path) -> None:
    assert list(unsafe(path.read_text())) == []


def activity(host: Host, limits: LimitsSpec = ALL) -> str:
    """What the timer's own function says, asked once."""
    done = host.bash(f"{functions_of(host, render_timer(limits))}\nactivity\n")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def functions_of(host: Host, text: str) -> str:
    """Return the timer's program without its loop."""
    functions, found, _ = text.partition('\norch_take_claim "$limits/claim"')
    assert found
    return functions.replace("limits=${0%/*}", f"limits={host.limits}")


@pytest.fixture
def quiet(tmp_path: Path) -> Iterator[Host]:
    """A machine on which nothing happens, its /proc and /dev made here."""
    proc, dev = tmp_path / "proc", tmp_path / "m" / "dev"
    proc.mkdir()
    dev.mkdir(parents=True)
    (proc / "loadavg").write_text("0.10 0.20 0.30 1/200 4321\n")
    with open_host(tmp_path / "m", ORCH_PROC_DIR=str(proc)) as host:
        process(host, 1, "/sbin/init")
        process(host, 700, "sshd: /usr/sbin/sshd -D [listener] 0 of 10-100 startups")
        assert activity(host) == ""
        yield host


def process(host: Host, pid: int, words: str, *, children: str = "", file: str = "") -> None:
    folder = Path(host.env["ORCH_PROC_DIR"]) / str(pid)
    (folder / "task" / str(pid)).mkdir(parents=True)
    (folder / "fd").mkdir()
    (folder / "cmdline").write_text(words.replace(" ", "\0"))
    (folder / "task" / str(pid) / "children").write_text(children)
    if file:
        (folder / "fd" / "7").symlink_to(file)


def test_a_running_job_is_activity_and_a_finished_one_is_not(quiet: Host) -> None:
    quiet.start_job("now", "#!/bin/sh\nsleep 30\n")
    assert activity(quiet) == "job now"


@pytest.mark.parametrize("name", ["sshd: ann@pts/0", "sshd-session: ann@pts/3"])
def test_a_terminal_over_ssh_is_activity(quiet: Host, name: str) -> None:
    process(quiet, 800, name)
    assert activity(quiet) == "an SSH session"


def test_a_copy_over_ssh_is_activity(quiet: Host) -> None:
    process(quiet, 800, "sshd: ann@notty", children="801 ")
    process(quiet, 801, "rsync --server")
    assert activity(quiet) == "an SSH session"


def test_only_jobs_count_where_the_task_waits_for_jobs(quiet: Host) -> None:
    process(quiet, 800, "sshd: ann@pts/0")
    (Path(quiet.env["ORCH_PROC_DIR"]) / "loadavg").write_text("9.99 9.99 9.99 1/200 4321\n")
    jobs = replace(ALL, wait_for="jobs")
    assert activity(quiet) == "an SSH session" and activity(quiet, jobs) == ""
    quiet.start_job("work", "#!/bin/sh\nsleep 3\n")
    assert activity(quiet, jobs) == "job work"


def test_that_orch_asks_for_the_state_of_a_job_is_none(quiet: Host) -> None:
    """Else a server of ours that only watches would keep every host awake."""
    process(quiet, 800, "sshd: ann@notty", children="801 ")
    process(quiet, 801, "/bin/sh -c SOURCE orch train")
    (Path(quiet.env["ORCH_PROC_DIR"]) / "801/cmdline").write_text(
        "\0".join(["/bin/sh", "-c", shell_source("job-status.sh"), "orch", "", "train"])
    )
    process(quiet, 900, "sshd: ann@notty")  # a connection with nothing on it
    assert activity(quiet) == ""


@pytest.mark.parametrize(("load", "busy"), [("0.49", ""), ("0.50", "a load of 0.50"), ("12.08", "a load of 12.08")])
def test_load_of_five_minutes_is_activity_from_a_half_on(quiet: Host, load: str, busy: str) -> None:
    (Path(quiet.env["ORCH_PROC_DIR"]) / "loadavg").write_text(f"9.99 {load} 9.99 1/200 4321\n")
    assert activity(quiet) == busy


@pytest.mark.parametrize(
    ("says", "busy"),
    [("0\n3\n", ""), ("0\n97\n", "a GPU at 97 %"), ("[N/A]\nfailed: no driver\n", ""), ("", "")],
)
def test_a_gpu_that_works_is_activity(quiet: Host, says: str, busy: str) -> None:
    program(quiet.bin / "nvidia-smi", f"#!/bin/sh\nprintf %s {shlex.quote(says)}\n")
    assert activity(quiet) == busy


@pytest.mark.parametrize(
    ("says", "busy"),
    [
        ('[{"neuron_device": 0, "neuron_processes": []}]', ""),
        ('[{"neuron_device": 0, "neuron_processes": [{"pid": 7}]}]', "a process on Neuron cores"),
    ],
)
def test_a_process_on_neuron_cores_is_activity(quiet: Host, says: str, busy: str) -> None:
    program(quiet.bin / "neuron-ls", f"#!/bin/sh\necho {shlex.quote(says)}\n")
    assert activity(quiet) == busy


@pytest.mark.parametrize("node", ["accel0", "vfio/1"])
def test_a_process_that_holds_a_tpu_chip_is_activity(quiet: Host, node: str) -> None:
    chip = Path(quiet.env["ORCH_DEV_DIR"]) / node
    chip.parent.mkdir(parents=True, exist_ok=True)
    chip.touch()
    assert activity(quiet) == ""
    process(quiet, 800, "python train.py", file=str(chip))
    assert activity(quiet) == "a process on a TPU chip"


def test_on_a_shared_machine_only_jobs_count(quiet: Host) -> None:
    process(quiet, 800, "sshd: ann@pts/0")
    (Path(quiet.env["ORCH_PROC_DIR"]) / "loadavg").write_text("9 9.00 9 1/200 1\n")
    assert activity(quiet, LimitsSpec(idle_minutes=5, watch="jobs")) == ""


def test_a_tool_that_hangs_is_given_up(quiet: Host) -> None:
    text = render_timer(ALL).replace("timeout 20", "timeout 1")
    program(quiet.bin / "nvidia-smi", "#!/bin/sh\nexec sleep 100\n")
    done = quiet.bash(functions_of(quiet, text) + "\nactivity\n")
    assert (done.returncode, done.stdout) == (0, "")


@given(hostile(slash=True))
@settings(max_examples=25, deadline=None)
def test_any_stop_command_arrives_unchanged_and_is_not_run_before_its_time(command: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stop = f"printf '%s\\0' {shlex.quote(command)}"
        limits = LimitsSpec(max_hours=9, on_limit="end", stop_command=stop, watch="jobs")
        # The timer inside of the installer, taken out of it as the installer's own shell does.
        installer = render_limits(limits).partition('\nmkdir -p -- "$limits"')[0]
        env = {"HOME": name, "PATH": os.environ["PATH"], "CANARY": str(folder / "canary")}
        done = subprocess.run(
            ["bash", "-c", f'{installer}\nprintf %s "$timer"'], env=env, capture_output=True, check=True, timeout=30
        )
        assert done.stdout.decode() == render_timer(limits)
        head = done.stdout.decode().partition("\nlimits=")[0]
        done = subprocess.run(
            ["bash", "-c", f'{head}\nbash -c "$stop_command"'], env=env, capture_output=True, check=True, timeout=30
        )
        assert done.stdout.decode() == command + "\0"
        assert not (folder / "canary").exists()


@pytest.mark.parametrize("hours", [0, -1, math.nan, math.inf, 1e9])
def test_a_limit_that_is_no_time_is_refused(hours: float) -> None:
    with pytest.raises(UserError):
        LimitsSpec(max_hours=hours)
    with pytest.raises(UserError):
        LimitsSpec(idle_minutes=hours)


def test_limits_that_could_never_hold_are_refused() -> None:
    with pytest.raises(ValueError, match="stop_command"):
        LimitsSpec(max_hours=1, on_limit="end", stop_command=" ")
    with pytest.raises(ValueError, match="tick"):
        LimitsSpec(max_hours=1, tick_seconds=0)
    with pytest.raises(ValueError, match="not a time"):
        LimitsSpec(deadline=math.nan)


@given(st.floats(min_value=1e-4, max_value=1000))
def test_a_lifetime_is_never_rounded_down_to_nothing(hours: float) -> None:
    text = render_timer(LimitsSpec(max_hours=hours))
    seconds = int(text.partition("max_seconds=")[2].split()[0])
    assert seconds >= 1
    assert abs(seconds - hours * 3600) <= 1
