"""A profile on real hosts: what is requests of them, and that nothing stays on them however it ends."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.sshd import Farm

from orchestrator.engine.operations.profile import ProfileRequest, record_on_hosts
from orchestrator.errors import OrchError
from orchestrator.hosts import Fence
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.host_folder import FORMAT

JOB = "c91f02aa-1-a1"


def job_of(place: Path) -> Path:
    """A job with two ranks on this host, and a trainer that knows profiles."""
    folder = place / "jobs" / JOB
    folder.mkdir(parents=True)
    (folder / "heartbeat.0").touch()
    (folder / "heartbeat.1").touch()
    trainer = place / "trainer/trainer"
    trainer.mkdir(parents=True)
    (trainer / "profiling.py").touch()
    return folder


def answer(job: Path, name: str, rank: int, trace: str) -> None:
    place = job / "profiles" / name / f"rank-{rank}"
    place.mkdir(parents=True)
    (place / "trace.json").write_text(trace)
    (place.parent / f"done-{rank}.json").write_text("{}")


def left(job: Path) -> list[str]:
    return [path.name for path in job.rglob("*") if path.is_file() and not path.name.startswith("heartbeat")]


@pytest.mark.promise("P41")
def test_a_profile_leaves_nothing_on_its_hosts(farm: Farm, tmp_path: Path) -> None:
    jobs = [job_of(host.rank_folder) for host in farm.hosts]

    def interrupt(done: int, total: int) -> None:
        assert all((job / "profile-request.json").exists() for job in jobs)
        raise KeyboardInterrupt

    with Fleet(farm.addresses) as fleet:
        request_of_profile = ProfileRequest(cluster="c", steps=3, first_only=False, into=tmp_path / "into", wait=1.5)
        answer(jobs[0], "late", 0, "{}")
        with pytest.raises(OrchError, match=r"recorded no 3 steps within 0\.025 min"):
            record_on_hosts(fleet, JOB, "late", request_of_profile, lambda _done, _total: None)
        assert [left(job) for job in jobs] == [[], []]
        with pytest.raises(KeyboardInterrupt):
            record_on_hosts(fleet, JOB, "cut", request_of_profile, interrupt)
        assert [left(job) for job in jobs] == [[], []]
    assert not (tmp_path / "into").exists(), "half a profile is none"


def test_the_first_rank_records_alone_and_a_damaged_trace_is_a_note(farm: Farm, tmp_path: Path) -> None:
    job = job_of(farm.hosts[0].rank_folder)
    requests: list[dict[str, Any]] = []
    begun = time.time()

    def look(done: int, total: int) -> None:
        if not requests:
            requests.append(json.loads((job / "profile-request.json").read_text()))
            answer(job, "one", 0, '{"traceEvents": [')

    with Fleet(farm.addresses[:1]) as fleet:
        found = record_on_hosts(
            fleet,
            JOB,
            "one",
            ProfileRequest(cluster="c", steps=3, first_only=True, into=tmp_path / "into", wait=20.0),
            look,
        )
    (request,) = requests
    assert 0 < request.pop("at") - begun < 10, "a moment ahead, at which all begin"
    assert request == {"id": "one", "steps": 3, "ranks": [0]}
    assert found.ranks == (0,) and found.merged is None and "trace.json is not a trace" in found.notes[0]
    assert (found.folder / "rank-0" / "trace.json").exists() and left(job) == []


def test_a_folder_of_another_version_gets_no_request(farm: Farm, tmp_path: Path) -> None:
    jobs = [job_of(host.rank_folder) for host in farm.hosts]
    for host in farm.hosts:
        (host.rank_folder / "format").write_text(f"{FORMAT + 1}\n")
    own_machine = Fence(epoch=0, installation="", owner="")
    request = ProfileRequest(cluster="c", steps=3, first_only=False, into=tmp_path / "into", wait=20.0)
    hosts = [replace(host, fence=own_machine) for host in farm.addresses]
    said = f"hosts 0-1 of 'c': orch's folder there has version {FORMAT + 1}"
    with Fleet(hosts) as fleet, pytest.raises(OrchError, match=said) as refused:
        record_on_hosts(fleet, JOB, "one", request, lambda _done, _total: None)
    assert refused.value.code == "host-version" and [left(job) for job in jobs] == [[], []]
