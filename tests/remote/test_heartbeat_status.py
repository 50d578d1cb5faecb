"""How far a job is, as its heartbeat files say it: read in the same round trip as its state."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sshd import Farm

from orchestrator.hosts import NO_STORAGE, EndedBy, HostJob, JobPhase
from orchestrator.remote import jobs
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.scripts import shell_source
from trainer.heartbeat import NO_STORAGE as TRAINER_NO_STORAGE


def beat(step: object, **more: object) -> str:
    return json.dumps({"step": step, "rank": 0, "time": "2026-11-20T00:00:00Z", **more}) + "\n"


def place(folder: Path, job: str = "j", **files: str | bytes) -> Path:
    """The folder of a job that was started, with these files; `heartbeat_1` becomes heartbeat.1."""
    folder = folder / "jobs" / job
    folder.mkdir(parents=True)
    for name, content in {"job": "", "log": "", **files}.items():
        raw = content.encode() if isinstance(content, str) else content
        (folder / name.replace("_", ".")).write_bytes(raw)
    return folder


def ask(home: Path, *names: str, shell: str = "sh") -> list[str]:
    """What job-status.sh says, run here; the words after BYTES of each line."""
    done = subprocess.run(
        [shell, "-c", shell_source("job-status.sh"), "orch", "", *names],
        env={"ORCH_HOST_DIR": str(home), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert done.stderr == ""
    return [line.split(" ", 5)[5] for line in done.stdout.splitlines()]


def states(fleet: Fleet, job: str) -> list[HostJob]:
    return list(jobs.read_job_status(fleet, job).jobs)


def test_the_step_and_the_age_of_a_real_job_come_with_its_state(fleet: Fleet) -> None:
    script = b"""#!/bin/sh
echo '{"step": 41, "rank": 0, "time": "x", "phase": "saving"}' >"$ORCH_HEARTBEAT_FILE.new"
mv "$ORCH_HEARTBEAT_FILE.new" "$ORCH_HEARTBEAT_FILE"
exec sleep 71
"""
    jobs.start_job(fleet, "beats", script)
    limit = time.monotonic() + 10
    while any(host.step is None for host in states(fleet, "beats")):
        assert time.monotonic() < limit
    time.sleep(1.2)
    later = states(fleet, "beats")
    assert [(host.phase, host.step, host.doing) for host in later] == [(JobPhase.RUNNING, 41, "saving")] * 3
    assert all(host.beat_age is not None and 1.0 < host.beat_age < 10 for host in later)
    assert jobs.kill_job(fleet, "beats", EndedBy.CANCEL, grace=1).ok


def test_a_job_without_heartbeats_has_no_step_and_no_age(fleet: Fleet) -> None:
    jobs.start_job(fleet, "silent", b"#!/bin/sh\necho 7\n")
    assert [(host.step, host.beat_age, host.doing) for host in states(fleet, "silent")] == [(None, None, None)] * 3


def test_the_slowest_rank_of_a_host_counts(shared_farm: Farm, fleet: Fleet) -> None:
    folder = place(
        shared_farm.hosts[0].rank_folder,
        "slowest",
        heartbeat=beat(12, phase="training"),
        heartbeat_1=beat(9, phase="training"),
        heartbeat_10=beat(11, phase="saving"),
    )
    os.utime(folder / "heartbeat.10", (time.time() - 90, time.time() - 90))
    state = states(fleet, "slowest")[0]
    assert (state.step, state.doing) == (9, "saving")  # the smallest step; what the one with the oldest beat does
    assert state.beat_age is not None
    assert 89 < state.beat_age < 120


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_bucket_that_one_process_cannot_use_counts_whatever_the_others_do(tmp_path: Path, shell: str) -> None:
    folder = place(
        tmp_path,
        heartbeat=beat(12, phase="training"),
        heartbeat_1=beat(None, phase="no-storage"),
        heartbeat_2=beat(11, phase="saving"),
    )
    os.utime(folder / "heartbeat.2", (time.time() - 90, time.time() - 90))
    assert ask(tmp_path, "j", shell=shell)[0].split()[2] == NO_STORAGE == TRAINER_NO_STORAGE


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize(
    ("content", "step"),
    [
        ("17\n", "17"),
        ("17", "17"),
        ("  17\r\n", "17"),
        (beat(17), "17"),
        ('{"step":17}', "17"),
        ('{"time": "x", "step" : 17 }', "17"),
        ('{"step": 17', "-"),  # a partly written file: the number may continue
        ('{"step": ', "-"),
        ('{"step": 1.5}', "-"),
        ('{"step": -3}', "-"),
        ('{"step": null}', "-"),
        ("", "-"),
        ("\n17\n", "-"),
        ("step 17", "-"),
        ("-1", "-"),
        ("99999999999999999999", "-"),
        (b"\xff\x00\x01", "-"),
        ("$(touch canary) `id` * ' \"", "-"),
        ("1" * 5000, "-"),
        ("17" + " " * 5000, "-"),  # no heartbeat is that long: it is not even read
    ],
)
def test_a_number_or_the_json_is_a_step_and_other_content_is_none(
    tmp_path: Path, shell: str, content: str | bytes, step: str
) -> None:
    place(tmp_path, heartbeat=content)
    said, age, doing, ended_by = ask(tmp_path, "j", shell=shell)[0].split()
    assert (said, doing, ended_by) == (step, "-", "-")
    assert age.isdigit()  # any write is a sign of life


def test_what_is_no_file_is_no_heartbeat_and_blocks_nothing(tmp_path: Path) -> None:
    folder = place(tmp_path, heartbeat_tmp="99", heartbeat_1=beat(3))
    os.mkfifo(folder / "heartbeat")
    (folder / "heartbeat.2").mkdir()
    (folder / "heartbeat.3").symlink_to(folder / "nowhere")
    assert ask(tmp_path, "j")[0].split()[0] == "3"


def test_a_beat_from_the_future_is_young_and_not_negative(tmp_path: Path) -> None:
    folder = place(tmp_path, heartbeat=beat(3))
    os.utime(folder / "heartbeat", (time.time() + 500, time.time() + 500))
    assert ask(tmp_path, "j")[0].split()[:2] == ["3", "0"]


def test_each_of_several_jobs_has_its_own_step(tmp_path: Path) -> None:
    place(tmp_path, "a", heartbeat="1")
    place(tmp_path, "b")
    place(tmp_path, "c", heartbeat="3")
    assert [line.split()[0] for line in ask(tmp_path, "a", "b", "never", "c")] == ["1", "-", "-", "3"]


@given(st.binary(max_size=80))
@settings(max_examples=40, deadline=None)
def test_no_content_breaks_the_line(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        place(Path(name), heartbeat=content)
        words = ask(Path(name), "j")[0].split()
        assert len(words) == 4
        assert words[0] == "-" or words[0].isdigit()
        assert words[1].isdigit()
