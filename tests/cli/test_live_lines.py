"""Text without a line end is seen while it changes: in place on a terminal, as its last state elsewhere."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.orch_process import Orch, until

from orchestrator.cli.drawing.host_output import HostOutput
from orchestrator.cli.drawing.terminal import Terminal
from orchestrator.cli.drawing.unfinished_lines import MOST_HOSTS, PAUSE_SECONDS, REDRAW_SECONDS
from orchestrator.hosts import HostAddress
from orchestrator.remote.output import LinePrinter, prefix_for

COLUMNS = 80


def host(rank: int) -> HostAddress:
    return HostAddress(
        rank=rank, alias=f"h{rank}", host="h", port=22, user="me", identity_file=Path("k"), known_hosts=Path("kh"),
        internal_ip=f"10.0.0.{rank}",
    )  # fmt: skip


class Screen:
    """As much of a terminal as is used: carriage returns, line ends, cursor up, and erasing. Colours are left out."""

    def __init__(self) -> None:
        self.lines = [""]
        self.row = self.column = self.widest = 0
        self.draws: list[list[str]] = []  # what stood there after each block

    def feed(self, block: bytes) -> None:
        for part in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", block.decode()):
            if part == "\r":
                self.column = 0
            elif part == "\n":
                self.row += 1
                self.lines += [""] * (self.row + 1 - len(self.lines))
            elif part.startswith("\x1b"):
                self._obey(part)
            else:
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[: self.column] + part + line[self.column + len(part) :]
                self.column += len(part)
                self.widest = max(self.widest, sum(2 if letter in "漢字" else 1 for letter in self.lines[self.row]))
        self.draws.append(list(self.lines))

    def _obey(self, sequence: str) -> None:
        if sequence.endswith("A"):
            self.row -= int(sequence[2:-1])
            assert self.row >= 0
        elif sequence.endswith(("J", "K")):
            self.lines[self.row] = self.lines[self.row][: self.column]
            if sequence.endswith("J"):
                del self.lines[self.row + 1 :]
        else:
            assert sequence.endswith("m"), sequence

    @property
    def text(self) -> list[str]:
        return [line for line in self.lines if line]


class Drawn(io.BytesIO):
    """A terminal's stream; each write changes the screen."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self.screen = screen

    def write(self, data: bytes) -> int:  # type: ignore[override]  # narrower
        self.screen.feed(data.replace(b"\n", b"\r\n"))
        return len(data)


def printer(stream: io.BytesIO, *, live: bool = False, raw: bool = False, prefix: bool = True) -> HostOutput:
    return HostOutput(
        stream,  # type: ignore[arg-type]  # BytesIO has what a BinaryIO needs
        terminal=Terminal(live=live, colour=live, width=COLUMNS if live else None), prefix=prefix, raw=raw,
        lock=threading.RLock(), make_room=lambda: None, on_closed=None,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    monkeypatch.setenv("LINES", "24")


def test_bars_of_two_hosts_are_redrawn_in_place_at_most_four_times_a_second() -> None:
    screen = Screen()
    output = printer(Drawn(screen), live=True)
    begun = time.monotonic()
    for percent in range(100):
        for rank in (0, 1):
            output.write(host(rank), b"\rrank %d: %3d%%" % (rank, percent))
        if percent == 50:
            output.write(host(2), b"a line between\n")
        time.sleep(0.02)
    seconds = time.monotonic() - begun
    seen = [draw for draw in screen.draws if any("%" in line for line in draw)]
    assert len(seen) >= 4, "they are not seen live"
    assert len(seen) <= 2 * (seconds / REDRAW_SECONDS + 2), "erasing and drawing count as two"
    assert any(sum("%" in line for line in draw) == 2 for draw in seen), "both stand there"
    for draw in seen:
        for line in draw:
            assert len(re.findall(r"rank \d:", line)) <= 1, f"bars are mixed: {line}"
    output.write(host(0), b"\rrank 0: 100%\n")
    output.write(host(1), b"\rrank 1: 100%\n")
    output.finish()
    assert screen.text == [
        "(worker2, rank=2, 10.0.0.2) a line between",
        "(head, rank=0, 10.0.0.0) rank 0: 100%",
        "(worker1, rank=1, 10.0.0.1) rank 1: 100%",
    ]


def test_bars_of_many_hosts_leave_room_on_the_screen() -> None:
    screen = Screen()
    output = printer(Drawn(screen), live=True)
    for rank in range(100):
        output.write(host(rank), b"\r%d%%" % rank)
    time.sleep(4 * REDRAW_SECONDS)
    assert len(screen.text) == MOST_HOSTS + 1 and screen.text[-1] == f"… and {100 - MOST_HOSTS} more hosts"
    output.finish()
    assert len(screen.text) == 100


@pytest.mark.parametrize(
    "unfinished",
    [b"x" * 5000, "█".encode() * 40 + b"\xe2\x96", b"\xff\xfe" * 30, "漢字".encode() * 60, b"\x1b[31mred" * 30,
     b"\x1b[2J\x1b[1;1H\x1b]0;title\x07", b"a\t" * 60, b"\x1b[3"],
)  # fmt: skip
def test_whatever_hosts_write_a_live_line_neither_wraps_nor_moves_the_cursor(unfinished: bytes) -> None:
    screen = Screen()
    output = printer(Drawn(screen), live=True)
    output.write(host(3), unfinished)
    time.sleep(3 * REDRAW_SECONDS)
    (line,) = screen.text
    assert screen.widest < COLUMNS, "it wraps"
    assert line.startswith("(worker3, rank=3, 10.0.0.3) ")
    assert "\ufffd" not in line or unfinished.startswith(b"\xff"), "a cut character is no invalid one"
    output.finish()


def test_a_raw_terminal_gets_the_bytes_when_the_line_ends() -> None:
    screen = Screen()
    stream = Drawn(screen)
    output = printer(stream, live=True, raw=True)
    output.write(host(0), b"\r10%\r20%")
    time.sleep(3 * REDRAW_SECONDS)
    assert screen.text == ["(head, rank=0, 10.0.0.0) 20%"]
    output.write(host(0), b"\x1b[1mbold\x1b[0m\n")
    output.finish()
    assert screen.text == ["20%boldrank=0, 10.0.0.0) "], "the host may begin the line again"


def test_elsewhere_a_bar_is_its_last_state() -> None:
    stream = io.BytesIO()
    output = printer(stream)
    for percent in range(101):
        output.write(host(1), b"\r%d%% \xe2\x96" % percent)
        output.write(host(1), b"\x88")
        time.sleep(0.005)
    output.write(host(1), b"\nnext\r\n")
    output.finish()
    prefix = prefix_for(host(1))
    assert stream.getvalue() == prefix + "100% █\n".encode() + prefix + b"next\n"


def test_nested_bars_are_redraws_of_one_line() -> None:
    stream = io.BytesIO()
    output = printer(stream)
    for percent in range(0, 101, 5):  # as tqdm moves to its second line and back
        output.write(host(1), b"\router %d%%" % percent + b"\n\rinner %d%%\x1b[A" % percent)
    output.write(host(1), b"\router done\n")
    output.finish()
    assert stream.getvalue() == prefix_for(host(1)) + b"outer done\n"


def test_elsewhere_a_line_that_pauses_is_shown_once_and_again_when_it_changed() -> None:
    stream = io.BytesIO()
    output = printer(stream)
    output.write(host(1), b"loading \xe2\x96")
    time.sleep(PAUSE_SECONDS + 4 * REDRAW_SECONDS)
    prefix = prefix_for(host(1))
    assert stream.getvalue() == prefix + b"loading \n", "a character that came in part waits"
    time.sleep(4 * REDRAW_SECONDS)
    assert stream.getvalue().count(b"\n") == 1
    output.write(host(1), b"\x88 done\n")
    output.finish()
    assert stream.getvalue() == prefix + b"loading \n" + prefix + "loading █ done\n".encode()


def test_a_line_that_was_shown_in_a_pause_is_not_repeated_by_its_end() -> None:
    stream = io.BytesIO()
    output = printer(stream)
    output.write(host(1), b"Password:")
    time.sleep(PAUSE_SECONDS + 4 * REDRAW_SECONDS)
    output.write(host(1), b"\n")
    output.write(host(1), b"last")
    time.sleep(PAUSE_SECONDS + 4 * REDRAW_SECONDS)
    output.finish()
    assert stream.getvalue().splitlines() == [prefix_for(host(1)) + word for word in (b"Password:", b"last")]


@pytest.mark.parametrize(("prefix", "raw"), [(False, False), (True, True)])
def test_raw_and_unprefixed_bytes_of_a_pipe_are_the_hosts_own(prefix: bool, raw: bool) -> None:
    stream = io.BytesIO()
    output = printer(stream, prefix=prefix, raw=raw)
    output.write(host(0), b"\r10%\r20%")
    output.write(host(0), b"\r30%\r\n\xff")
    output.finish()
    begin = prefix_for(host(0)) if prefix else b""
    assert stream.getvalue() == begin + b"\r10%\r20%\r30%\r\n" + begin + b"\xff\n"


@given(st.lists(st.sampled_from([b"ab", b"\r", b"\n", b"\xe2\x96\x88", b"\r\n", b""]), max_size=30))
def test_however_it_is_cut_a_line_is_its_last_state(blocks: list[bytes]) -> None:
    stream = io.BytesIO()
    printer = LinePrinter(stream, prefix=False, exact=False)
    for block in blocks:
        printer(host(0), block)
    printer.close()
    lines = b"".join(blocks).split(b"\n")
    ended = [line.rstrip(b"\r").rpartition(b"\r")[2] for line in (lines[:-1] if lines[-1] == b"" else lines)]
    assert stream.getvalue() == b"".join(line + b"\n" for line in ended)


def test_text_without_an_end_takes_bounded_memory() -> None:
    printer = LinePrinter(io.BytesIO(), exact=False)
    for number in range(3000):
        printer(host(0), b"\r%d%%" % number + b"#" * 1000)
        printer(host(1), b"#" * 1000)
    sizes = {one.rank: len(text) for one, text in printer.read_unfinished().items()}
    assert sizes[0] < 2000 and sizes[1] <= 1 << 20


BARS = r"""
import os, sys, time
out = sys.stdout.buffer
rank = int(os.environ["ORCH_RANK"])
for percent in range(101):
    out.write(b"\rrank %d: %3d%%|" % (rank, percent) + "█".encode()[: percent % 4] + b"\xff|")
    out.flush()
    time.sleep(0.05)
out.write(b"\n" + b"x" * 3_000_000 + b"\rend of it")
"""


@pytest.fixture
def orch(tmp_path: Path) -> Iterator[Orch]:
    orch = Orch(tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    (work / "bars.py").write_text(BARS)
    (work / "task.yaml").write_text("name: mine\nworkdir: .\nresources: {infra: 'local:2'}\nrun: python3 bars.py\n")
    yield orch
    orch("down", "mine", "--yes")
    orch.kill_engines()


def read_terminal(orch: Orch, *words: str) -> tuple[bytes, list[tuple[float, bytes]]]:
    """Run a command on a terminal; return all of its bytes, and when each block came."""
    main, side = pty.openpty()
    env = {**orch.env, "TERM": "xterm", "COLUMNS": str(COLUMNS)}
    env.pop("CI", None)
    blocks: list[tuple[float, bytes]] = []
    with subprocess.Popen(
        orch.command(*words), stdin=side, stdout=side, stderr=side, env=env, cwd=orch.folder / "work"
    ) as process:
        os.close(side)
        try:
            while block := os.read(main, 65536):
                blocks.append((time.monotonic(), block))
        except OSError:  # Linux reports the end of a terminal as EIO
            pass
        process.wait(60)
    os.close(main)
    return b"".join(block for _, block in blocks), blocks


def count_states(drawn: bytes, rank: int) -> int:
    return len(set(re.findall(rb"rank %d: +\d+%%" % rank, drawn)))


def test_a_launch_on_two_real_hosts_shows_both_bars_and_keeps_every_byte(orch: Orch) -> None:
    drawn, _ = read_terminal(orch, "launch", "task.yaml", "--yes")
    assert 8 <= count_states(drawn, 0) <= 40 and 8 <= count_states(drawn, 1) <= 40
    screen = Screen()
    screen.feed(drawn.replace(b"\r\r\n", b"\r\n"))
    ends = [line for line in screen.text if "rank 0: 100%" in line or "rank 1: 100%" in line]
    assert len(ends) == 2, screen.text
    for rank in (0, 1):
        (kept,) = (orch.state / "logs").glob(f"*/1/attempt-0001/{rank}.log")
        (own,) = (
            path for path in orch.folder.rglob("jobs/*-1-a1/log") if f"rank {rank}:".encode() in path.read_bytes()
        )
        assert kept.read_bytes() == own.read_bytes()
        assert b"\r" in kept.read_bytes() and len(kept.read_bytes()) > 3_000_000


def test_logs_follow_a_detached_job_live_and_in_a_pipe_once(orch: Orch) -> None:
    (orch.folder / "work" / "bars.py").write_text(
        BARS.replace("range(101)", "range(401)").replace("%3d%%|", "%3d%% of it|")
    )
    done = subprocess.run(
        orch.command("launch", "task.yaml", "--yes", "--detach"), cwd=orch.folder / "work", env=orch.env,
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    until("the bars run", lambda: any(b"rank 1:" in log.read_bytes() for log in orch.state.glob("logs/*/1/*/1.log")))
    piped = subprocess.Popen(orch.command("logs", "mine", "-f"), stdout=subprocess.PIPE, env=orch.env, cwd=orch.folder)
    drawn, _ = read_terminal(orch, "logs", "mine", "-f")
    assert count_states(drawn, 0) >= 8 and count_states(drawn, 1) >= 8
    text, _ = piped.communicate(timeout=60)
    assert 1 <= text.count(b"rank 0: ") <= 4, "not every redraw"
    assert text.count(b"rank 0: 400%") == 1 and b"\r" not in text
