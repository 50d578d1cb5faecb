"""Steps and heartbeats of hosts, from the engine that works in the same process to the page."""

from __future__ import annotations

import re
import time
import weakref
from dataclasses import replace
from pathlib import Path

import pytest
from support.orch_process import Orch
from support.service_site import serve

from orchestrator.hosts import ChipReport, JobPhase
from orchestrator.plan.observed import Contact, HostView
from orchestrator.service.drawing.chips import HostHealth
from orchestrator.service.host_board import KEPT_SECONDS, SILENT_SECONDS, WATCHED_SECONDS, HostBoard
from orchestrator.values import Text

PROGRAM = """
step=0; stop=$([ "$ORCH_RANK" = 1 ] && echo 5 || echo 400)
while sleep 0.1; do [ $step -lt $stop ] && step=$((step + 1)); echo $step > "$ORCH_HEARTBEAT_FILE"; done
"""


def view(rank: int, step: int | None = None, *, beat_age: float = 1.0, contact: Contact = Contact.OK) -> HostView:
    running = JobPhase.RUNNING if step is not None else JobPhase.ABSENT
    return HostView(
        rank=rank, internal_ip=Text.of("10.0.0.1"), contact=contact, job=running, step=step, beat_age=beat_age
    )


def judge(*views: HostView) -> list[tuple[HostHealth, str]]:
    board = HostBoard()
    board.note("uid", views)
    states = [report.judge() for report in board.read("uid").values()]
    return [(state.health, state.words) for state in states]


def test_a_host_behind_the_median_is_found_and_one_step_is_none() -> None:
    assert judge(view(0, 100), view(1, 99), view(2, 100), view(3, 90)) == [
        (HostHealth.READY, "ready, step 100"),
        (HostHealth.READY, "ready, step 99"),
        (HostHealth.READY, "ready, step 100"),
        (HostHealth.BEHIND, "10 steps behind"),
    ]


def test_silence_is_worse_than_a_step_behind() -> None:
    assert judge(view(0, 100), view(1, 90, beat_age=SILENT_SECONDS + 12), view(2, contact=Contact.DOWN)) == [
        (HostHealth.READY, "ready, step 100"),
        (HostHealth.SILENT, "no heartbeat for 72 s"),
        (HostHealth.SILENT, "does not answer"),
    ]


def test_a_program_without_steps_is_ready_and_not_behind() -> None:
    assert judge(view(0), view(1)) == [(HostHealth.READY, "ready")] * 2


def test_an_old_observation_is_forgotten() -> None:
    time_of_board = [0.0]
    board = HostBoard(now=lambda: time_of_board[0])
    board.note("one", [view(0, 1)])
    time_of_board[0] = KEPT_SECONDS
    assert board.read("one")
    time_of_board[0] = KEPT_SECONDS + 1
    assert board.read("one") == {} == board.read("never seen")


def test_chips_are_sampled_only_while_someone_looks() -> None:
    time_of_board = [1000.0]
    board = HostBoard(now=lambda: time_of_board[0])
    assert not board.is_watched("one")
    board.read("one")
    assert board.is_watched("one") and not board.is_watched("other")
    time_of_board[0] += WATCHED_SECONDS - 1
    assert board.is_watched("one")
    time_of_board[0] += 1
    assert not board.is_watched("one")


def test_a_cluster_that_is_no_longer_read_is_forgotten() -> None:
    class Uid(str):  # a plain str cannot be referenced weakly
        pass

    time_of_board = [1000.0]
    board, uid = HostBoard(now=lambda: time_of_board[0]), Uid("one")
    kept = weakref.ref(uid)
    board.read(uid)
    del uid
    time_of_board[0] += WATCHED_SECONDS
    board.read("other")
    assert kept() is not None
    time_of_board[0] += 1
    board.read("other")
    assert kept() is None


def test_a_sample_gets_older_on_the_board() -> None:
    time_of_board = [0.0]
    board = HostBoard(now=lambda: time_of_board[0])
    board.note("one", [replace(view(0, 1), chips=ChipReport(age=3.0, chips=())), view(1, 1)])
    time_of_board[0] = 20
    assert [report.chips for report in board.read("one").values()] == [ChipReport(age=23.0, chips=()), None]


@pytest.mark.slow
def test_the_page_shows_what_the_engine_beside_it_observes(tmp_path: Path) -> None:
    orch = Orch(tmp_path)
    with serve(orch, page_only=False) as site:
        try:
            orch.ok("launch", PROGRAM, "--infra", "local:2", "-c", "mine", "--detach", "--yes")
            until = time.monotonic() + 90
            while "steps behind" not in (page := site.ask("/clusters/mine").text):
                assert time.monotonic() < until, page
                time.sleep(0.5)
            assert re.search(r'class="host behind"[^>]*aria-label="host 1[^"]* \d+ steps behind"', page)
            assert re.search(r'class="host ready"[^>]*aria-label="host 0[^"]*, ready, step \d+"', page)
            assert 'data-every="20"' in page
        finally:
            orch.ok("down", "mine", "--yes")
            orch.kill_engines()
