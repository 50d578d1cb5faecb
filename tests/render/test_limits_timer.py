"""The dead-man timer, actually run: without any client the host ends by itself, on time, whatever happens."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from limits_support import FAKE_CRONTAB, Host, limits_spec, open_host, until
from render_support import program

from orchestrator.render.limits import LimitsSpec, render_limits, render_renewal


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with open_host(tmp_path) as host:
        yield host


def ended_after(host: Host, began: float, seconds: float = 25) -> float:
    """Seconds from `began` until the machine was stopped. The timer counts in whole seconds, so one may be missing."""
    until(host.stopped.exists, seconds)
    return time.time() - began


@pytest.mark.promise("P6")
def test_the_lifetime_ends_the_machine_without_a_client(host: Host) -> None:
    began = int(time.time())
    host.install(limits_spec(seconds=4, since=began, watch="machine"))
    time.sleep(1.5)
    assert not host.stopped.exists()
    assert 3 <= ended_after(host, began) < 12
    assert (host.limits.parent / "limit-reached").read_text().split()[0] == "lifetime"


@pytest.mark.promise("P21")
def test_a_budget_becomes_a_deadline_that_holds_without_us(host: Host) -> None:
    now = time.time()
    host.install(limits_spec(seconds=3600, deadline=now + 4))
    assert 2 <= ended_after(host, now) < 11  # the deadline is cut to whole seconds, too
    assert (host.limits.parent / "limit-reached").read_text().split()[0] == "deadline"


@pytest.mark.promise("P6")
def test_an_idle_host_ends_but_not_while_a_job_runs(host: Host) -> None:
    host.start_job("work", "#!/bin/sh\nsleep 4\n")
    began = time.time()
    host.install(limits_spec(idle=3))
    assert 5.5 < ended_after(host, began) < 18
    assert (host.limits.parent / "limit-reached").read_text().split()[0] == "idle"


def test_an_idle_host_stops_where_that_differs_from_its_end(host: Host) -> None:
    limits = limits_spec(seconds=3600, idle=2)
    host.install(replace(limits, stop_command='touch "$HOME/machine-ended"', idle_command=Host.STOP))
    ended_after(host, time.time())
    assert not (host.home / "machine-ended").exists()


def test_a_host_at_the_end_of_its_lifetime_is_ended_although_idle_ones_stop(host: Host) -> None:
    limits = limits_spec(seconds=2, since=time.time(), idle=3600)
    host.install(replace(limits, idle_command='touch "$HOME/machine-idle"'))
    ended_after(host, time.time())
    assert not (host.home / "machine-idle").exists()


def test_jobs_that_come_and_go_between_two_checks_keep_the_host_awake(host: Host) -> None:
    host.install(limits_spec(idle=3))
    for number in range(10):
        host.start_job(f"short{number}", "#!/bin/sh\n")
        time.sleep(0.6)
    assert not host.stopped.exists()
    ended_after(host, time.time())


def test_a_second_start_changes_nothing(host: Host) -> None:
    began = int(time.time())
    limits = limits_spec(seconds=60, since=began)
    host.install(limits)
    first, started = host.pid, (host.limits / "started").read_text()
    time.sleep(1.1)
    host.install(limits_spec(seconds=60))
    assert (host.pid, (host.limits / "started").read_text()) == (first, started)
    twice = subprocess.run(
        ["bash", str(host.limits / "timer.sh")], env=host.env, timeout=20, check=False, capture_output=True
    )
    assert twice.returncode == 0
    assert host.timers() == [first]


def test_changed_limits_replace_the_timer_and_the_lifetime_continues(host: Host) -> None:
    began = int(time.time()) - 50
    host.install(limits_spec(seconds=3600, since=began))
    first = host.pid
    host.install(limits_spec(seconds=53))
    assert host.pid != first
    assert len(host.timers()) == 1
    assert (host.limits / "started").read_text() == f"{began}\n"
    assert ended_after(host, began) < 60


@pytest.mark.promise("P6")
def test_a_killed_timer_is_started_again_by_cron_and_counts_on(host: Host) -> None:
    began = int(time.time())
    host.install(
        limits_spec(seconds=600, since=began - 594, watch="machine")
    )  # counted from the start again it would end much later
    line = (host.home / "crontab").read_text().splitlines()
    assert (host.limits / "kept_by").read_text() == "cron\n"
    assert len(line) == 1
    command = line[0].removeprefix("* * * * * ")
    host.kill_timer()
    time.sleep(2)
    subprocess.Popen(["/bin/sh", "-c", command], env=host.env, start_new_session=True)  # what cron does
    until(host.alive)
    assert ended_after(host, began) >= 5


def test_a_second_install_leaves_one_line_in_the_table_of_cron_and_the_lines_of_others(host: Host) -> None:
    (host.home / "crontab").write_text("0 3 * * * backup\n")
    host.install(limits_spec(seconds=600, since=time.time(), watch="machine"))
    host.install(limits_spec(seconds=700, watch="machine"))
    lines = (host.home / "crontab").read_text().splitlines()
    assert lines[0] == "0 3 * * * backup"
    assert len(lines) == 2
    host.install(LimitsSpec())
    assert (host.home / "crontab").read_text() == "0 3 * * * backup\n"


def test_systemd_keeps_the_timer_where_we_may(host: Host) -> None:
    """`systemctl restart` is played by a program that does what the unit says."""
    (host.folder / "no-systemd").mkdir()
    (host.folder / "units").mkdir()
    play = """#!/bin/bash
echo "$*" >>"$HOME/systemctl-calls"
if [ "$1" = restart ]; then
  line=$(sed -n 's/^ExecStart=//p' "$ORCH_SYSTEMD_DIR/$2")
  setsid $line </dev/null >/dev/null 2>&1 &
fi
exit 0
"""
    program(host.bin / "systemctl", play)
    program(host.bin / "id", '#!/bin/sh\nif [ "$1" = -u ]; then echo 0; else exec /usr/bin/id "$@"; fi\n')
    host.install(limits_spec(seconds=600, since=time.time(), watch="machine"))
    assert (host.limits / "kept_by").read_text() == "systemd\n"
    unit = (host.folder / "units" / f"orch-limits-{host.limits.parent.name}.service").read_text()
    assert "Restart=always" in unit
    assert "WantedBy=multi-user.target" in unit
    assert not (host.home / "crontab").exists()
    assert len(host.timers()) == 1
    host.install(LimitsSpec())
    assert not (host.folder / "units" / f"orch-limits-{host.limits.parent.name}.service").exists()
    assert host.timers() == []


def test_where_nothing_keeps_it_that_is_written_down(host: Host) -> None:
    (host.bin / "crontab").unlink()
    program(host.bin / "crontab", "#!/bin/sh\nexit 1\n")
    host.install(limits_spec(seconds=600, since=time.time(), watch="machine"))
    assert (host.limits / "kept_by").read_text() == "nobody\n"
    assert host.alive()


class FakeMachine:
    """An uptime and a boot id that the test sets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "sys/kernel/random").mkdir(parents=True)
        (folder / "loadavg").write_text("0.00 0.00 0.00 1/100 1\n")

    def boot(self, name: str, uptime: int) -> None:
        (self.folder / "sys/kernel/random/boot_id").write_text(name + "\n")
        self.uptime(uptime)

    def uptime(self, seconds: int) -> None:
        new = self.folder / "uptime.new"
        new.write_text(f"{seconds}.25 1.00\n")
        new.replace(self.folder / "uptime")


@pytest.mark.parametrize("step", ["+10 years", "-10 years"])
@pytest.mark.promise("P6")
def test_a_step_of_the_clock_neither_fires_the_timer_nor_delays_it(tmp_path: Path, step: str) -> None:
    """`date` in front of PATH is the host's clock; the file makes it step. The machine's uptime is the test's."""
    machine = FakeMachine(tmp_path / "proc")
    machine.boot("only", 5000)
    with open_host(tmp_path / "machine", ORCH_PROC_DIR=str(machine.folder)) as host:
        program(
            host.bin / "date",
            f'#!/bin/sh\nif [ -e "$HOME/stepped" ]; then exec /bin/date -d "{step}" "$@"; fi\nexec /bin/date "$@"\n',
        )
        began = int(time.time())
        host.install(limits_spec(seconds=800, deadline=began + 800, idle=6000, since=began))
        host.looked_at(5000)
        (host.home / "stepped").touch()
        machine.uptime(5300)
        host.looked_at(5300)
        assert not host.stopped.exists(), host.log()
        host.kill_timer()  # a timer that starts after the step has to count on, too
        host.install(limits_spec(seconds=800, deadline=began + 800, idle=6000))
        machine.uptime(5740)
        host.looked_at(5740)
        assert not host.stopped.exists(), host.log()
        machine.uptime(5801)
        ended_after(host, began)


@pytest.mark.slow
@pytest.mark.promise("P6")
def test_over_a_reboot_the_count_continues_and_nothing_ends_within_the_boot_grace(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path / "proc")
    machine.boot("first", 5000)
    with open_host(tmp_path / "machine", ORCH_PROC_DIR=str(machine.folder)) as host:
        began = int(time.time())
        limits = limits_spec(seconds=500, since=began, watch="machine", boot_grace=100)
        host.install(limits)
        host.looked_at(5000)
        machine.uptime(5400)  # 400 s later
        host.looked_at(5400)
        assert not host.stopped.exists()
        host.kill_timer()
        machine.boot("second", 5)
        # The clock of the second boot is as if no time had passed: what was counted already stays counted.
        host.install(limits_spec(seconds=500, watch="machine", boot_grace=100))
        host.looked_at(5)
        assert int((host.limits / "seen").read_text().split()[0]) >= began + 400
        machine.uptime(99)  # 499 s
        host.looked_at(99)
        assert not host.stopped.exists()
        machine.uptime(110)  # 510 s
        ended_after(host, began)


def test_a_machine_that_was_off_beyond_its_lifetime_can_be_given_new_limits_before_it_ends(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path / "proc")
    machine.boot("later", 5)
    with open_host(tmp_path / "machine", ORCH_PROC_DIR=str(machine.folder)) as host:
        now = int(time.time())
        host.install(limits_spec(seconds=100, since=now - 5000, watch="machine", boot_grace=60))
        machine.uptime(50)
        host.looked_at(50)
        assert not host.stopped.exists()
        host.install(limits_spec(seconds=100, since=now + 45, watch="machine", boot_grace=60))
        machine.uptime(70)
        host.looked_at(70)
        assert not host.stopped.exists()
        machine.uptime(200)
        ended_after(host, now)


@pytest.mark.promise("P6")
def test_jobs_may_save_before_the_machine_ends(host: Host) -> None:
    saving = "#!/bin/bash\ntrap 'sleep 1; date +%s >$HOME/saved-$ORCH_JOB; exit 75' TERM\nwhile :; do sleep 0.1; done\n"
    folders = [host.start_job("one", saving), host.start_job("two", saving)]
    stop = 'cat "$HOME"/saved-one "$HOME"/saved-two >"$HOME/machine-stopped"'
    host.install(limits_spec(seconds=1, since=time.time(), stop=stop))
    until(lambda: host.stopped.exists() and len(host.stopped.read_text().split()) == 2)
    assert [(folder / "rc").read_text().strip() for folder in folders] == ["75", "75"]


def test_a_job_that_ignores_the_stop_is_killed_after_the_grace(host: Host) -> None:
    folder = host.start_job("deaf", "#!/bin/bash\ntrap '' TERM\nwhile :; do sleep 0.1; done\n")
    host.install(limits_spec(seconds=1, since=time.time(), grace=1))
    ended_after(host, time.time())
    assert (folder / "rc").read_text().strip() == "137"


def test_a_machine_of_the_users_own_loses_only_its_jobs(host: Host) -> None:
    folder = host.start_job("mine", "#!/bin/sh\nsleep 60\n")
    host.install(limits_spec(seconds=1, since=time.time(), on_limit="jobs", stop=""))
    until((folder / "rc").exists)
    assert (host.limits.parent / "limit-reached").read_text().startswith("lifetime ")
    again = host.start_job("restarted", "#!/bin/sh\nsleep 60\n")  # a budget is not got round by a new job
    until((again / "rc").exists)
    assert not host.stopped.exists()
    assert host.alive()


def test_a_stop_command_that_fails_is_given_again(host: Host) -> None:
    stop = 'echo x >>"$HOME/tries"; [ "$(wc -l <"$HOME/tries")" -ge 3 ] && touch "$HOME/machine-stopped"; exit 7'
    host.install(limits_spec(seconds=1, since=time.time(), stop=stop))
    ended_after(host, time.time())
    assert "ended with status 7" in host.log()


def test_a_renewed_deadline_moves_the_end_but_not_beyond_the_lifetime(host: Host) -> None:
    began = int(time.time())
    host.install(limits_spec(seconds=6, since=began, deadline=began + 3))
    assert host.bash(render_renewal(500)).returncode == 0
    time.sleep(max(0, began + 4.5 - time.time()))
    assert not host.stopped.exists()
    assert 5 <= ended_after(host, began) < 12


def test_renewing_a_host_without_limits_fails_with_a_message(host: Host) -> None:
    done = host.bash(render_renewal(5))
    assert (done.returncode, done.stdout) == (1, "this host has no limits\n")


@pytest.mark.parametrize("rubbish", ["", "soon", "-5", "1e9", "9" * 40, "$(touch canary)", "\0\0"])
def test_a_deadline_that_is_no_number_is_no_deadline_and_the_lifetime_holds(host: Host, rubbish: str) -> None:
    began = int(time.time())
    host.install(limits_spec(seconds=3, since=began))
    (host.limits / "deadline").write_text(rubbish)
    time.sleep(1)
    assert not host.stopped.exists()
    assert ended_after(host, began) < 12
    assert not (host.home / "canary").exists()


def test_a_timer_that_loses_its_files_still_ends_the_machine(host: Host) -> None:
    began = int(time.time())
    host.install(limits_spec(seconds=4, since=began))
    time.sleep(1.5)
    (host.limits / "started").unlink()
    assert ended_after(host, began) < 12


def test_no_limits_take_everything_away(host: Host) -> None:
    host.install(limits_spec(seconds=600, since=time.time(), watch="machine"))
    assert host.timers()
    host.install(LimitsSpec())
    assert host.timers() == []
    assert not host.limits.exists()
    host.install(LimitsSpec())  # and again: nothing to do


def test_the_timer_outlives_the_job_it_was_installed_from(host: Host) -> None:
    """Marks of a job on the timer would let the end of the job end the timer."""
    text = render_limits(limits_spec(seconds=600, since=time.time()))
    folder = host.start_job("setup", text + "\nsleep 60\n")
    until(lambda: (host.limits / "pid").exists() and host.alive())
    from orchestrator.remote.scripts import shell_source

    kill = ["/bin/sh", "-c", f"{shell_source('host.sh')}\n{shell_source('job-kill.sh')}", "orch", "setup", "1"]
    subprocess.run(kill, env=host.env, check=True, timeout=30)
    assert (folder / "rc").exists()
    assert host.alive()
    environ = Path(f"/proc/{host.pid}/environ").read_bytes()
    assert b"ORCH_JOB" not in environ


def test_the_fake_cron_of_these_tests_is_the_one_that_runs(host: Host) -> None:
    """Else they would write to the table of whoever runs them."""
    done = host.bash("command -v crontab; command -v systemctl")
    assert done.stdout.split() == [str(host.bin / "crontab"), str(host.bin / "systemctl")]
    assert (host.bin / "crontab").read_text() == FAKE_CRONTAB
