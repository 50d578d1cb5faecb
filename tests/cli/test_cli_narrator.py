"""What is drawn: lines that stay in a pipe, one living line on a terminal, the program's output apart."""

from __future__ import annotations

import io
import os
import pty
import threading
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import pytest

from orchestrator.cli.drawing.narrator import TerminalNarrator
from orchestrator.cli.drawing.terminal import OutputClosed, inspect_terminal
from orchestrator.engine.action_text import describe_action, describe_success
from orchestrator.engine.progress import Progress, ProgressKind
from orchestrator.hosts import HostAddress, HostOutcome
from orchestrator.plan.actions import (
    Action,
    Conclude,
    CreateSlice,
    EndSlice,
    ForgetSlice,
    NextAttempt,
    RunSetup,
    StartJob,
    SyncTree,
)
from orchestrator.plan.causes import EndCause
from orchestrator.plan.environment import HostEnvironment
from orchestrator.plan.limits import format_time
from orchestrator.plan.ranks import describe_failed_hosts
from orchestrator.plan.steps import Wait, WaitFor
from orchestrator.slices import Candidate, OnDemand, Request, SliceSpec
from orchestrator.values import to_text

RANKS = (0, 1, 2, 3)
SYNC = SyncTree(
    label="workdir", source="/here", destination="there", digest="d", files=12, total_bytes=40 * 1024, ranks=RANKS
)
ENVIRONMENT = HostEnvironment(
    common=(),
    internal_ips=tuple(to_text(f"10.0.0.{rank}") for rank in RANKS),
    chips_per_host=0,
    accelerator="cpu",
    port=29500,
    task_id=to_text("run"),
)
SETUP = RunSetup(job="setup-1", digest="d", script=to_text("true"), environment=ENVIRONMENT, ranks=RANKS)
START = StartJob(job="1-a1", attempt=1, script=to_text("true"), environment=ENVIRONMENT, ranks=RANKS)


def host(rank: int) -> HostAddress:
    nowhere = Path()
    return HostAddress(
        rank=rank,
        alias=f"h{rank}",
        host="127.0.0.1",
        port=22,
        user="me",
        identity_file=nowhere,
        known_hosts=nowhere,
        internal_ip=f"10.0.0.{rank}",
    )


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


class Pipe:
    """A stream that is no terminal, and what was written to it."""

    def __init__(self) -> None:
        self.stream: TextIO = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)

    @property
    def text(self) -> str:
        return self.stream.buffer.getvalue().decode()  # type: ignore[attr-defined]  # it is a BytesIO


@pytest.fixture
def err() -> Pipe:
    return Pipe()


@contextmanager
def drawing(out: TextIO, err: TextIO, **options: bool) -> Iterator[TerminalNarrator]:
    """A narrator whose stderr is `err`."""
    with redirect_stderr(err), TerminalNarrator(out, **options) as narrator:
        yield narrator


class Screen:
    """A real pseudo-terminal, read as it fills."""

    def __init__(self) -> None:
        self._main, side = pty.openpty()
        tty.setraw(side)  # no translation of line ends: what is written is what is seen
        self.stream: TextIO = os.fdopen(side, "w", buffering=1)
        self._seen = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                self._seen += os.read(self._main, 65536)
            except OSError:
                return

    def close(self) -> str:
        self.stream.close()
        self._reader.join(10)
        os.close(self._main)
        return self._seen.decode()


def final_lines(drawn: str) -> list[str]:
    """What a person sees in the end: every carriage return with erase takes the line back."""
    return [line.rpartition("\r\x1b[K")[2] for line in drawn.split("\n")]


def test_an_action_is_one_line_in_a_pipe(err: Pipe) -> None:
    with drawing(Pipe().stream, err.stream) as narrator:
        narrator.starting(SYNC)
        assert err.text == "sync workdir: 12 files, 40 KiB to 4 hosts … "
        narrator.finished(SYNC, 0.2)
    assert err.text == "sync workdir: 12 files, 40 KiB to 4 hosts … done in 0.2 s\n"


def test_an_action_that_is_interrupted_by_a_note_keeps_its_name(err: Pipe) -> None:
    with drawing(Pipe().stream, err.stream) as narrator:
        narrator.starting(SYNC)
        narrator.note("by the way")
        narrator.finished(SYNC, 2.0)
    lines = err.text.splitlines()
    assert lines[1:] == ["by the way", "sync workdir: 12 files, 40 KiB to 4 hosts: done in 2.0 s"]


def test_a_wait_until_a_known_time_is_reported_rarely_with_the_time_left(err: Pipe) -> None:
    now = time.time()
    wait = Wait(
        on=WaitFor.SLICE,
        reason="'c' waits for its capacity block cr-1: it begins at 11:30 UTC",
        until=now + 9e4,
        due=now + 11_550,
    )
    with drawing(Pipe().stream, err.stream) as narrator:
        for seconds in (3.0, 20.0, 579.0, 581.0):
            narrator.waiting(wait, seconds)
    line = "'c' waits for its capacity block cr-1: it begins at 11:30 UTC, in 3 h 12 min"
    assert err.text.splitlines() == [line, line], "once now, and again after a twentieth of what is left"


def test_a_failed_action_is_reported_with_host_and_cause(err: Pipe) -> None:
    with drawing(Pipe().stream, err.stream) as narrator:
        narrator.starting(START)
        narrator.failed(START, (HostOutcome(rank=2, host="10.0.0.2", exit_code=3),))
        narrator.starting(SYNC)
        narrator.failed(SYNC, tuple(HostOutcome(rank=rank, host="x", exit_code=1) for rank in RANKS))
    assert "failed on worker2 (exit 3)" in err.text
    assert "failed on 4 of 4 hosts (head: exit 1, worker1: exit 1, worker2: exit 1, 1 more)" in err.text


def test_hosts_that_did_not_fail_are_not_named_in_a_failure() -> None:
    outcomes = tuple(HostOutcome(rank=rank, host="x", exit_code=3 if rank == 3 else 0) for rank in range(4))
    assert describe_failed_hosts(outcomes) == "1 of 4 hosts (worker3: exit 3)"


def test_the_program_is_on_stdout_and_setup_on_stderr(err: Pipe) -> None:
    out = Pipe()
    with drawing(out.stream, err.stream) as narrator:
        narrator.starting(SETUP)
        narrator.output(host(2), b"installing\n")
        narrator.finished(SETUP, 1.0)
        narrator.starting(START)
        narrator.finished(START, 0.0)
        narrator.output(host(2), b"loss 1\nlo")
        narrator.output(host(0), b"hello\n")
        narrator.output(host(2), b"ss 2\nlast")
    assert out.text.splitlines() == [
        "(worker2, rank=2, 10.0.0.2) loss 1",
        "(head, rank=0, 10.0.0.0) hello",
        "(worker2, rank=2, 10.0.0.2) loss 2",
        "(worker2, rank=2, 10.0.0.2) last",
    ]
    assert "(worker2, rank=2, 10.0.0.2) installing" in err.text


def test_without_prefix_the_bytes_are_as_written(err: Pipe) -> None:
    out = Pipe()
    with drawing(out.stream, err.stream, prefix=False) as narrator:
        narrator.output(host(1), b"\xff\x00 raw\n")
    assert out.stream.buffer.getvalue() == b"\xff\x00 raw\n"  # type: ignore[attr-defined]  # it is a BytesIO


def test_a_wait_in_a_pipe_is_reported_at_first_and_then_every_15_seconds(err: Pipe) -> None:
    wait = Wait(on=WaitFor.SLICE, reason="waiting for capacity", until=time.time() + 3600)
    with drawing(Pipe().stream, err.stream) as narrator:
        for second in range(40):
            narrator.waiting(wait, float(second))
        narrator.waiting(Wait(on=WaitFor.CONTACT, reason="waiting for SSH on hosts 0-3", until=None), 0.0)
    lines = err.text.splitlines()
    assert [line.split(", ")[1].split(" (")[0] for line in lines] == ["2.0 s", "17 s", "32 s"]
    assert any(f"gives up in {left}" in lines[0] for left in ("60 min", "59 min", "1 h"))


def test_a_pause_says_when_it_continues_and_when_requests_stop(err: Pipe) -> None:
    until = time.time() + 3600
    no_machines = Wait(
        on=WaitFor.PAUSE, reason="no machines; next request: a/b", until=until - 3000, due=until - 3000, stops=until
    )
    with drawing(Pipe().stream, err.stream) as narrator:
        narrator.waiting(Wait(on=WaitFor.PAUSE, reason="a short pause before attempt 2", until=until), 3.0)
        narrator.waiting(no_machines, 3.0)
    pause, request = err.text.splitlines()
    assert pause.startswith("a short pause before attempt 2, 3.0 s (continues in ")
    stops = format_time(until, time.time())
    assert (
        request == f"no machines; next request: a/b, in 10 min (stops trying at {stops} unless it gets machines before)"
    )


def test_an_unclear_answer_is_written_once_until_it_changes(err: Pipe) -> None:
    unclear = Wait(on=WaitFor.SLICE, reason="'c' is unclear (502)", until=None, repeat=False)
    other = Wait(on=WaitFor.SLICE, reason="'c' is unclear (503)", until=None, repeat=False)
    with drawing(Pipe().stream, err.stream) as narrator:
        for second in range(100):
            narrator.waiting(unclear, float(second))
        for second in range(100):
            narrator.waiting(other, float(second))
    assert [line.partition(", ")[0] for line in err.text.splitlines()] == [
        "'c' is unclear (502)",
        "'c' is unclear (503)",
    ]


@pytest.mark.parametrize("seconds", [0.0, 3.0])
def test_a_request_to_a_provider_is_never_called_done(seconds: float) -> None:
    candidate = Candidate(provider="gcp", accelerator="v5e", hosts=2, chips_per_host=4, market=OnDemand())
    spec = SliceSpec(cluster="c", name="c-1", token=to_text("t"), candidate=candidate, labels=())
    create = CreateSlice(generation=1, spec=spec, request=Request(service="s", method="m", target="t"))
    end = EndSlice(name="c-1", cause=EndCause.REQUESTED, why="down", request=create.request)
    for action in (create, end):
        assert describe_success(action, seconds).partition(" in ")[0] == "requested"
    assert describe_success(SYNC, seconds).partition(" in ")[0] == "done"


def test_a_wait_on_a_terminal_is_one_line_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Screen()
    with drawing(Pipe().stream, shown.stream) as narrator:
        for second in range(30):
            narrator.waiting(Wait(on=WaitFor.SLICE, reason="waiting for capacity", until=None), float(second))
        narrator.note("here it is")
    drawn = shown.close()
    assert drawn.count("waiting for capacity") == 29
    assert final_lines(drawn) == ["here it is", ""]


def test_an_action_on_a_terminal_is_rewritten_by_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Screen()
    with drawing(Pipe().stream, shown.stream) as narrator:
        narrator.starting(SYNC)
        narrator.progress("sync workdir", 10, 40)
        narrator.progress("sync workdir", 20, 40)
        narrator.finished(SYNC, 3.0)
    drawn = shown.close()
    assert "25%" in drawn and "50%" in drawn
    assert final_lines(drawn) == ["sync workdir: 12 files, 40 KiB to 4 hosts: done in 3.0 s", ""]


def test_output_never_lands_behind_a_live_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """stdout and stderr are the same terminal, and two threads write."""
    shown = Screen()
    with drawing(shown.stream, shown.stream) as narrator:

        def talk() -> None:
            for number in range(200):
                narrator.output(host(1), b"line %d\n" % number)

        talker = threading.Thread(target=talk)
        talker.start()
        for number in range(200):
            narrator.waiting(Wait(on=WaitFor.CONTACT, reason=f"waiting {number}", until=None), 1.0)
        talker.join()
    drawn = shown.close()
    seen = [line for line in final_lines(drawn) if line]
    bare = [line.replace("\x1b[33m", "").replace("\x1b[0m", "") for line in seen]
    assert bare == [f"(worker1, rank=1, 10.0.0.1) line {number}" for number in range(200)]


def test_a_live_line_is_never_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    shown = Screen()
    with drawing(Pipe().stream, shown.stream) as narrator:
        narrator.waiting(Wait(on=WaitFor.SLICE, reason="waiting " + "x" * 100, until=None), 5.0)
    drawn = shown.close()
    assert max(len(part) for part in drawn.replace("\n", "\r").split("\r")) - len("\x1b[K") <= 29


class SlowBytes(io.BytesIO):
    """A terminal that takes its time, so that threads meet at every lock."""

    def write(self, data: Any, /) -> int:
        time.sleep(0.0005)
        return super().write(data)


def test_setup_output_and_the_engine_do_not_block_each_other() -> None:
    """Writers hold the printer's lock and want ours; `finished` must not hold ours and want the printer's."""
    slow = io.TextIOWrapper(SlowBytes(), "utf-8", write_through=True)
    with drawing(Pipe().stream, slow) as narrator:
        narrator.starting(SETUP)

        def talk(rank: int) -> None:
            for number in range(200):
                narrator.output(host(rank), b"%d\npart" % number)

        talkers = [threading.Thread(target=talk, args=(rank,), daemon=True) for rank in RANKS]
        for talker in talkers:
            talker.start()
        for _ in range(200):
            narrator.finished(SETUP, 1.0)
            narrator.starting(SETUP)
        for talker in talkers:
            talker.join(20)
        assert not any(talker.is_alive() for talker in talkers)


def test_a_closed_output_is_reported_once_and_the_work_continues(err: Pipe) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as out, drawing(out, err.stream) as narrator:
        for number in range(5):
            narrator.output(host(0), b"%d\n" % number)
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
    assert err.text.count("the output was closed by its reader") == 1


def test_logs_stop_when_their_reader_leaves(err: Pipe) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as out:
        with pytest.raises(OutputClosed), drawing(out, err.stream, stop_when_closed=True) as narrator:
            narrator.output(host(0), b"x\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())


def test_a_running_program_that_speaks_needs_no_sign_of_life(err: Pipe) -> None:
    wait = Wait(on=WaitFor.JOB, reason="job 1 runs", until=None)
    with drawing(Pipe().stream, err.stream) as narrator:
        for second in range(200):
            narrator.output(host(0), b"x\n")
            narrator.waiting(wait, float(second))
    assert err.text == ""


def test_colour_is_decided_per_stream(monkeypatch: pytest.MonkeyPatch, err: Pipe) -> None:
    shown = Screen()
    assert inspect_terminal(shown.stream).colour and inspect_terminal(shown.stream).live
    assert not inspect_terminal(err.stream).colour and not inspect_terminal(err.stream).live
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert inspect_terminal(err.stream).colour and not inspect_terminal(err.stream).live
    monkeypatch.setenv("NO_COLOR", "1")
    assert not inspect_terminal(err.stream).colour and not inspect_terminal(shown.stream).colour
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.delenv("FORCE_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not inspect_terminal(shown.stream).colour and not inspect_terminal(shown.stream).live
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("CI", "true")
    assert not inspect_terminal(shown.stream).live
    shown.close()


def test_prefixes_are_coloured_on_request_and_the_output_is_unchanged(
    monkeypatch: pytest.MonkeyPatch, err: Pipe
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = Pipe()
    with drawing(out.stream, err.stream) as narrator:
        narrator.output(host(1), b"a\nb (x) \n")
    assert out.text == "".join(f"\x1b[33m(worker1, rank=1, 10.0.0.1)\x1b[0m {line}\n" for line in ("a", "b (x) "))


REMARKS: list[Action] = [
    ForgetSlice("mine-1", EndCause.PREEMPTED, "taken back"),
    NextAttempt(attempt=2, cause=EndCause.PREEMPTED, why="host 1 was lost"),
]


@pytest.mark.parametrize("action", REMARKS)
def test_a_change_of_our_own_records_is_one_remark(err: Pipe, action: Action) -> None:
    with drawing(Pipe().stream, err.stream) as narrator:
        narrator.starting(action)
        narrator.finished(action, 0.0)
    assert err.text == describe_action(action) + "\n"


def test_the_recorded_result_has_no_line_of_its_own(err: Pipe) -> None:
    with drawing(Pipe().stream, err.stream) as narrator:
        narrator.starting(Conclude(status=0, code="", what="well"))
        narrator.finished(Conclude(status=0, code="", what="well"), 0.0)
    assert err.text == ""


TITLE = "\x1b]0;another title\x07"


@pytest.mark.parametrize("kind", ProgressKind)
def test_what_a_service_sends_changes_no_terminal(kind: ProgressKind, err: Pipe) -> None:
    sent = Progress(kind=kind, words=f"a step{TITLE}", result=f"done{TITLE}", seconds=20.0)
    screen = Screen()
    for stream in (err.stream, screen.stream):
        with redirect_stderr(stream), TerminalNarrator(stream) as narrator:
            for progress in (replace(sent, kind=ProgressKind.BEGUN), sent, replace(sent, kind=ProgressKind.NOTE)):
                narrator.show(progress)
    for drawn in (err.text, screen.close()):
        assert "\x1b]" not in drawn and "a step\\x1b]0;another title\\x07" in drawn
